# SPDX-License-Identifier: Apache-2.0
"""Labs that stay: made by one command, found again by its name, taken down by another.

A lab's folder below RUN_DIR is made before anything else and goes last, so whatever is killed in the middle
is found by `down`, which takes down every namespace of that name. While a lab is made its folder is locked.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from harpctl.errors import ExitCode, HarpError
from harplab.lab.commands import Command
from harplab.lab.faults import DirectionFaults
from harplab.lab.lab import RUN_DIR, Lab, namespaces_there, remove_namespace, require_lab, run_command
from harplab.lab.spec import LabSpec, eni_name

NAME_RULE = re.compile(r"[a-z0-9]{1,16}")
PREFIX = "harplab-"
FILE = "lab.json"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a lab that outlives its command."""

    spec: LabSpec
    is_ready: bool


class EniStatus(msgspec.Struct, frozen=True, kw_only=True):
    """An ENI as it is now."""

    name: str
    address: str  # "" where it was taken away
    mtu: int
    state: str  # up, down, or no-carrier
    faults: dict[str, dict[str, Any]]  # what is not as at the beginning, for each way
    counts: dict[str, dict[str, int]]  # what was done to packets, for each way


class HostStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A host and what it is reached by."""

    host: int
    namespace: str
    enis: list[EniStatus]


class LabStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A lab that stands, or what is left of one."""

    name: str
    is_ready: bool
    description: str
    hosts: list[HostStatus]
    packets: int = 0  # the packets that the network was given since the lab was made
    dropped: int = 0  # the packets that caps and the firewall dropped


def up(name: str, spec: LabSpec) -> Lab:
    """Make a lab that stays; what fails or is interrupted leaves nothing."""
    spec.check()
    require_lab(spec)
    folder = _lab_folder(name)
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise HarpError(
            f"A lab named {name} is there already, or what an interrupted command left of it.",
            f"See it with `harpctl lab status`, take it down with `harpctl lab down --name {name}`, "
            "or give another --name.",
            ExitCode.REFUSED,
        ) from None
    lab = Lab(spec, prefix=prefix_of(name))
    with _lock_folder(folder, name):
        try:
            _write_record(folder, Record(spec=spec, is_ready=False))
            lab.build()
            _write_record(folder, Record(spec=spec, is_ready=True))
        except BaseException:
            lab.destroy()
            raise
    return lab


def down(name: str) -> bool:
    """Take a lab down, or what is left of one; return whether there was anything."""
    folder = _lab_folder(name)
    _require_root()
    found = _list_namespaces(name)
    if not folder.exists() and not found:
        return False
    with _lock_folder(folder, name) if folder.exists() else contextlib.nullcontext():
        for namespace in _list_namespaces(name):
            remove_namespace(namespace)
        shutil.rmtree(folder, ignore_errors=True)
    with contextlib.suppress(OSError):
        RUN_DIR.rmdir()
    return True


def find(name: str) -> Lab:
    """Return a lab that stands."""
    _require_root()
    record = _read_record(_lab_folder(name))
    if record is None:
        raise HarpError(
            f"There is no lab named {name}.",
            "Make one with `harpctl lab up`; `harpctl lab status` lists them.",
            ExitCode.MISSING,
        )
    if not record.is_ready:
        raise HarpError(
            f"The lab {name} is not made completely.",
            f"If no other command is making it, take it down with `harpctl lab down --name {name}`.",
            ExitCode.MISSING,
        )
    return Lab(record.spec, prefix=prefix_of(name))


def status() -> list[LabStatus]:
    """Describe all labs that stand, and what is left of others."""
    _require_root()
    return [_lab_status(folder) for folder in sorted(RUN_DIR.glob(f"{PREFIX}*"))]


def _lab_status(folder: Path) -> LabStatus:
    name, record = folder.name.removeprefix(PREFIX), _read_record(folder)
    if record is None or not record.is_ready:
        return LabStatus(name=name, is_ready=False, description="not made completely", hosts=[])
    lab, spec = Lab(record.spec, prefix=prefix_of(name)), record.spec
    hosts = []
    for host, namespace in enumerate(lab.hosts):
        links = _read_links(namespace)
        enis = [_eni_status(lab, host, eni, links) for eni in range(spec.eni_count(host))]
        hosts.append(HostStatus(host=host, namespace=namespace, enis=enis))
    counted = lab.packet_counts()
    return LabStatus(
        name=name,
        is_ready=True,
        description=spec.describe(),
        hosts=hosts,
        packets=counted.offered,
        dropped=counted.dropped,
    )


def _eni_status(lab: Lab, host: int, eni: int, links: dict[str, Any]) -> EniStatus:
    link, faults = links.get(eni_name(eni), {}), lab.faults(host, eni)
    flags = link.get("flags", [])
    state = "down" if "UP" not in flags else "up" if "LOWER_UP" in flags else "no-carrier"
    addresses = [entry["local"] for entry in link.get("addr_info", []) if entry["family"] == "inet"]
    plain = msgspec.to_builtins(DirectionFaults())
    given = {
        way: {key: value for key, value in msgspec.to_builtins(one).items() if value != plain[key]}
        for way, one in faults.state().items()
    }
    return EniStatus(
        name=eni_name(eni),
        address=addresses[0] if addresses else "",
        mtu=link.get("mtu", 0),
        state=state if link else "gone",
        faults={way: one for way, one in given.items() if one},
        counts=faults.counts() if any(given.values()) else {},
    )


def _read_links(namespace: str) -> dict[str, Any]:
    shown = run_command(Command(("ip", "-netns", namespace, "-json", "address", "show")))
    return {link["ifname"]: link for link in msgspec.json.decode(shown) if "ifname" in link}


def prefix_of(name: str) -> str:
    """Return what the names of a lab's namespaces begin with."""
    return f"{PREFIX}{name}-"


def _lab_folder(name: str) -> Path:
    if not NAME_RULE.fullmatch(name):
        raise HarpError(
            f"{name!r} can't be the name of a lab.", "It takes 1 to 16 of a-z and 0-9.", ExitCode.USAGE
        )
    return RUN_DIR / prefix_of(name).rstrip("-")


def _list_namespaces(name: str) -> list[str]:
    own = re.compile(re.escape(prefix_of(name)) + r"(h\d+|fabric)")
    return [namespace for namespace in namespaces_there() if own.fullmatch(namespace)]


def _require_root() -> None:
    if os.geteuid() != 0:
        raise HarpError("A lab of network namespaces needs root.", "Run it with sudo.", ExitCode.REFUSED)


@contextlib.contextmanager
def _lock_folder(folder: Path, name: str) -> Iterator[None]:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise HarpError(
            f"Another command is making the lab {name}, or taking it down.",
            "Wait for it, or end it.",
            ExitCode.REFUSED,
        ) from None
    finally:
        os.close(fd)


def _write_record(folder: Path, record: Record) -> None:
    part = folder / f"{FILE}.part"
    part.write_bytes(msgspec.json.encode(record))
    part.replace(folder / FILE)


def _read_record(folder: Path) -> Record | None:
    try:
        return msgspec.json.decode((folder / FILE).read_bytes(), type=Record)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
