# SPDX-License-Identifier: Apache-2.0
"""The options that several benchmarks have: what is sent, the sides, and where ranks run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from harpctl.build_info import built_file
from harpctl.command_line import FILE, option
from harpctl.errors import ExitCode, HarpError
from harpctl.ssh import parse_hosts
from harpctl.units import short_size
from harplab.bench.cores import UNWATCHED, Watch, available_cores, open_watch, parse_cores
from harplab.bench.nccl_wheel import BEST_OF, socket_baseline
from harplab.bench.places import LabHosts, LoopbackHosts, SshHosts
from harplab.bench.timed import AFTER_S, DEFAULT_SIZE_BYTES, Opened
from harplab.grouped import Values, declare_option
from harplab.lab import persistent
from harplab.lab.lab import Lab, require_proc
from harplab.lab.options import RANKS
from harplab.lab.spec import LabSpec
from harplab.perf.hosts import Hosts, Program
from harplab.perf.job import Mode, PerfJob
from harplab.perf.measure import Side, setting_text
from harplab.perf.sizes import parse_sizes

DEFAULT_SIZES = "8,1K,4K,32K,64K,128K,512K,1M"
LATENCY_SIZES = "8,1K,4K,32K,128K"
RUN_S = 1.0
CONNECTIONS_MAX = 4096  # harp-perf's
SOCKET, SOCKET_BEST = "socket", "socket-best"
PERF, PLUGIN = "harp-perf", "libnccl-net.so"
_SENT, _CLOCK, _SIDES, _PLACE = "Traffic", "Timed run", "Sides", "Where ranks run"

CORES: dict[str, Any] = {
    "heading": _PLACE,
    "help": "Keep ranks to these cores in turn, as 0,1; make a run again beside which a cache line took "
    "more than twice the least time between the first two.",
}
PLOT: dict[str, Any] = {"metavar": "FILE", "type": FILE, "help": "Draw the results: FILE.png."}
cores_option = option("--cores", **CORES)
plot_option = option("--plot", "plot_file", **PLOT)


def find_program(given: Path | None, name: str) -> Path:
    """Resolve a built file, or the user's own."""
    file = (given or built_file(name)).expanduser().resolve()
    if not file.is_file():
        raise HarpError(
            f"{file} does not exist.",
            "Name a file that exists, or build it: ./harp_setup build",
            ExitCode.MISSING,
        )
    return file


# ---- what is sent ----


@dataclasses.dataclass(frozen=True)
class Amount:
    """Size and number of the messages."""

    sizes: str | None = declare_option(
        None, heading=_SENT, help="Message sizes, as 8,4K,1M; else those that NCCL sends."
    )
    time_s: float | None = declare_option(
        None,
        "--time",
        metavar="S",
        type=click.FloatRange(0.01),
        heading=_SENT,
        help=f"Seconds of each run: {RUN_S:g}, or by the clock until {AFTER_S:g} s past the last fault.",
    )
    runs: int | None = declare_option(
        None, type=click.IntRange(1), heading=_SENT, help="Runs of each side: 5, or 1 of a side alone."
    )
    check: bool = declare_option(True, "--check/--no-check", heading=_SENT, help="Verify every byte.")


@dataclasses.dataclass(frozen=True)
class Traffic(Amount):
    """The traffic of harp-perf."""

    mode: Mode = declare_option(Mode.STREAM, type=Values(Mode), heading=_SENT, help="Who sends to whom.")
    connections: int = declare_option(
        1,
        type=click.IntRange(1, CONNECTIONS_MAX),
        heading=_SENT,
        help=f"Connections per direction, {CONNECTIONS_MAX} at most.",
    )
    inflight: int = declare_option(8, type=click.IntRange(1, 32), heading=_SENT, help="Messages in flight.")
    wait_sent: bool = declare_option(
        False,
        heading=_SENT,
        help="With --mode pingpong: wait until a send is done before the receive is posted.",
    )
    by_clock: bool = declare_option(
        False,
        heading=_CLOCK,
        help="Run one size once for --time, whatever fails, and show the rate over time, how it is "
        "shared among connections, and with --mode incast the time of a message.",
    )

    def job(self, *, by_clock: bool) -> PerfJob:
        """Return what every rank does. Raises HarpError for options that do not go together."""
        if self.wait_sent and self.mode is not Mode.PINGPONG:
            raise HarpError("--wait-sent is for --mode pingpong.", "Add --mode pingpong.", ExitCode.USAGE)
        sizes = LATENCY_SIZES if self.mode is Mode.PINGPONG else DEFAULT_SIZES
        return PerfJob(
            mode=self.mode.value,
            sizes_bytes=parse_sizes(self.sizes or (short_size(DEFAULT_SIZE_BYTES) if by_clock else sizes)),
            connections=self.connections,
            inflight=self.inflight,
            check=self.check,
            wait_sent=self.wait_sent,
            time_s=self.time_s or RUN_S,
        )


# ---- the sides ----


def parse_assignment(text: str) -> tuple[str, str]:
    """Read NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise HarpError(f"{text!r} is not NAME=VALUE.", "Write HARP_PATHS=4, for example.", ExitCode.USAGE)
    return name, value


@dataclasses.dataclass(frozen=True)
class SideOptions:
    """The plugins that are measured, and their variables."""

    plugin: str | None = declare_option(
        None, heading=_SIDES, help="Measure this plugin's file, or `socket`, instead of HARP."
    )
    env: tuple[str, ...] = declare_option(
        (), multiple=True, heading=_SIDES, help="NAME=VALUE for the plugin, as HARP_DRIVER=udp; repeatable."
    )
    against: str | None = declare_option(
        None,
        metavar="socket|socket-best|FILE",
        heading=_SIDES,
        help="Alternate with NCCL's own sockets (fetches a 300 MB wheel once), with these and their best "
        "counts of threads and sockets, or with another plugin.",
    )
    against_env: tuple[str, ...] = declare_option(
        (), multiple=True, heading=_SIDES, help="NAME=VALUE for the other plugin; repeatable."
    )

    def variables(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the variables of both sides."""
        ours, theirs = (dict(parse_assignment(word) for word in words) for words in (self.env, self.against_env))
        return ours, theirs

    def perf_sides(self) -> list[Side]:
        """Return one side, or two of different names, for harp-perf."""
        perf, (ours, theirs) = find_program(None, PERF), self.variables()
        sides = [build_side(self.plugin, perf, ours)]
        if self.against:
            sides = with_distinct_names([*sides, build_side(self.against, perf, theirs)])
        return sides


def build_side(plugin: str | None, perf: Path, env: dict[str, str]) -> Side:
    """Return the side of a plugin's file, of NCCL's sockets, or of HARP."""
    if plugin in {SOCKET, SOCKET_BEST}:
        file, needed = socket_baseline()
        settings = BEST_OF if plugin == SOCKET_BEST else ({},)
        return Side("NCCL Socket", Program(perf, file, {**needed, **env}), settings)
    file = find_program(Path(plugin) if plugin else None, PLUGIN)
    return Side(file.stem if plugin else "HARP", Program(perf, file, env))


def with_distinct_names(sides: Sequence[Side]) -> list[Side]:
    """Name sides of equal names by their folders, or numbers where these are the same too."""
    if len({side.name for side in sides}) == len(sides):
        return list(sides)
    folders = [side.program.plugin.parent.name for side in sides]
    if len(set(folders)) == len(sides):
        names = [f"{folder}/{side.name}" for folder, side in zip(folders, sides, strict=True)]
    else:
        names = [f"{side.name} ({number})" for number, side in enumerate(sides, 1)]
    return [dataclasses.replace(side, name=name) for side, name in zip(sides, names, strict=True)]


def variable_notes(sides: Sequence[Side]) -> list[str]:
    """Return a note for each side whose variables the user has set."""
    given = ((side.name, {k: v for k, v in side.program.env.items() if k != "NCCL_LIB"}) for side in sides)
    return [f"{name} with {setting_text(env)}" for name, env in given if env]


# ---- where ranks run ----


@dataclasses.dataclass(frozen=True)
class LocalPlace:
    """The place on this machine: two namespaces unless something else is chosen."""

    ranks: int = declare_option(2, **RANKS)
    lab: str | None = declare_option(
        None, metavar="NAME", heading=_PLACE, help="Run on the hosts of this lab of `harpctl lab up`."
    )
    loopback: bool = declare_option(False, heading=_PLACE, help="Run processes over loopback; needs no root.")
    cores: str | None = declare_option(None, **CORES)

    def pinned(self) -> tuple[int, ...]:
        """Return the cores that ranks keep to."""
        return parse_cores(self.cores, available_cores()) if self.cores is not None else ()

    @contextlib.contextmanager
    def open(self) -> Iterator[Opened]:
        """Provide hosts, a line that describes them, and notes; loopback where no namespaces can be made."""
        require_proc()
        cores, notes = self.pinned(), []
        if self.lab is not None:
            lab = persistent.find(self.lab)
            yield LabHosts(lab, cores), f"lab {self.lab}: {lab.spec.describe()}", lab.notes
            return
        with contextlib.ExitStack() as stack:
            if not self.loopback:
                spec = LabSpec(hosts=self.ranks)
                try:
                    lab = stack.enter_context(Lab(spec))
                except HarpError as error:
                    if error.exit_code is ExitCode.USAGE:
                        raise
                    notes.append(f"no lab, so over loopback: {error.message}")
                else:
                    yield LabHosts(lab, cores), f"lab: {spec.describe()}", lab.notes
                    return
            where = f"{self.ranks} processes over the loopback interface"
            yield LoopbackHosts(self.ranks, cores), where, notes


@dataclasses.dataclass(frozen=True)
class Place(LocalPlace):
    """The place of harp-perf: also other hosts."""

    hosts: tuple[str, ...] = declare_option(
        (),
        *("-H", "--hosts"),
        metavar="HOSTS",
        multiple=True,
        heading=_PLACE,
        help="Run on these hosts over ssh: host1,user@host2, gpu[1-8,11] or @FILE.",
    )
    ifname: str = declare_option("", heading=_PLACE, help="The interfaces to use on these hosts.")

    @contextlib.contextmanager
    def open(self) -> Iterator[Opened]:
        """Provide hosts, a line that describes them, and notes."""
        if not self.hosts:
            with super().open() as opened:
                yield opened
            return
        names = parse_hosts(self.hosts)
        if len(names) < 2:
            raise HarpError("A measurement takes two hosts at least.", "-H gpu1,gpu2", ExitCode.USAGE)
        with SshHosts(names, self.ifname) as hosts:
            yield hosts, f"{len(names)} hosts over ssh: {', '.join(names)}", []


def namespaces_of(hosts: Hosts) -> tuple[str, ...]:
    """Return the namespaces of a lab's hosts; none of other places."""
    return tuple(hosts.lab.hosts) if isinstance(hosts, LabHosts) else ()


def watch_of(cores: tuple[int, ...], runs: int) -> Watch:
    """Return what watches so many runs on these cores; nothing does without cores."""
    return open_watch(find_program(None, PERF), cores, runs) if cores else UNWATCHED


def refuse_cores(cores: str | None, beside: dict[str, bool]) -> None:
    """Raise HarpError for --cores beside what places ranks itself, or is not counted."""
    for other, is_given in beside.items():
        if cores is not None and is_given:
            raise HarpError(
                f"--cores does not take {other}.",
                "It is for counted runs in the lab or over loopback, not for hosts over ssh; --rps places "
                "ranks too.",
                ExitCode.USAGE,
            )
