# SPDX-License-Identifier: Apache-2.0
"""The versions of the net plugin interface that each release of NCCL loads."""

from __future__ import annotations

from collections.abc import Collection

from harpctl.facts.elf import version_key

# Newest and oldest ncclNetPlugin_vN that releases from this one on look for, read at NCCL's tags.
ABIS = (
    ((2, 30), 12, 6),
    ((2, 28), 11, 6),
    ((2, 26), 10, 6),
    ((2, 24), 9, 5),
    ((2, 20), 8, 5),
    ((2, 19), 7, 5),
    ((2, 13), 6, 4),
    ((2, 12), 5, 4),
    ((2, 8), 4, 4),
    ((2, 6), 3, 3),
    ((2, 4), 2, 2),
)


def abi_picked(nccl: str, exported: Collection[int]) -> int | None:
    """Return the interface version that a release of NCCL picks among those exported; None: none.

    Also None when the release is unknown.
    """
    release = version_key(nccl)[:2]
    for since, newest, oldest in ABIS:
        if release >= since:
            return max((abi for abi in exported if oldest <= abi <= newest), default=None)
    return None
