# SPDX-License-Identifier: Apache-2.0
"""Prints the path of the plugin's library: `export NCCL_NET_PLUGIN=$(python -m harp_net)`."""

from __future__ import annotations

import sys

from harp_net import UnusableError, library


def main() -> int:
    """Print the path; return the exit status."""
    try:
        print(library())
    except UnusableError as error:
        print(f"harp_net: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
