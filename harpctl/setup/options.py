# SPDX-License-Identifier: Apache-2.0
"""The options of `harpctl setup`, as data."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Facts, Overrides
from harpctl.units import GIB, MIB, size_of

PAGE_SIZES = {"1G": GIB, "2M": 2 * MIB}
AUTO, FIT = -1, 0  # numbers of pages: by the number of GPUs, what the ranks use
AS_CHOSEN = 0  # page size: that of an earlier setup, at first 1 GiB
NAME_MAX = 127  # characters of an alternative name of an interface; the kernel's own have 15
WORDS = {"": None, "auto": AUTO, "fit": FIT}
PROGRAM = "/usr/local/bin/harpctl"  # where the boot unit finds harpctl in an image
PACKAGED_PROGRAM = "/usr/bin/harpctl"  # or there, where a package of the distribution brought it


class SetupOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one setup. What is None or empty is chosen by harpctl."""

    overrides: Overrides = Overrides()
    hugepages: int | None = None  # a number, AUTO or FIT; None: as an earlier setup chose, at first AUTO
    page_size: int = GIB  # in bytes, or AS_CHOSEN
    enis: tuple[str, ...] = ()
    mtu: int | None = None
    channels: int | None = None
    big_tcp: bool | None = None  # None: as an earlier setup chose, else where the network may be changed
    speed_mbps: int | None = None  # the speed of each ENI; None: the host's own value
    cloud_mbps: int | None = None  # where the host does not show it
    force: bool = False
    now: bool = False
    kernel_args: bool = True
    network: bool = True
    unit: bool = True
    program: str = PROGRAM
    tool_folder: str = ""  # the folder of the self-contained file's harpctl that runs; "" where none does
    dry_run: bool = False  # the plan is shown and not carried out


def _usage_error(message: str, hint: str) -> HarpError:
    return HarpError(message, hint, ExitCode.USAGE)


def parse_hugepages(text: str) -> int | None:
    """Read --hugepages: a positive number, "fit" for FIT, or "auto" for AUTO; None where it was not given."""
    if text in WORDS:
        return WORDS[text]
    if not re.fullmatch(r"[0-9]{1,7}", text) or int(text) == 0:
        raise _usage_error(
            f"--hugepages {text}: expected a number of pages from 1, fit or auto.",
            "For example: --hugepages 50",
        )
    return int(text)


def parse_page_size(text: str) -> int:
    """Read --page-size: 1G or 2M, in bytes; AS_CHOSEN where it was not given."""
    if not text:
        return AS_CHOSEN
    if text.upper() not in PAGE_SIZES:
        raise _usage_error(f"--page-size {text}: expected 1G or 2M.", "x86-64 has no other hugepages.")
    return PAGE_SIZES[text.upper()]


def parse_bytes(text: str) -> int:
    """Read an amount of memory such as 64G or 512M, in bytes."""
    match = re.fullmatch(r"([0-9]{1,9})([MGT])i?B?", text, re.IGNORECASE)
    if not match:
        raise _usage_error(f"--memory {text}: expected an amount such as 948G.", "M, G and T are powers of 1024.")
    return size_of(match[1], match[2])


def parse_list(text: str) -> tuple[str, ...]:
    """Read a comma list of interface names; each once."""
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in names:
        if not re.fullmatch(rf"[^\s/:=]{{1,{NAME_MAX}}}", name) or name in {".", ".."}:
            raise _usage_error(f"--enis {text}: '{name}' is no interface name.", "For example: --enis eth1,eth2")
        if names.count(name) > 1:
            raise _usage_error(f"--enis {text}: {name} is there twice.", "Name each interface once.")
    return names


def with_names(options: SetupOptions, facts: Facts) -> SetupOptions:
    """Return the options with the kernel's names of the interfaces that have alternative ones there.

    Raises HarpError where two options name one interface.
    """

    def keyed(option: str, pairs: dict[str, str]) -> dict[str, str]:
        once(option, tuple(pairs))
        return {facts.name_of(name): value for name, value in pairs.items()}

    def once(option: str, names: tuple[str, ...]) -> tuple[str, ...]:
        found: dict[str, str] = {}
        for name in names:
            if other := found.get(facts.name_of(name)):
                raise _usage_error(f"{option}: {other} and {name} are one interface.", "Name each interface once.")
            found[facts.name_of(name)] = name
        return tuple(found)

    given = options.overrides
    overrides = msgspec.structs.replace(
        given, addresses=keyed("--address", given.addresses), gateways=keyed("--gateway", given.gateways)
    )
    return msgspec.structs.replace(options, enis=once("--enis", options.enis), overrides=overrides)


def read_cidr(text: str) -> None:
    """Accept an address of a host with its prefix length; else raise ValueError."""
    interface = ipaddress.ip_interface(text)
    if "/" not in text or interface.ip.is_unspecified or interface.ip.is_multicast:
        raise ValueError(text)


def read_ip(text: str) -> None:
    """Accept an address; else raise ValueError."""
    ipaddress.ip_address(text)


def read_mac(text: str) -> None:
    """Accept a MAC address; else raise ValueError."""
    if not re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", text):
        raise ValueError(text)


def parse_pairs(option: str, values: Sequence[str], example: str, check: Callable[[str], None]) -> dict[str, str]:
    """Read repeated INTERFACE=VALUE options; `check` raises ValueError. An interface may come once."""
    pairs: dict[str, str] = {}
    for text in values:
        name, _equals, value = text.partition("=")
        try:
            check(value)
        except ValueError:
            name = ""
        if not name:
            hint = f"For example: {option} eth1={example}"
            raise _usage_error(f"{option} {text}: expected INTERFACE={example}.", hint)
        if name in pairs:
            raise _usage_error(f"{option}: {name} is there twice.", "Give one value for each interface.")
        pairs[name] = value
    return pairs
