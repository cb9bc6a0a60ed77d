# SPDX-License-Identifier: Apache-2.0
"""The sources of plans beside the facts: files that are edited, programs, answers of commands, as data.

A plan depends on nothing else of a host, so that the same facts and sources lead to the same plan.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable

import msgspec

from harpctl.confs.conf import CONF_DIR, CONF_PATTERN
from harpctl.confs.files import ConfFile, read_confs
from harpctl.facts import bls
from harpctl.facts.model import Eni
from harpctl.host.host import Host

RECORD = "/etc/harp/interfaces.json"  # what an earlier setup chose (network/model.py)
DEFAULTS = "/etc/default/grub"
DROPINS = "/etc/default/grub.d/*.cfg"
GRUB_DIRS = ("/boot/grub2", "/boot/grub", "/boot/efi/EFI/*")
FILES = (
    RECORD,
    f"{CONF_DIR}/{CONF_PATTERN}",
    DEFAULTS,
    DROPINS,
    "/etc/kernel/cmdline",
    bls.ENTRIES,
    *(f"{folder}/{name}" for folder in GRUB_DIRS for name in ("grub.cfg", "grubenv")),
    "/etc/fstab",
    *(f"{folder}/systemd/system/dev-hugepages.mount" for folder in ("/etc", "/usr/lib", "/lib")),
    "/etc/sysconfig/network-scripts/ifcfg-*",
    "/etc/default/networking",
)
FILES_OF_ENI = (
    "/sys/class/net/{}/addr_assign_type",
    "/proc/sys/net/ipv4/conf/{}/arp_ignore",
    "/proc/sys/net/ipv4/conf/{}/arp_announce",
    "/proc/sys/net/ipv4/conf/{}/rp_filter",
)
PATHS = (  # paths: it counts only that they are there
    "/dev/hugepages",
    "/run/systemd/system",
    "/etc/network/interfaces",
    "/etc/init.d/network",
    "/etc/rc.d/init.d/network",
    *(f"{base}/systemd/network/*.network" for base in ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")),
)
PROGRAMS = (
    *("update-grub2", "update-grub", "grub2-mkconfig", "grub-mkconfig", "grubby", "rpm-ostree"),
    *("ip", "networkctl", "NetworkManager", "ifup"),
)
GRUBBY_HELP = ("grubby", "--help")
VERSIONS = (4, 6)  # the versions of IP
# What `ip` is asked: routes of all tables, those of the main table without its name.
RULES, ROUTES, ADDRESSES = ("rule", "show"), ("route", "show", "table", "all"), ("-o", "addr", "show")
NM_RUNNING = ("nmcli", "-t", "-f", "RUNNING", "general")
NM_DEVICE = ("nmcli", "-t", "-f", "GENERAL.STATE,GENERAL.CON-UUID", "device", "show")


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of files, programs and answers of commands; methods have the names of Host's."""

    is_real: bool = False
    runs_commands: bool = False  # False for a directory tree
    files: dict[str, bytes | None] = {}  # path -> what it holds; None: it can't be read
    paths: frozenset[str] = frozenset()
    programs: frozenset[str] = frozenset()
    answers: dict[tuple[str, ...], str] = {}  # command -> its output, where it succeeded
    shell_errors: dict[str, str] = {}  # file of GRUB's defaults -> why a shell can't parse it
    confs: tuple[ConfFile, ...] = ()

    def read_bytes(self, path: str) -> bytes | None:
        """Return a file's bytes; None when it cannot be read."""
        return self.files.get(path)

    def read_text(self, path: str) -> str | None:
        """Return a file's text, undecodable bytes as surrogates; None when it cannot be read."""
        data = self.files.get(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_word(self, path: str) -> str:
        """Return the text of a file of one line without its end; "" when it cannot be read."""
        return (self.files.get(path) or b"").decode("utf-8", "surrogateescape").strip()

    def exists(self, path: str) -> bool:
        """Return whether the path leads to something."""
        return path in self.files or path in self.paths

    def glob(self, pattern: str) -> list[str]:
        """Return the paths that fit a pattern, sorted."""
        return sorted(fnmatch.filter((*self.files, *self.paths), pattern))

    def query(self, argv: tuple[str, ...]) -> str | None:
        """Return the output of a command; None where it failed or no command runs."""
        return self.answers.get(argv)


def of_ip(version: int, *words: str) -> tuple[str, ...]:
    """Return a command of iproute2 for a version of IP."""
    return ("ip", f"-{version}", *words)


def collect_state(host: Host, names: Iterable[str], versions: Collection[int] = VERSIONS) -> Sources:
    """Gather what the state of these ENIs is planned from (network/runtime.py), and no more.

    It runs 4 commands, 6 for both versions of IP, and reads 4 files of each ENI.
    """
    commands = [of_ip(version, *RULES) for version in VERSIONS]
    commands += [of_ip(version, *words) for version in versions for words in (ROUTES, ADDRESSES)]
    found = [path for name in names for file in FILES_OF_ENI if host.exists(path := file.format(name))]
    return Sources(
        is_real=host.is_real,
        runs_commands=host.runs_commands,
        files={path: host.read_bytes(path) for path in found},
        answers=_query_commands(host, commands),
    )


def _query_commands(host: Host, commands: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    return {argv: text for argv in commands if (text := host.query(argv)) is not None}


def collect_sources(host: Host, enis: Iterable[Eni], *, program: str = "") -> Sources:
    """Gather the state of the ENIs and the files; for a setup, which has a program to start, the rest too."""
    names = [eni.name for eni in enis]
    programs = frozenset(name for name in PROGRAMS if host.which(name))
    state, commands = collect_state(host, names), list[tuple[str, ...]]()
    if program and "grubby" in programs:
        commands.append(GRUBBY_HELP)
    if program and "NetworkManager" in programs:
        commands += [NM_RUNNING, *((*NM_DEVICE, name) for name in names)]
    files = {path: host.read_bytes(path) for pattern in FILES for path in host.glob(pattern)}
    paths = [path for pattern in PATHS for path in host.glob(pattern)] + [program] * bool(program)
    defaults = [path for path in (DEFAULTS, *host.glob(DROPINS)) if program and path in files]
    return msgspec.structs.replace(
        state,
        files=files | state.files,
        paths=frozenset(filter(host.exists, paths)),
        programs=programs,
        answers=state.answers | _query_commands(host, commands),
        shell_errors={path: error for path in defaults if (error := host.shell_error(path))},
        confs=read_confs(host),
    )
