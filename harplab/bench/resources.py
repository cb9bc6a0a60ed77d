# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab resources`: what a process takes to which many peers send.

In a lab of two hosts rank 0 runs on the first and all others on the second; they send to rank 0, by the
clock, or are idle after the first message. All sleep between two looks at their connections, from the
beginning, so that hundreds of ranks share few cores as if each had its own. Rank 0 is measured STEADY_S
after all have connected: until then HARP gives up the connections that it has tried and does not use.
From then on its host tracks flows, as a firewall does, for TRACKED_S. The ranks meet at a local socket:
one file of rank 0 for each peer belongs to that.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
import msgspec

from harpctl.command_line import FILE, argument, command, json_option, option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.stats.files import find_processes
from harplab.bench.options import PERF, PLUGIN, find_program
from harplab.bench.places import LabHosts
from harplab.bench.report import show_progress
from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec, Subnets
from harplab.perf.hosts import Program
from harplab.perf.measure import Step

PEERS_MAX = 256
ENIS = (1, 4, 8)
PAUSES = ("--warmup", "1", "--pause-ms", "200")
BY_THE_CLOCK = ("--time", "3600", "--interval-ms", "1000", *PAUSES)
# Datagrams alone carry the small ones.
WORK = {
    "none": ("--sizes", "1K", "--hold", "3600", *PAUSES),
    "small": ("--sizes", "1K", *BY_THE_CLOCK),
    "large": ("--sizes", "64K", *BY_THE_CLOCK),
}
STEADY_S = 60.0  # the time after which the files and memory of a process no longer change
TRACKED_S = 120.0  # trackers forget a flow of datagrams without a packet for so long
START_S = 300.0  # hundreds of processes share few cores
POLL_S = 0.5
TRACK = "table inet harp { chain out { type filter hook output priority 0; ct state new counter; }; }\n"
MEMORY = re.compile(r"^(?:RssAnon|RssShmem):\s+(\d+) kB", re.MULTILINE)
THREADS = re.compile(r"^Threads:\s+(\d+)", re.MULTILINE)


class Taken(msgspec.Struct, frozen=True):
    """The resources that rank 0 takes."""

    peers: int
    enis: int
    work: str
    files: int
    flows: int
    threads: int
    memory_kib: int


def _measure_process(lab: Lab, pid: int) -> tuple[int, int, int, int]:
    """Return files, flows, threads and memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = THREADS.search(status)
    files = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    count = run_command(run_inside(lab.hosts[0], "cat", "/proc/sys/net/netfilter/nf_conntrack_count"))
    return files, int(count), int(found[1]) if found else 0, sum(map(int, MEMORY.findall(status)))


def _rank_words(program: Program, peers: int, work: str, meeting: str) -> list[str]:
    words = [str(program.perf), "--plugin", str(program.plugin), "--mode", "incast", *WORK[work]]
    words += ["--inflight", "1", "--no-check"]
    return [*words, "--nranks", str(peers + 1), "--rendezvous", meeting, "--timeout", f"{START_S:g}"]


@contextlib.contextmanager
def _run_ranks(
    hosts: LabHosts, program: Program, peers: int, work: str
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run rank 0 on the first host, the others on the second."""
    words = _rank_words(program, peers, work, hosts.rendezvous())
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(peers + 1):
            env = {**hosts.env(min(rank, 1)), "HARP_PEER_TIMEOUT": "120", **program.env}
            argv = hosts.command(min(rank, 1), [*words, "--rank", str(rank)], env)
            ranks.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield ranks
    finally:
        for process in ranks:
            process.kill()
        for process in ranks:
            process.wait()


def _count_sessions(pid: int) -> int:
    """Return with how many peers a process is connected, by its statistics."""
    pages = [one.page for one in find_processes(Host(), pid).processes if one.state != "gone"]
    return sum(len(page.tables["session"]) for page in pages)


def _check_alive(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    ended = [rank for rank, process in enumerate(ranks) if process.poll() is not None]
    if ended:
        raise HarpError(f"Rank {ended[0]} ended; {len(ended)} of {len(ranks)} did.")


def _wait_until_there(ranks: Sequence[subprocess.Popen[bytes]], is_there: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_S
    while not is_there():
        _check_alive(ranks)
        if time.monotonic() > deadline:
            raise HarpError(f"The ranks did not connect to each other within {START_S:g} s.")
        time.sleep(POLL_S)


def _measure_peers(program: Program, peers: int, enis: int, work: str) -> Taken:
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(LabSpec(enis=enis, subnets=Subnets.ONE)))
        ranks = stack.enter_context(_run_ranks(LabHosts(lab), program, peers, work))
        pid = ranks[0].pid
        _wait_until_there(ranks, lambda: _count_sessions(pid) == peers)
        time.sleep(STEADY_S)
        run_command(run_inside(lab.hosts[0], "nft", "-f", "-", stdin=TRACK))
        time.sleep(TRACKED_S)
        _check_alive(ranks)
        files, flows, threads, memory_kib = _measure_process(lab, pid)
    return Taken(peers, enis, work, files - peers, flows, threads, memory_kib)


def parse_peers(text: str) -> tuple[int, ...]:
    """Read a list of counts of peers."""
    words = text.split(",")
    if not all(word.isdecimal() and 1 <= int(word) <= PEERS_MAX for word in words):
        raise HarpError(f"{text!r}: expected counts from 1 to {PEERS_MAX}.", "", ExitCode.USAGE)
    return tuple(int(word) for word in words)


def resources_steps(peers: Sequence[int]) -> int:
    """Return how many jobs are run."""
    return len(ENIS) * len(peers) * len(WORK)


def measure_resources(program: Program, peers: Sequence[int], step: Step) -> list[Taken]:
    """Measure rank 0 of jobs with so many peers, over 1, 4 and 8 interfaces."""
    taken: list[Taken] = []
    for enis, many, work in itertools.product(ENIS, peers, WORK):
        step(f"{many} peers, {enis} interfaces, {work} messages")
        taken.append(_measure_peers(program, many, enis, work))
    return taken


def resources_table(taken: Sequence[Taken]) -> str:
    """Write a table of Markdown."""
    lines = [
        "| peers | interfaces | messages | files | flows | threads | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in taken:
        memory_mb = f"{one.memory_kib / 1024:.0f} MB"
        figures = (one.peers, one.enis, one.work, one.files, one.flows, one.threads, memory_mb)
        lines.append("| " + " | ".join(str(figure) for figure in figures) + " |")
    return "\n".join(lines)


@command()
@argument("peers", metavar="PEERS", help="How many peers, as 1,8,64,256.")
@option("--plugin", type=FILE, help="Measure this plugin's file instead of HARP.")
@json_option
def resources(peers: str, *, plugin: Path | None, as_json: bool) -> None:
    """Measure files, tracked flows, threads and memory of a process to which so many peers send.

    Over 1, 4 and 8 interfaces each, while nothing, small or large messages are sent.
    """
    counts = parse_peers(peers)
    program = Program(find_program(None, PERF), find_program(plugin, PLUGIN))
    with show_progress(Console(stderr=True), resources_steps(counts)) as step:
        taken = measure_resources(program, counts, step)
    if as_json:
        print_json(taken)
    else:
        click.echo(resources_table(taken))
