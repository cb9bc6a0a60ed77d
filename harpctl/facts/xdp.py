# SPDX-License-Identifier: Apache-2.0
"""The best AF_XDP mode that a driver is known for; only the plugin's probe shows whether a bind works.

Kernel versions are those of the driver's first release with the mode, from the kernel's history and, for
Amazon's own driver, from its release notes.
"""

from __future__ import annotations

import re

from harpctl.facts import text
from harpctl.host.host import Host

ZERO_COPY, NATIVE, GENERIC = "zero-copy", "native", "generic"  # values of Eni.xdp
AF_XDP_SINCE = (4, 18)
ZERO_COPY_SINCE = {
    "i40e": (4, 20),
    "ixgbe": (4, 20),
    "mlx5_core": (5, 3),
    "ice": (5, 5),
    "igc": (5, 14),
    "nfp": (5, 18),
    "virtio_net": (6, 13),
    "igb": (6, 14),
    "idpf": (6, 18),
}
NATIVE_DRIVERS = {
    "bnxt_en",
    "ena",
    "gve",
    "hv_netvsc",
    "mana",
    "mlx4_core",
    "tun",
    "veth",
    "vmxnet3",
    "ixgbevf",
    *ZERO_COPY_SINCE,
}
ENA_ZERO_COPY_SINCE = (2, 13)  # the version of the driver outside the kernel, whose versions end in "g"
VIRTIO_F_ACCESS_PLATFORM = 33


def release_of(release: str) -> tuple[int, int]:
    """Return major and minor of a release, such as 6.1 of "6.1.0-18-amd64"; 0.0 for no release."""
    match = re.match(r"([0-9]{1,4})\.([0-9]{1,4})", release, re.ASCII)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def best_mode(host: Host, name: str, driver: str, kernel: str) -> str:
    """Return "zero-copy", "native" or "generic"; "" where the kernel is too old or the driver unknown."""
    release = release_of(kernel)
    if release < AF_XDP_SINCE or not driver:
        return ""
    if driver == "ena":
        module = text.read_word(host, "/sys/module/ena/version")
        return ZERO_COPY if module.endswith("g") and release_of(module) >= ENA_ZERO_COPY_SINCE else NATIVE
    has_zero_copy = driver in ZERO_COPY_SINCE and release >= ZERO_COPY_SINCE[driver]
    if has_zero_copy and (driver != "virtio_net" or _has_access_platform(host, name)):
        return ZERO_COPY
    return NATIVE if driver in NATIVE_DRIVERS else GENERIC


def is_tried(driver: str, best: str) -> bool:
    """Return whether the plugin tries AF_XDP with this value of the key `driver`, where `best` is known."""
    return driver.startswith("xdp") or (driver == "auto" and best == ZERO_COPY)


def _has_access_platform(host: Host, name: str) -> bool:
    """Return whether a virtio device's memory is addressed as zero-copy needs; the file has bit 0 first."""
    bits = text.read_word(host, f"/sys/class/net/{name}/device/features")
    return bits[VIRTIO_F_ACCESS_PLATFORM : VIRTIO_F_ACCESS_PLATFORM + 1] == "1"
