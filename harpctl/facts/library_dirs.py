# SPDX-License-Identifier: Apache-2.0
"""Lists the folders where a host's loader looks for a library named without one, such as libnccl-net.so.

The answer is the one that holds after any run of ldconfig: the folders of ld.so.conf in their order, then the
system's. The cache may be older, and a job's LD_LIBRARY_PATH comes before all of it.
"""

from __future__ import annotations

import os

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

TRIPLETS = {"x86_64": "x86_64-linux-gnu", "aarch64": "aarch64-linux-gnu"}
LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}
INCLUDE_DEPTH_MAX = 8


def host_machine(host: Host) -> str:
    """Return the machine that the host's programs are for, as uname -m says; "" when it is unknown."""
    if host.is_real:
        return os.uname().machine
    return next((machine for machine, loader in LOADERS.items() if host.exists(loader)), "")


def library_dir(host: Host, machine: str) -> str:
    """Return the folder that plugins go into: /usr/lib/<triplet> of the Debian family, else /usr/lib64."""
    triplet = f"/usr/lib/{TRIPLETS.get(machine, f'{machine}-linux-gnu')}"
    for folder in (triplet, "/usr/lib64"):
        if host.is_dir(folder):
            return folder
    raise HarpError(
        f"Neither {triplet} nor /usr/lib64 is there, so the library directory is unknown.",
        "Name a directory that the loader of that system searches: harpctl install --dir DIR",
        ExitCode.MISSING,
    )


def search_dirs(host: Host) -> tuple[str, ...]:
    """Return the folders searched and there, first to last, each once, by the names links lead to."""
    configured = _existing_folders(host, _read_configured(host, "/etc/ld.so.conf", INCLUDE_DEPTH_MAX))
    return tuple(dict.fromkeys((*configured, *system_dirs(host))))


def system_dirs(host: Host) -> tuple[str, ...]:
    """Return the folders that are built into the loader: what is new there is found without ldconfig."""
    machine = host_machine(host)
    triplets = [TRIPLETS[machine]] if machine in TRIPLETS else list(TRIPLETS.values())
    multiarch = [f"/usr/lib/{triplet}" for triplet in triplets if host.is_dir(f"/usr/lib/{triplet}")]
    folders = [*multiarch, "/usr/lib"] if multiarch else ["/usr/lib64"]
    return _existing_folders(host, [*folders, *(folder.removeprefix("/usr") for folder in folders)])


def _existing_folders(host: Host, folders: list[str]) -> tuple[str, ...]:
    found = (host.leads_to(folder) for folder in folders if folder.startswith("/") and host.is_dir(folder))
    return tuple(dict.fromkeys(filter(None, found)))


def environment_dirs(host: Host) -> tuple[str, ...]:
    """Return the folders of our own LD_LIBRARY_PATH; none for a tree. For jobs started from here."""
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(":") if host.is_real else []
    return tuple(folder for folder in folders if folder.startswith("/") and host.is_dir(folder))


def _read_configured(host: Host, path: str, depth: int) -> list[str]:
    folders = []
    for line in (host.read_text(path) or "").splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] == "hwcap":
            continue
        if words[0] == "include":
            for pattern in words[1:] if depth else ():
                full = pattern if pattern.startswith("/") else f"/etc/{pattern}"
                for included in host.glob(full):
                    folders += _read_configured(host, included, depth - 1)
        else:
            folders.append(words[0].split("=")[0])
    return folders
