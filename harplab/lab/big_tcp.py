# SPDX-License-Identifier: Apache-2.0
"""A program for a namespace of a lab: TCP may use packets of 128 KiB on the interfaces that it is given."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from harpctl.host.link_sizes import SETTABLE, KernelLinks
from harplab.lab.spec import BIG_TCP_BYTES


def main(names: Sequence[str]) -> None:
    """Set every size that the kernel has; end with a message where it has none."""
    links = KernelLinks()
    for name in names:
        have = links.sizes(name)
        if "tso_max_size" not in have:
            sys.exit(f"{name}: this kernel has no BIG TCP (Linux 5.19)")
        links.set_sizes(name, {size: BIG_TCP_BYTES for size in SETTABLE if size in have})


if __name__ == "__main__":
    main(sys.argv[1:])
