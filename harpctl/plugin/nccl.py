# SPDX-License-Identifier: Apache-2.0
"""What each release of NCCL asks of a net plugin, and how a libnccl.so tells its release."""

from __future__ import annotations

import re
from collections.abc import Collection

from harpctl.host.door import Host
from harpctl.plugin.elf import function_code, version_key

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
CODE_MIN = 2000  # NCCL 2.0.0 as ncclGetVersion codes it
CODE_RADIX = 10_000  # from 2.9 on: 2.21.5 is 22105, before that 2.8.4 is 2804
FILE_NAME = re.compile(r"libnccl\.so\.(\d+\.\d+\.\d+)")
X86_STORE = re.compile(rb"\xc7.(....)", re.DOTALL)  # mov dword [reg], imm32
ARM_MOVZ, ARM_MOVZ_MASK = 0x52800000, 0xFFE00000  # mov wN, #imm16


def abi_picked(nccl: str, exported: Collection[int]) -> int | None:
    """Return the interface version that a release of NCCL picks among those exported; None: none.

    Also None when the release is unknown.
    """
    release = version_key(nccl)[:2]
    for since, newest, oldest in ABIS:
        if release >= since:
            return max((abi for abi in exported if oldest <= abi <= newest), default=None)
    return None


def library_version(host: Host, path: str) -> str:
    """Return a libnccl.so's release, from its ncclGetVersion, else from its name; "" when neither tells."""
    machine, code = "", b""
    if file := host.open_file(path):
        with file:
            machine, code = function_code(file, "ncclGetVersion")
    number = _stored(machine, code)
    if number:
        major, rest = divmod(number, CODE_RADIX if number >= CODE_RADIX else 1000)
        return f"{major}.{rest // 100}.{rest % 100}"
    match = FILE_NAME.fullmatch(path.rpartition("/")[2])
    return match[1] if match else ""


def _stored(machine: str, code: bytes) -> int:
    """Return the constant that ncclGetVersion stores through its argument; 0 when it is not found."""
    if machine == "aarch64":
        words = (int.from_bytes(code[at : at + 4], "little") for at in range(0, len(code) - 3, 4))
        numbers = [word >> 5 & 0xFFFF for word in words if word & ARM_MOVZ_MASK == ARM_MOVZ]
    elif machine == "x86_64":
        numbers = [int.from_bytes(match[1], "little") for match in X86_STORE.finditer(code)]
    else:
        numbers = []
    return next((number for number in numbers if CODE_MIN <= number < 10 * CODE_RADIX), 0)
