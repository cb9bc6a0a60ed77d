# SPDX-License-Identifier: Apache-2.0
"""Interfaces of a host that are a table of sizes, set as Linux sets them."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping

from harpctl.host.link_sizes import KernelLinks, Sizes

LEGACY = 65536
FRESH = {
    "gso_max_size": LEGACY,
    "gro_max_size": LEGACY,
    "gso_ipv4_max_size": LEGACY,
    "gro_ipv4_max_size": LEGACY,
    "tso_max_size": 524280,
}


class FakeLinks(KernelLinks):
    """Sizes by interface; setting keeps the kernel's rules: bounds, IPv4's follow the others."""

    def __init__(self, **interfaces: Sizes) -> None:
        self.interfaces = interfaces

    def sizes(self, name: str) -> Sizes:
        return dict(self.interfaces.get(name, {}))

    def set_sizes(self, name: str, sizes: Mapping[str, int]) -> None:
        have = self.interfaces.get(name)
        if have is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), name)
        for size in [size for size in FRESH if size in sizes]:
            if size not in have or (size.startswith("gso") and sizes[size] > have["tso_max_size"]):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), name)
            have[size] = sizes[size]
            ipv4 = size.replace("_max", "_ipv4_max")
            if ipv4 in have and sizes[size] <= LEGACY:
                have[ipv4] = sizes[size]
