# SPDX-License-Identifier: Apache-2.0
"""The options that several benchmarks have: what is sent, the sides, and where ranks run."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer

from harpctl.build_info import built_file
from harpctl.errors import ExitCode, HarpError
from harpctl.perf.hosts import Hosts, Program
from harpctl.perf.job import Mode, PerfJob
from harpctl.perf.measure import Side, setting_text
from harpctl.perf.sizes import parse_sizes
from harpctl.ssh import parse_hosts
from harpctl.units import short_size
from harplab.bench.cores import UNWATCHED, Watch, available_cores, open_watch, parse_cores
from harplab.bench.nccl_wheel import BEST_OF, socket_baseline
from harplab.bench.places import LabHosts, LoopbackHosts, SshHosts
from harplab.bench.timed import AFTER_S, DEFAULT_SIZE_BYTES, Opened
from harplab.lab import persistent
from harplab.lab.lab import Lab
from harplab.lab.options import Ranks
from harplab.lab.spec import LabSpec

DEFAULT_SIZES = "8,1K,4K,32K,64K,128K,512K,1M"
LATENCY_SIZES = "8,1K,4K,32K,128K"
RUN_S = 1.0
CONNECTIONS_MAX = 4096  # harp-perf's
SOCKET, SOCKET_BEST = "socket", "socket-best"
PERF, PLUGIN = "harp-perf", "libnccl-net.so"
_SENT, _CLOCK, _SIDES, _PLACE = "Traffic", "Timed run", "Sides", "Where ranks run"

Cores = Annotated[
    str | None,
    typer.Option(
        help="Keep ranks to these cores in turn, as 0,1; make a run again beside which a cache line took "
        "more than twice the least time between the first two.",
        rich_help_panel=_PLACE,
    ),
]
PlotFile = Annotated[Path | None, typer.Option("--plot", help="Draw the results: FILE.png.")]


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
    """How much of what size is sent."""

    sizes: Annotated[
        str | None,
        typer.Option(help="Message sizes, as 8,4K,1M; else those that NCCL sends.", rich_help_panel=_SENT),
    ] = None
    time_s: Annotated[
        float | None,
        typer.Option(
            "--time",
            metavar="S",
            min=0.01,
            help=f"Seconds of each run: {RUN_S:g}, or by the clock until {AFTER_S:g} s past the last fault.",
            rich_help_panel=_SENT,
        ),
    ] = None
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each side: 5, or 1 of a side alone.", rich_help_panel=_SENT),
    ] = None
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Verify every byte.", rich_help_panel=_SENT)
    ] = True


@dataclasses.dataclass(frozen=True)
class Traffic(Amount):
    """What harp-perf sends."""

    mode: Annotated[Mode, typer.Option(help="Who sends to whom.", rich_help_panel=_SENT)] = Mode.STREAM
    connections: Annotated[
        int,
        typer.Option(
            min=1,
            max=CONNECTIONS_MAX,
            help=f"Connections per direction, {CONNECTIONS_MAX} at most.",
            rich_help_panel=_SENT,
        ),
    ] = 1
    inflight: Annotated[
        int, typer.Option(min=1, max=32, help="Messages in flight.", rich_help_panel=_SENT)
    ] = 8
    wait_sent: Annotated[
        bool,
        typer.Option(
            "--wait-sent",
            help="With --mode pingpong: wait until a send is done before the receive is posted.",
            rich_help_panel=_SENT,
        ),
    ] = False
    by_clock: Annotated[
        bool,
        typer.Option(
            "--by-clock",
            help="Run one size once for --time, whatever fails, and show the rate over time, how it is "
            "shared among connections, and with --mode incast the time of a message.",
            rich_help_panel=_CLOCK,
        ),
    ] = False

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
    """Which plugins are measured, and their variables."""

    plugin: Annotated[
        str | None,
        typer.Option(
            help="Measure this plugin's file, or `socket`, instead of HARP.", rich_help_panel=_SIDES
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=VALUE for the plugin, as HARP_DRIVER=udp; repeatable.", rich_help_panel=_SIDES
        ),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(
            metavar="socket|socket-best|FILE",
            help="Alternate with NCCL's own sockets (fetches a 300 MB wheel once), with these and their best "
            "counts of threads and sockets, or with another plugin.",
            rich_help_panel=_SIDES,
        ),
    ] = None
    against_env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the other plugin; repeatable.", rich_help_panel=_SIDES),
    ] = None

    def variables(self) -> tuple[dict[str, str], dict[str, str]]:
        """Return the variables of both sides."""
        ours, theirs = (
            dict(parse_assignment(word) for word in words or []) for words in (self.env, self.against_env)
        )
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
    """Where on this machine: in two namespaces unless something else is chosen."""

    ranks: Ranks = 2
    lab: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Run on the hosts of this lab of `harpctl lab up`.", rich_help_panel=_PLACE
        ),
    ] = None
    loopback: Annotated[
        bool,
        typer.Option(
            "--loopback", help="Run processes over loopback; needs no root.", rich_help_panel=_PLACE
        ),
    ] = False
    cores: Cores = None

    def pinned(self) -> tuple[int, ...]:
        """Return the cores that ranks keep to."""
        return parse_cores(self.cores, available_cores()) if self.cores is not None else ()

    @contextlib.contextmanager
    def open(self) -> Iterator[Opened]:
        """Provide hosts, a line that describes them, and notes; loopback where no namespaces can be made."""
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
    """Where harp-perf runs: also on other hosts."""

    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "-H",
            "--hosts",
            metavar="HOSTS",
            help="Run on these hosts over ssh: host1,user@host2, gpu[1-8,11] or @FILE.",
            rich_help_panel=_PLACE,
        ),
    ] = None
    ifname: Annotated[
        str, typer.Option(help="The interfaces to use on these hosts.", rich_help_panel=_PLACE)
    ] = ""

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
    for option, is_given in beside.items():
        if cores is not None and is_given:
            raise HarpError(
                f"--cores does not take {option}.",
                "It is for counted runs in the lab or over loopback, not for hosts over ssh; --rps places "
                "ranks too.",
                ExitCode.USAGE,
            )
