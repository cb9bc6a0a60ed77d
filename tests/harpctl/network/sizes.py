# SPDX-License-Identifier: Apache-2.0
"""Prints the ENIs with the sizes of TCP's largest packets on each; `ip` before 6.3 lacks those of IPv4."""

from __future__ import annotations

from harpctl.host.link_sizes import SETTABLE, KernelLinks

for name in ("eth1", "eth2", "eth3"):
    sizes = KernelLinks().sizes(name)
    print(name, *sorted({size for key, size in sizes.items() if key in SETTABLE}))
