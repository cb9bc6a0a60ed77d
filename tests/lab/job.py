# SPDX-License-Identifier: Apache-2.0
"""A harp-perf job on the hosts of a lab, that tests can watch, hurt and question.

The job's ENI is eni0; the ranks meet over eni1, which few tests hurt, so that harp-perf itself can report
what happened. Every lab here therefore has two ENIs. Where a job uses all of them, its ranks meet at a
local socket.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from harpctl.host.host import Host
from harpctl.stats.files import find_processes
from harpctl.stats.layout import Row
from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import fabric_name, port_name
from harplab.perf.job import PerfReport, parse_report

ENI = "eni0"
MEETING_ENI = 1
MEETING_PORT = 20500
WAIT_S = 60.0
POLL_S = 0.01
ALL_SIZES = "1,7,8,16,127,128,129,1000,4096,16384,16385,32768,32769,65536,131072,524288,1M,4M"
STATISTICS = re.compile(r"statistics:((?: \w+ \d+)+)")
DRIVER = re.compile(r": driver ([a-z0-9+ -]+?)(?: \((queues? [0-9,-]+)\))?(?::.*)?, \d+ path\(s\) from UDP port")
EXIT_PLUGIN = 3
# A job that moves data until it is finished: a job of fixed duration may end before a busy machine has done
# to it what the test wants.
UNTIL_FINISHED = ("--time", "100", "--interval-ms", "10", "--warmup", "0")


def _is_setting(name: str) -> bool:
    """Return whether a variable would affect a rank; the fixture `driver` sets HARP_DRIVER for it."""
    return name.startswith(("HARP_", "NCCL_")) and name != "HARP_DRIVER"


def poll_until(what: str, poll: Callable[[], bool], wait_s: float = WAIT_S) -> None:
    """Poll until it returns true."""
    deadline = time.monotonic() + wait_s
    while not poll():
        assert time.monotonic() < deadline, f"not within {wait_s} s: {what}"
        time.sleep(POLL_S)


def statistics_of(log: str) -> Counter[str]:
    """Add up what the engines counted; they log it when they close."""
    total: Counter[str] = Counter()
    for match in STATISTICS.finditer(log):
        words = match[1].split()
        total.update({name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)})
    return total


def received_by_name(pid: int) -> dict[str, int]:
    """Read how many bytes each interface has received that a process sees."""
    lines = Path(f"/proc/{pid}/net/dev").read_text().splitlines()[2:]
    parts = [line.partition(":") for line in lines]
    return {name.strip(): int(figures.split()[0]) for name, _, figures in parts}


def received_bytes(pid: int, ifname: str = ENI) -> int:
    """Read what an interface has received that a process sees; 0 where there is none of that name."""
    return received_by_name(pid).get(ifname, 0)


class Meter:
    """Measures what the ranks of a job receive, headers included, from call to call."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._samples: list[tuple[float, int]] = []

    def mbps(self) -> float:
        """Return Mbit/s over the last second, or over the time so far as if it were a second."""
        now = time.monotonic()
        enis = [self._job.received_by_eni(rank) for rank in range(self._job.count)]
        self._samples.append((now, sum(sum(counts.values()) for counts in enis)))
        while len(self._samples) > 1 and self._samples[1][0] <= now - 1:
            self._samples.pop(0)
        begun, moved = self._samples[0]
        return (self._samples[-1][1] - moved) * 8 / 1e6 / max(now - begun, 1)


class Job:
    """Ranks of harp-perf, one per host or on the hosts given; a context manager that leaves none running."""

    def __init__(
        self,
        lab: Lab,
        plugin: Path,
        *,
        mode: str = "stream",
        sizes: str = "64K",
        words: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        rank_env: Sequence[Mapping[str, str]] = (),
        ifname: str = ENI,
        ranks: int | None = None,
        hosts: Sequence[int] = (),
        port: int = MEETING_PORT,
        meeting: Path | None = None,
        start_by: Sequence[str] = (),
    ) -> None:
        self.lab = lab
        self.ifname = ifname
        self.count = ranks or len(hosts) or len(lab.hosts)
        self._hosts = list(hosts) or list(range(self.count))
        self._start_by = list(start_by)
        self._until_finished = tuple(words[: len(UNTIL_FINISHED)]) == UNTIL_FINISHED
        self._argv = [
            str(plugin.parent / "harp-perf"),
            "--plugin",
            str(plugin),
            "--mode",
            mode,
            "--sizes",
            sizes,
        ]
        self._argv += ["--log", "info", *words, "--nranks", str(self.count)]
        self._argv += ["--rendezvous", str(meeting or f"{lab.address(0, MEETING_ENI)}:{port}")]
        own = [rank_env[rank] if rank < len(rank_env) else {} for rank in range(self.count)]
        common = {} if env and "HARP_CONF_DIR" in env else {"HARP_IFNAME": f"={ifname}"}
        common["HARP_SHARED_CLOCK"] = "on"  # one machine
        common |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # as a launcher says of one rank on a host
        self._envs = [{**common, **(env or {}), **own[rank]} for rank in range(self.count)]
        self._stack = contextlib.ExitStack()
        self.ranks: list[subprocess.Popen[bytes]] = []
        self._logs: list[Path] = []
        self._report = Path()

    def __enter__(self) -> Job:
        import tempfile

        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            self._report = folder / "report"
            stack.callback(self._end_ranks)
            for rank in range(self.count):
                inherited = [f"--unset={name}" for name in os.environ if _is_setting(name)]
                env = [f"{name}={value}" for name, value in self._envs[rank].items()]
                argv = [*self._start_by, "env", *inherited, *env, *self._argv, "--rank", str(rank)]
                argv += ["--json", "-"] if rank == 0 else []
                self._logs.append(folder / f"log{rank}")
                out = stack.enter_context((self._report if rank == 0 else Path("/dev/null")).open("wb"))
                log = stack.enter_context(self._logs[rank].open("wb"))
                command = self.lab.command(self._hosts[rank], argv)
                self.ranks.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=log))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            for rank in range(self.count):
                print(f"---- rank {rank}, exit code {self.ranks[rank].poll()} ----\n{self.log(rank)}")
        self._stack.close()

    def _end_ranks(self) -> None:
        for child in self.ranks:
            if child.poll() is None:
                child.kill()
            child.wait()

    def log(self, rank: int) -> str:
        """Return what the rank has logged so far."""
        return self._logs[rank].read_text(errors="replace")

    def warns(self, rank: int) -> list[str]:
        """Return the WARN lines of a rank so far."""
        return [line for line in self.log(rank).splitlines() if line.startswith("WARN ")]

    def statistics(self) -> Counter[str]:
        """Add up what the engines of all ranks counted; they log it when they close."""
        total: Counter[str] = Counter()
        for rank in range(self.count):
            total.update(statistics_of(self.log(rank)))
        return total

    def statistics_of(self, rank: int) -> Counter[str]:
        """Return what the engines of one rank counted."""
        return statistics_of(self.log(rank))

    def tables(self, rank: int) -> Mapping[str, Sequence[Row]]:
        """Return the tables of a running rank's statistics."""
        # A process that had the same number before it may have left a file.
        (process,) = (one for one in find_processes(Host(), self.ranks[rank].pid).processes if one.state != "gone")
        return process.page.tables

    def driver_mode(self, rank: int) -> str:
        """Return the packet driver that a rank's engine has logged."""
        found = DRIVER.search(self.log(rank))
        return found[1] if found else ""

    def queues(self, rank: int) -> str:
        """Return the queues that a rank's driver polls, as in "queues 0-3"."""
        found = DRIVER.search(self.log(rank))
        return (found[2] or "") if found else ""

    def received_bytes(self, rank: int) -> int:
        """Read what the interface of a rank has received."""
        return received_bytes(self.ranks[rank].pid, self.ifname)

    def received_by_eni(self, rank: int) -> dict[str, int]:
        """Read how many bytes each ENI of a rank's host has received."""
        counts = received_by_name(self.ranks[rank].pid)
        return {name: count for name, count in counts.items() if name.startswith("eni")}

    def until_moving(self, more_bytes: int = 1 << 20) -> None:
        """Wait until the job moves payload."""

        def moved(rank: int, start: int) -> bool:
            assert self.ranks[rank].poll() is None, "the job ended before it was to"
            return self.received_bytes(rank) > start + more_bytes

        starts = [self.received_bytes(rank) for rank in range(self.count)]
        poll_until("payload moves", lambda: any(moved(rank, starts[rank]) for rank in range(self.count)))

    def end(self) -> None:
        """Let a job that runs UNTIL_FINISHED come to its end."""
        for child in self.ranks:
            child.send_signal(signal.SIGUSR1)

    def wait(self, wait_s: float = WAIT_S) -> list[int]:
        """Wait until all ranks have ended; return their exit codes."""
        poll_until("all ranks end", lambda: all(child.poll() is not None for child in self.ranks), wait_s)
        return [child.returncode for child in self.ranks]

    def report(self) -> PerfReport:
        """Read rank 0's report."""
        return parse_report(self._report.read_text())

    def finish(self, wait_s: float = WAIT_S, *, may_fall_back: bool = False) -> PerfReport:
        """Wait for an orderly end with every byte right, and drivers that did not fall."""
        if self._until_finished:
            self.end()
        assert self.wait(wait_s) == [0] * self.count
        report = self.report()
        assert report.results
        windows = [result.window for result in report.results if result.window]
        assert all((window.failures, window.undelivered) == ([], 0) for window in windows)
        assert all(result.messages > 0 and result.wrong == 0 for result in report.results)
        assert not any(self.warns(rank) for rank in range(self.count))
        assert may_fall_back or not self.statistics()["driver_fallbacks"]
        return report


def gained_by_eni(job: Job, rank: int, since: dict[str, int]) -> dict[str, int]:
    """Return how many bytes each ENI of a rank's host has received since."""
    now = job.received_by_eni(rank)
    return {name: count - since[name] for name, count in now.items()}


def until_connected(job: Job) -> None:
    """Wait until the first two ranks are connected."""
    poll_until("connected", lambda: ": connected " in job.log(0) and ": connected " in job.log(1))


def until_all_moving(
    job: Job,
    rank: int,
    bytes_: int = 1 << 20,
    without: frozenset[str] = frozenset(),
) -> None:
    """Wait until every ENI of a rank, but for some, has received that much more."""
    until_connected(job)
    since = job.received_by_eni(rank)

    def moved() -> bool:
        assert job.ranks[rank].poll() is None, "the job ended before it was to"
        gained = gained_by_eni(job, rank, since)
        return all(gain > bytes_ for name, gain in gained.items() if name not in without)

    poll_until(f"payload moves over all of {sorted(since)} but {sorted(without)}", moved)


def _last_hop(lab: Lab, host: int, ifname: str) -> tuple[str, str, str]:
    """Return namespace, hook and device where packets to a host can be dropped: before AF_XDP takes them."""
    if lab.spec.switch:
        return fabric_name(lab.prefix), "egress", port_name(host, ifname)
    return lab.hosts[host], "ingress", ifname


def drop_packets(lab: Lab, host: int, rule: str, ifname: str = ENI) -> None:
    """Drop packets that arrive at a host's ENI and match a rule of nft, before anything there sees them."""
    treat_packets(lab, host, rule, "drop", ifname)


def treat_packets(lab: Lab, host: int, rule: str, statement: str, ifname: str = ENI) -> None:
    """Apply a statement of nft to packets that arrive at a host's ENI and match a rule."""
    namespace, hook, device = _last_hop(lab, host, ifname)
    text = (
        f"table netdev harp_test_{device} {{ chain drops {{\n"
        f'type filter hook {hook} device "{device}" priority 0; policy accept;\n'
        f"{rule} counter {statement}\n}}\n}}\n"
    )
    run_command(run_inside(namespace, "nft", "-f", "-", stdin=text))


def drop_no_more(lab: Lab, host: int, ifname: str = ENI) -> None:
    """Take the rules away again."""
    namespace, _, device = _last_hop(lab, host, ifname)
    run_command(run_inside(namespace, "nft", "delete", "table", "netdev", f"harp_test_{device}"))


def dropped_packets(lab: Lab, host: int, ifname: str = ENI) -> int:
    """Count what the rules of a host have dropped, or treated."""
    namespace, _, device = _last_hop(lab, host, ifname)
    listed = run_command(run_inside(namespace, "nft", "list", "table", "netdev", f"harp_test_{device}"))
    return sum(int(count) for count in re.findall(r"counter packets (\d+)", listed))


@contextlib.contextmanager
def drop_for_a_while(lab: Lab, rule: str, ifname: str = ENI) -> Iterator[None]:
    """Drop on all hosts for a while."""
    for host in range(len(lab.hosts)):
        drop_packets(lab, host, rule, ifname)
    yield
    for host in range(len(lab.hosts)):
        drop_no_more(lab, host, ifname)
