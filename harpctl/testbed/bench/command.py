# SPDX-License-Identifier: Apache-2.0
"""`harpctl bench`: build the lab or take hosts, measure, print the table, draw it, write it as JSON."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import platform
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harpctl.build_info import built_file
from harpctl.confs.table import VARIABLES
from harpctl.console import Console
from harpctl.errors import ExitCode, HarpError
from harpctl.hints import given_options
from harpctl.plotting import require_plot
from harpctl.ssh import parse_hosts
from harpctl.testbed.bench.baseline import BEST_OF, socket_baseline
from harpctl.testbed.bench.cores import (
    OpenWatch,
    available_cores,
    core_siblings,
    near_cores,
    parse_cores,
    read_latency_ns,
    watch_opener,
)
from harpctl.testbed.bench.failover import print_timed_runs
from harpctl.testbed.bench.failure import parse_failure
from harpctl.testbed.bench.hosts import LabHosts, LoopbackHosts, Program, SshHosts
from harpctl.testbed.bench.measure import Side, Step, measure, setting_text, steps_total
from harpctl.testbed.bench.nccl_command import (
    PROGRAM,
    NcclOptions,
    print_nccl,
    require_right,
    run_nccl_bench,
)
from harpctl.testbed.bench.nccl_run import OPERATIONS, REDUCTIONS
from harpctl.testbed.bench.nccl_wheel import NEWEST
from harpctl.testbed.bench.perf import Mode, PerfJob
from harpctl.testbed.bench.plot import plot, plot_timed_runs
from harpctl.testbed.bench.report import document, print_measured
from harpctl.testbed.bench.resources import (
    measure_resources,
    parse_peers,
    resources_steps,
    resources_table,
)
from harpctl.testbed.bench.sizes import (
    parse_assignment,
    parse_sizes,
)
from harpctl.testbed.bench.suite_command import SuiteOptions, make_bench, run_suite
from harpctl.testbed.bench.timed import (
    DEFAULT_SIZE_BYTES,
    Opened,
    OpenHosts,
    TimedJob,
    make_timed_runs,
    timed_document,
    timed_job,
)
from harpctl.testbed.lab.lab import Lab
from harpctl.testbed.lab.numbers import (
    parse_caps,
    parse_enis,
    parse_loss,
    parse_police,
)
from harpctl.testbed.lab.options import (
    LAB,
    BigTcp,
    Cap,
    Congestion,
    Enis,
    FlowCap,
    Loss,
    Mtu,
    OffloadBy,
    Police,
    PoliceBurst,
    QueueUs,
    SubnetsOf,
    TcpBuffer,
)
from harpctl.testbed.lab.plan import RPS_CORES_MAX, LabSpec, Offload, Subnets, plan_build
from harpctl.units import short_size

DEFAULT_SIZES = "8,1K,4K,32K,64K,128K,512K,1M"
LATENCY_SIZES = "8,1K,4K,32K,128K"
CONNECTIONS_MAX = 4096  # harp-perf's
PATHS = VARIABLES["HARP_PATHS"]
DEFAULT_INFLIGHT = 8
SOCKET = "socket"
RUNS_ALONE = 1
RUNS_AGAINST = 5
SUITE_RANKS_MAX = 4
ONLY_WITH_ALL = ("--quick", "--only", "--markdown")
BESIDE_ALL = {"--all", "--json", "--plot", "--cores", "--perf", *ONLY_WITH_ALL}


@contextlib.contextmanager
def _progress(console: Console, total: int) -> Iterator[Step]:
    """Show a bar on a terminal; nothing in a log."""
    if not console.is_terminal:
        yield lambda _text: None
        return
    columns = (TextColumn("{task.description:<40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=total, completed=-1)

        def step(text: str) -> None:
            progress.update(task, description=text, advance=1)

        yield step


@contextlib.contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP unwind like Ctrl-C, so that the lab is taken down."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    handled = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in handled]
    try:
        yield
    finally:
        for number, handler in zip(handled, before, strict=True):
            signal.signal(number, handler)


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


def build_side(plugin: str | None, perf: Path, env: Sequence[str], *, best: bool = False) -> Side:
    """Turn what the user named, a file or `socket`, into a side."""
    own = dict(parse_assignment(word) for word in env)
    if plugin == SOCKET:
        file, needed = socket_baseline()
        return Side("NCCL Socket", Program(perf, file, {**needed, **own}), BEST_OF if best else ({},))
    if best:
        raise HarpError("--against-best is for `--against socket`.", "Add --against socket.", ExitCode.USAGE)
    file = find_program(Path(plugin) if plugin else None, "libnccl-net.so")
    return Side(file.stem if plugin else "HARP", Program(perf, file, own))


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


def _default_sizes(mode: Mode, *, by_clock: bool) -> str:
    if by_clock:
        return short_size(DEFAULT_SIZE_BYTES)
    return LATENCY_SIZES if mode is Mode.PINGPONG else DEFAULT_SIZES


def _own_env(driver: str | None, engine: str | None, paths: int | None, env: Sequence[str]) -> list[str]:
    chosen = [("HARP_DRIVER", driver), ("HARP_ENGINE", engine), ("HARP_PATHS", paths)]
    return [f"{name}={value}" for name, value in chosen if value] + list(env)


@contextlib.contextmanager
def _open_hosts(
    spec: LabSpec,
    given: Sequence[str],
    ifname: str,
    *,
    loopback: bool,
    cores: Sequence[int],
) -> Iterator[Opened]:
    """Provide the hosts, a line that describes them, and notes."""
    if given:
        names = parse_hosts(given)
        if len(names) < 2:
            raise HarpError("A measurement takes two hosts at least.", "-H gpu1,gpu2", ExitCode.USAGE)
        with SshHosts(names, ifname) as hosts:
            yield hosts, f"{len(names)} hosts over ssh: {', '.join(names)}", []
    elif loopback:
        yield LoopbackHosts(spec.hosts, cores), f"{spec.hosts} processes over the loopback interface", []
    else:
        with Lab(spec) as lab:
            yield LabHosts(lab, cores), f"lab: {spec.describe()}", lab.notes


def _write_json(target: str, content: bytes) -> None:
    if target == "-":
        sys.stdout.write(content.decode())
        sys.stdout.flush()
        return
    try:
        Path(target).write_bytes(content)
    except OSError as error:
        raise HarpError(
            f"{target} can't be written: {error.strerror}.", "Name a file that you may write."
        ) from None


@dataclasses.dataclass(frozen=True)
class _Output:
    """Where the results go besides the table."""

    json: str | None
    plot: Path | None

    def write(self, content: bytes) -> bool:
        """Write the JSON where it is wanted; return whether standard output is free for a table."""
        if self.json:
            _write_json(self.json, content)
        return self.json != "-"


def _run_by_clock(sides: Sequence[Side], what: TimedJob, open_hosts: OpenHosts, output: _Output) -> None:
    """Run, print, write and draw; an error if the first side failed, after all of that."""
    with interrupted_by_signals(), _progress(Console(stderr=True), len(sides)) as step:
        timed_runs, place, notes = make_timed_runs(sides, what, open_hosts, step)
    about = what.describe()
    if output.write(timed_document(place, what, sides, timed_runs)):
        print_timed_runs(Console(), timed_runs, [place, about, *notes, *_variables(sides)])
    if output.plot:
        plot_timed_runs(output.plot, f"{about}\n{place}", timed_runs)
    require_right_bytes(timed_runs[0].wrong)
    if not timed_runs[0].ended_well:
        raise HarpError(f"{timed_runs[0].name} failed.", "The notes of the run have the reason.")


def _run_counted(
    sides: Sequence[Side],
    job: PerfJob,
    runs: int,
    open_hosts: OpenHosts,
    open_watch: OpenWatch,
    output: _Output,
) -> None:
    """Measure each size as often as requested, print, write and draw."""
    total = steps_total(sides, job, runs)
    with (
        interrupted_by_signals(),
        open_hosts() as (where, place, notes),
        _progress(Console(stderr=True), total) as step,
    ):
        watch = open_watch(len(sides) * len(job.sizes_bytes) * runs)
        measured = measure(where, sides, job, runs, step, watch=watch)
    if output.write(document(place, job, runs, sides, measured, watch.figures())):
        about = [*watch.notes(), *notes, *_variables(sides)]
        print_measured(Console(), place, job, runs, measured, about)
    if output.plot:
        named = list(zip(measured.names, measured.rows, strict=True))
        plot(output.plot, f"{job.mode}, {place}", job.mode, named)
    require_right_bytes(sum(row.wrong or 0 for rows in measured.rows for row in rows))


def _plugin_file(given: str | None) -> Path | None:
    """Resolve what the user named for a side of real NCCL; None stands for NCCL's own sockets."""
    return None if given == SOCKET else find_program(Path(given) if given else None, "libnccl-net.so")


def _refuse_with(chosen: str, given: dict[str, bool], hint: str = "Leave out one of the two.") -> None:
    for option, is_given in given.items():
        if is_given:
            raise HarpError(f"{chosen} does not take {option}.", hint, ExitCode.USAGE)


def _read_cores(text: str | None, beside: dict[str, bool]) -> tuple[int, ...]:
    """Read --cores; not beside what places ranks itself, and for counted runs only."""
    if text is None:
        return ()
    hint = (
        "It is for counted runs in the lab or over loopback, not for hosts over ssh; --rps places ranks too."
    )
    _refuse_with("--cores", beside, hint)
    return parse_cores(text, available_cores())


def _run_nccl(
    options: NcclOptions, spec: LabSpec, open_watch: OpenWatch, output: _Output, *, loopback: bool
) -> None:
    """Run official NCCL over both sides in turns, print and write."""
    if platform.machine() != "x86_64":
        raise HarpError(
            f"--nccl needs an x86-64 machine; this one is {platform.machine()}.",
            "Without it, `harpctl bench` measures the plugin alone.",
            ExitCode.MISSING,
        )
    console = Console(stderr=True)
    with interrupted_by_signals():
        measured, content, notes = run_nccl_bench(
            options,
            spec,
            find_program(None, PROGRAM),
            loopback=loopback,
            progress=lambda total: _progress(console, total),
            open_watch=open_watch,
        )
    if output.write(content):
        print_nccl(measured, notes)
    require_right(measured)


def _check_suite_words(given: Sequence[str], *, is_suite: bool) -> None:
    """Raise HarpError for what does not go with --all, or only with it."""
    if is_suite:
        _refuse_with("--all", {name: name not in BESIDE_ALL for name in given}, "Leave it out.")
    for name in ONLY_WITH_ALL:
        if name in given and not is_suite:
            raise HarpError(f"{name} is for --all.", "Add --all.", ExitCode.USAGE)


def _check_words(mode: Mode, *, wait_sent: bool, is_for_lab: bool, is_elsewhere: bool) -> None:
    """Raise HarpError for options that do not go together."""
    if is_for_lab and is_elsewhere:
        raise HarpError(
            "--fail, --beside-tcp and --unprivileged work in the lab only.",
            "Leave out --hosts and --loopback.",
            ExitCode.USAGE,
        )
    if wait_sent and mode is not Mode.PINGPONG:
        raise HarpError("--wait-sent is for --mode pingpong.", "Add --mode pingpong.", ExitCode.USAGE)


def _run_resources(peers: Sequence[int], program: Program) -> None:
    """Measure what a process takes, and print a table."""
    with interrupted_by_signals(), _progress(Console(stderr=True), resources_steps(peers)) as step:
        taken = measure_resources(program, peers, step)
    typer.echo(resources_table(taken))


def _run_all(options: SuiteOptions, perf: Path | None, cores: str | None) -> None:
    """Run the whole suite on given cores, or on near ones."""
    options.check()
    program = find_program(perf, "harp-perf")
    pinned = _read_cores(cores, {}) or near_cores(
        available_cores(), SUITE_RANKS_MAX, lambda a, b: read_latency_ns(program, (a, b)), core_siblings
    )
    console = Console(stderr=True)
    with interrupted_by_signals():
        bench = make_bench(
            program,
            find_program(None, "libnccl-net.so"),
            lambda: find_program(None, PROGRAM),
            pinned,
            is_quick=options.is_quick,
        )
        run_suite(
            bench, options, watch_opener(pinned, lambda: program), lambda total: _progress(console, total)
        )


def _variables(sides: Sequence[Side]) -> list[str]:
    """Return a note for each side whose variables the user has set."""
    given = ((side.name, {**side.program.env}) for side in sides)
    shown = ((name, setting_text({k: v for k, v in env.items() if k != "NCCL_LIB"})) for name, env in given)
    return [f"{name} with {text}" for name, text in shown if text != "default"]


def require_right_bytes(wrong: int) -> None:
    """Raise HarpError if messages were wrong."""
    if wrong:
        raise HarpError(f"{wrong} messages arrived with wrong bytes.", exit_code=ExitCode.WRONG_DATA)


_SUITE, _CLOCK, _SENT, _SIDES, _NCCL, _PLACE, _OUTPUT = (
    "Everything",
    "Timed run",
    "Traffic",
    "Sides",
    "Real NCCL",
    "Hosts instead of the lab",
    "Output",
)


def bench(
    context: typer.Context,
    mode: Annotated[Mode, typer.Option(help="Who sends to whom.", rich_help_panel=_SENT)] = Mode.STREAM,
    sizes: Annotated[
        str | None,
        typer.Option(help="Message sizes, as 8,4K,1M; else those that NCCL sends.", rich_help_panel=_SENT),
    ] = None,
    connections: Annotated[
        int,
        typer.Option(
            min=1,
            max=CONNECTIONS_MAX,
            help=f"Connections per direction, {CONNECTIONS_MAX} at most.",
            rich_help_panel=_SENT,
        ),
    ] = 1,
    inflight: Annotated[
        int, typer.Option(min=1, max=32, help="Messages in flight.", rich_help_panel=_SENT)
    ] = DEFAULT_INFLIGHT,
    wait_sent: Annotated[
        bool,
        typer.Option(
            "--wait-sent",
            help="With --mode pingpong: wait until a send is done before the receive is posted.",
            rich_help_panel=_SENT,
        ),
    ] = False,
    time_s: Annotated[
        float, typer.Option("--time", min=0.01, help="Seconds per size and run.", rich_help_panel=_SENT)
    ] = 1.0,
    iters: Annotated[
        int | None, typer.Option(min=1, help="Messages per size instead of a time.", rich_help_panel=_SENT)
    ] = None,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Runs per size: 1, or 5 with --against.", rich_help_panel=_SENT)
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Verify every byte.", rich_help_panel=_SENT)
    ] = True,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.1,
            help="Run one size once for that many seconds, whatever fails, and show the rate over time, how "
            "it is shared among connections, and with --mode incast the time of a message.",
            rich_help_panel=_CLOCK,
        ),
    ] = None,
    fail: Annotated[
        list[str] | None,
        typer.Option(
            help="Make an ENI of the lab fail: [HOST/]eniN:KIND@AT[+FOR], in seconds; KIND is down, unplug, "
            "address, blackhole, silent-in, silent-out, drop=SHARE or cap=MBPS; repeatable.",
            rich_help_panel=_CLOCK,
        ),
    ] = None,
    beside_tcp: Annotated[
        bool,
        typer.Option(
            "--beside-tcp", help="Run a flow of kernel TCP at the same time.", rich_help_panel=_CLOCK
        ),
    ] = False,
    all_works: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Measure all kinds of work beside NCCL's sockets, half an hour, and print one table of "
            "speed-ups; with --json FILE a second call goes on where the first ended.",
            rich_help_panel=_SUITE,
        ),
    ] = False,
    resources: Annotated[
        str | None,
        typer.Option(
            help="Measure files, tracked flows, threads and memory of a process to which so many peers send "
            "over 1, 4 and 8 interfaces, as 1,8,64,256.",
            metavar="PEERS",
            rich_help_panel=_SUITE,
        ),
    ] = None,
    is_quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="With --all: single and short runs, not made again; a few minutes.",
            rich_help_panel=_SUITE,
        ),
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            help="With --all: only rows with this text in their group or name.",
            metavar="TEXT",
            rich_help_panel=_SUITE,
        ),
    ] = None,
    markdown_file: Annotated[
        Path | None,
        typer.Option(
            "--markdown",
            help="With --all: write the table to a new FILE, or between the marks of one that has them.",
            rich_help_panel=_SUITE,
        ),
    ] = None,
    plugin: Annotated[
        str | None,
        typer.Option(
            help="Measure this plugin's file, or `socket`, instead of HARP.", rich_help_panel=_SIDES
        ),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option(help="NAME=VALUE for the plugin; repeatable.", rich_help_panel=_SIDES)
    ] = None,
    driver: Annotated[str | None, typer.Option(help="Sets HARP_DRIVER.", rich_help_panel=_SIDES)] = None,
    engine: Annotated[str | None, typer.Option(help="Sets HARP_ENGINE.", rich_help_panel=_SIDES)] = None,
    paths: Annotated[
        int | None,
        typer.Option(min=PATHS.min, max=PATHS.max, help="Sets HARP_PATHS.", rich_help_panel=_SIDES),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Alternate with this plugin; `socket` is NCCL's own (fetches a 300 MB wheel once).",
            rich_help_panel=_SIDES,
        ),
    ] = None,
    against_env: Annotated[
        list[str] | None,
        typer.Option(help="NAME=VALUE for the other plugin; repeatable.", rich_help_panel=_SIDES),
    ] = None,
    against_best: Annotated[
        bool,
        typer.Option(
            "--against-best",
            help="Measure socket with its best counts of threads and sockets.",
            rich_help_panel=_SIDES,
        ),
    ] = False,
    abi: Annotated[
        int | None,
        typer.Option(min=4, help="Drive this ABI version, not the newest.", rich_help_panel=_SIDES),
    ] = None,
    nccl: Annotated[
        bool,
        typer.Option(
            "--nccl",
            help="Official NCCL without a GPU, alternating HARP and its own sockets (fetches a 300 MB "
            "wheel once).",
            rich_help_panel=_NCCL,
        ),
    ] = False,
    op: Annotated[
        str, typer.Option(help=f"The operation: {', '.join(OPERATIONS)}.", rich_help_panel=_NCCL)
    ] = OPERATIONS[0],
    type_name: Annotated[
        str, typer.Option("--type", help="The elements' type, as nccl-tests has it.", rich_help_panel=_NCCL)
    ] = "float",
    redop: Annotated[
        str, typer.Option(help=f"The reduction: {', '.join(REDUCTIONS)}.", rich_help_panel=_NCCL)
    ] = REDUCTIONS[0],
    algo: Annotated[
        str | None, typer.Option(help="Sets NCCL_ALGO, else NCCL chooses: Ring, Tree.", rich_help_panel=_NCCL)
    ] = None,
    proto: Annotated[
        str | None,
        typer.Option(help="Sets NCCL_PROTO, else NCCL chooses: Simple, LL, LL128.", rich_help_panel=_NCCL),
    ] = None,
    settle_s: Annotated[
        float,
        typer.Option(
            "--settle",
            min=0,
            help="Send the largest size for so many seconds first: what connections learn is known then.",
            rich_help_panel=_NCCL,
        ),
    ] = 0.0,
    nccl_version: Annotated[
        str, typer.Option(help="The release of NCCL, fetched from PyPI once.", rich_help_panel=_NCCL)
    ] = NEWEST,
    nccl_lib: Annotated[
        Path | None,
        typer.Option(help="Use this libnccl.so.2 of NVIDIA's wheels, fetch none.", rich_help_panel=_NCCL),
    ] = None,
    ranks: Annotated[int, typer.Option(min=2, help="Hosts, one rank each.", rich_help_panel=LAB)] = 2,
    enis: Enis = "1",
    switch: Annotated[
        bool,
        typer.Option(
            "--switch", help="Join hosts by a switch, also where there are two.", rich_help_panel=LAB
        ),
    ] = False,
    subnets: SubnetsOf = Subnets.EACH,
    mtu: Mtu = 1500,
    cap: Cap = None,
    flow_cap: FlowCap = None,
    queue_us: QueueUs = None,
    police: Police = False,
    police_burst: PoliceBurst = None,
    loss: Loss = "0",
    offload: OffloadBy = Offload.STOCK,
    no_offload: Annotated[
        bool, typer.Option("--no-offload", help="Short for --offload off.", rich_help_panel=LAB)
    ] = False,
    rps: Annotated[
        bool,
        typer.Option(
            "--rps",
            help="Handle what arrives at a host on a core of its own; ranks keep off it.",
            rich_help_panel=LAB,
        ),
    ] = False,
    unprivileged: Annotated[
        bool,
        typer.Option(
            "--unprivileged",
            help="Ranks without capabilities, and with the default limits of socket buffers.",
            rich_help_panel=LAB,
        ),
    ] = False,
    congestion: Congestion = "cubic",
    tcp_buffer: TcpBuffer = None,
    big_tcp: BigTcp = False,
    show_lab: Annotated[
        bool, typer.Option("--show-lab", help="Print the lab's commands and stop.", rich_help_panel=LAB)
    ] = False,
    loopback: Annotated[
        bool,
        typer.Option(
            "--loopback", help="Run processes over loopback; needs no root.", rich_help_panel=_PLACE
        ),
    ] = False,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "-H",
            "--hosts",
            metavar="HOSTS",
            help="Run on these hosts over ssh: host1,user@host2, gpu[1-8,11] or @FILE.",
            rich_help_panel=_PLACE,
        ),
    ] = None,
    ifname: Annotated[str, typer.Option(help="The interfaces to use on them.", rich_help_panel=_PLACE)] = "",
    cores: Annotated[
        str | None,
        typer.Option(
            help="Keep ranks to these cores in turn, as 0,1; make a run again beside which a cache line took "
            "more than twice the least time between the first two.",
            rich_help_panel=_PLACE,
        ),
    ] = None,
    perf: Annotated[Path | None, typer.Option(help="Run this harp-perf.", rich_help_panel=_OUTPUT)] = None,
    plot_file: Annotated[
        Path | None, typer.Option("--plot", help="Draw the results: FILE.png.", rich_help_panel=_OUTPUT)
    ] = None,
    json_file: Annotated[
        str | None,
        typer.Option(
            "--json", help="Write JSON to FILE, or to - instead of the table.", rich_help_panel=_OUTPUT
        ),
    ] = None,
) -> None:
    """Measure HARP, or any NCCL net plugin, without a GPU; beside another one with --against."""
    _check_suite_words([name for name, _words in given_options(context)], is_suite=all_works)
    if all_works:
        _run_all(SuiteOptions(is_quick, only, json_file, markdown_file, plot_file), perf, cores)
        return
    if resources is not None:
        others = {name for name, _words in given_options(context)} - {"--resources", "--plugin", "--perf"}
        _refuse_with("--resources", dict.fromkeys(sorted(others), True), "Leave it out.")
        file = find_program(Path(plugin) if plugin else None, "libnccl-net.so")
        _run_resources(parse_peers(resources), Program(find_program(perf, "harp-perf"), file))
        return
    most_enis, host_enis = parse_enis(enis, ranks)
    spec = LabSpec(
        hosts=ranks,
        enis=most_enis,
        host_enis=host_enis,
        switch=switch,
        subnets=subnets,
        mtu_bytes=mtu,
        offload=Offload.OFF if no_offload else offload,
        cap_mbps=parse_caps(cap),
        flow_cap_mbps=flow_cap,
        queue_us=queue_us,
        police_burst_kib=parse_police(police=police, burst_kib=police_burst),
        loss_share=parse_loss(loss),
        congestion=congestion,
        tcp_buffer_kib=tcp_buffer,
        big_tcp=big_tcp,
        rps_cores=min(os.cpu_count() or 1, RPS_CORES_MAX) if rps else 0,
        unprivileged=unprivileged,
    )
    spec.check()
    if show_lab:
        for command in plan_build(spec, "lab-"):
            typer.echo(str(command))
        return
    by_clock = seconds is not None or bool(fail) or beside_tcp
    elsewhere = {"--hosts": bool(hosts), "--rps": rps, "a run by the clock": by_clock}
    pinned = _read_cores(cores, elsewhere)
    open_watch = watch_opener(pinned, lambda: find_program(perf, "harp-perf"))
    if nccl:
        _refuse_with(
            "--nccl",
            {
                "--mode": mode is not Mode.STREAM,
                "--connections": connections != 1,
                "--inflight": inflight != DEFAULT_INFLIGHT,
                "--wait-sent": wait_sent,
                "--seconds": seconds is not None,
                "--fail": bool(fail),
                "--beside-tcp": beside_tcp,
                "--abi": abi is not None,
                "--unprivileged": unprivileged,
                "--hosts": bool(hosts),
                "--plot": plot_file is not None,
                "--perf": perf is not None,
                "--enis with a list": bool(host_enis),
            },
        )
        own = _own_env(driver, engine, paths, env or [])
        options = NcclOptions(
            op=op,
            type=type_name,
            redop=redop,
            sizes_bytes=parse_sizes(sizes) if sizes else (),
            time_s=time_s,
            iterations=iters,
            settle_s=settle_s,
            runs=runs or RUNS_AGAINST,
            check=check,
            version=nccl_version,
            algo=algo,
            proto=proto,
            library=find_program(nccl_lib, "libnccl.so.2") if nccl_lib else None,
            plugin=_plugin_file(plugin),
            is_own=plugin is None,
            env=dict(parse_assignment(word) for word in own),
            against=_plugin_file(against or SOCKET),
            against_env=dict(parse_assignment(word) for word in against_env or []),
            best=against_best,
            cores=pinned,
        )
        _run_nccl(options, spec, open_watch, _Output(json_file, None), loopback=loopback)
        return
    failures = [parse_failure(text, spec) for text in fail or []]
    _check_words(
        mode,
        wait_sent=wait_sent,
        is_for_lab=bool(failures or beside_tcp or unprivileged),
        is_elsewhere=bool(hosts or loopback),
    )
    job = PerfJob(
        mode=mode.value,
        sizes_bytes=parse_sizes(sizes or _default_sizes(mode, by_clock=by_clock)),
        connections=connections,
        inflight=inflight,
        check=check,
        wait_sent=wait_sent,
        time_s=time_s,
        iterations=iters,
        abi=abi,
    )
    output = _Output(json_file, plot_file)
    if plot_file:
        require_plot(plot_file)
    program = find_program(perf, "harp-perf")
    sides = [build_side(plugin, program, _own_env(driver, engine, paths, env or []))]
    if against:
        sides.append(build_side(against, program, against_env or [], best=against_best))
        sides = with_distinct_names(sides)

    def open_hosts() -> contextlib.AbstractContextManager[Opened]:
        return _open_hosts(spec, hosts or [], ifname, loopback=loopback, cores=pinned)

    if by_clock:
        what = timed_job(job, seconds, failures, beside_tcp=beside_tcp)
        _run_by_clock(sides, what, open_hosts, output)
    else:
        count = runs or (RUNS_AGAINST if against else RUNS_ALONE)
        _run_counted(sides, job, count, open_hosts, open_watch, output)
