# SPDX-License-Identifier: Apache-2.0
"""Finds the statistics files of a host's processes, and returns the state of each process."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping

import msgspec

from harpctl.console import escape_unprintable
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats.layout import Field, Page, read_fields, read_page

DIRECTORY = "/run/harp"
NAME = re.compile(r"(?P<pid>\d+)-\d+\.stats")
RANK = re.compile(r"[0-9]{1,10}")
RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID")
LATE_S = 2.0  # an engine writes four times a second
STOPPED = {"T", "t"}
ROOT_HINT = "Run it as root, or as that user."
# The most files of one user, which hide nobody else's: more than 16 ranks of a host with full tables.
FILES_MAX = 256
BYTES_MAX = 64 << 20
COMMAND_CHARS_MAX = 200


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process that has a statistics file."""

    pid: int
    state: str  # "running", "stopped", "late": no pass for 2 s, "gone", "elsewhere": another namespace's, late
    late_s: float  # the time since an engine wrote last
    rank: str  # from the launcher's variables; "" where unknown
    command: str
    file: str
    page: Page
    namespace: int = 0  # the namespace that its number belongs to, where that is not ours

    @property
    def name(self) -> str:
        """Return what names it among all processes of a machine, those of containers too."""
        return f"{self.pid}@{self.namespace}" if self.namespace else str(self.pid)


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A statistics file that could not be read."""

    file: str
    error: str
    hint: str
    exit_code: int


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a host's statistics files."""

    processes: tuple[Process, ...]
    unread: tuple[Unread, ...]

    def exit_code(self) -> int:
        """Return 0, or the code of the worst file."""
        return max((unread.exit_code for unread in self.unread), default=0)


def statistics_directories(host: Host, environment: Mapping[str, str]) -> list[str]:
    """Return where files may lie: HARP_STATS_DIR alone if it names a directory, else the defaults."""
    named = environment.get("HARP_STATS_DIR", "")
    if named and named != "off":
        return [named]
    user = environment.get("XDG_RUNTIME_DIR", "")
    found = [DIRECTORY, *([f"{user}/harp"] if user else []), *host.glob("/run/user/*/harp")]
    return list(dict.fromkeys(found))


def _start_ticks(stat: str) -> int:
    """Read field 22 of /proc/PID/stat; the name before it may hold anything. -1: there is no such process."""
    words = stat.rpartition(")")[2].split()
    return int(words[19]) if len(words) > 19 else -1


def _is_same_namespace(host: Host, page: Page) -> bool:
    return host.read_link("/proc/self/ns/pid") == f"pid:[{page.pid_namespace}]"


def _process_state(host: Host, page: Page, late_s: float) -> str:
    if not _is_same_namespace(host, page):
        return "running" if 0 <= late_s < LATE_S else "elsewhere"
    stat = host.read_text(f"/proc/{page.pid}/stat") or ""
    if _start_ticks(stat) != page.start_ticks:
        return "gone"
    if stat.rpartition(")")[2].split()[0] in STOPPED:
        return "stopped"
    return "late" if late_s > LATE_S else "running"


def _read_rank(host: Host, pid: int) -> str:
    variables = host.environment(pid) or {}
    ranks = (variables.get(name, "") for name in RANK_VARIABLES)
    return next((rank for rank in ranks if RANK.fullmatch(rank)), "")


def _read_command(host: Host, pid: int) -> str:
    words = (host.read_text(f"/proc/{pid}/cmdline") or "").split("\0")
    return escape_unprintable(" ".join(word for word in words if word)[:COMMAND_CHARS_MAX])


class _Room:
    """The files and bytes of each user that may still be read."""

    def __init__(self) -> None:
        self._files: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()

    def take(self, owner: int, page: Page | None = None) -> None:
        """Count a file before it is read, and its page afterwards. Raises HarpError where it is too much."""
        self._files[owner] += page is None
        self._bytes[owner] += page.bytes if page else 0
        if self._files[owner] > FILES_MAX or self._bytes[owner] > BYTES_MAX:
            raise HarpError(
                f"The user with the number {owner} has more statistics files than are read.",
                "Remove the files of processes that are gone.",
                ExitCode.REFUSED,
            )


def _read_process(host: Host, path: str, room: _Room) -> Process:
    file = host.open_file(path)
    if file is None:
        raise HarpError(f"{path} belongs to another user.", ROOT_HINT, ExitCode.REFUSED)
    with file:
        owner = os.fstat(file.fileno()).st_uid
        room.take(owner)
        page = read_page(file, path)
        room.take(owner, page)
    late_s = round(time.monotonic() - page.updated_ns / 1e9, 3)
    state = _process_state(host, page, late_s)
    is_ours = _is_same_namespace(host, page)
    is_here = state != "gone" and is_ours
    return Process(
        pid=page.pid,
        state=state,
        late_s=late_s,
        rank=_read_rank(host, page.pid) if is_here else "",
        command=_read_command(host, page.pid) if is_here else "",
        file=path,
        page=page,
        namespace=0 if is_ours else page.pid_namespace,
    )


def _list_paths(host: Host, pid: int | None) -> Iterator[str]:
    for directory in statistics_directories(host, os.environ if host.is_real else {}):
        for name in host.list_dir(directory):
            match = NAME.fullmatch(name)
            if match and pid in {None, int(match["pid"])}:
                yield f"{directory}/{name}"


def find_processes(host: Host, pid: int | None = None) -> Found:
    """Read the files of all processes, or of one; what cannot be read is listed beside the rest."""
    processes: list[Process] = []
    unread: dict[str, Unread] = {}  # by the reason: one for all files beyond a user's room
    room = _Room()
    for path in _list_paths(host, pid):
        try:
            processes.append(_read_process(host, path, room))
        except HarpError as error:
            if host.exists(path):  # else its process has ended meanwhile
                code = int(error.exit_code)
                unread.setdefault(
                    error.message, Unread(file=path, error=error.message, hint=error.hint, exit_code=code)
                )
    processes.sort(key=lambda process: (process.state == "gone", process.pid))
    return Found(processes=tuple(processes), unread=tuple(unread.values()))


def find_one(host: Host, pid: int) -> Found:
    """Read the file of one process. Raises HarpError with the reason where there is none."""
    found = find_processes(host, pid)
    if found.processes:
        return found
    if found.unread:
        first = found.unread[0]
        raise HarpError(first.error, first.hint, ExitCode(first.exit_code))
    if not host.exists(f"/proc/{pid}"):
        raise HarpError(
            f"There is no process {pid}.", "`harpctl stats` lists those with statistics.", ExitCode.MISSING
        )
    raise HarpError(
        f"Process {pid} has no statistics file.",
        "It has no HARP connections, or HARP_STATS_DIR there is off or a directory: set it here, too.",
        ExitCode.MISSING,
    )


def fields_of(host: Host, process: Process) -> dict[str, tuple[Field, ...]]:
    """Return the fields of each table, as a process's file describes them; none where it is gone."""
    file = host.open_file(process.file)
    if file is None:
        return {}
    with file:
        return read_fields(file, process.file)
