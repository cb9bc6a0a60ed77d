# SPDX-License-Identifier: Apache-2.0
"""Items of a release run: programs of the plugin's tests, and jobs in labs of namespaces.

Counts are of what the programs said they did. A job is checked as in the suite that its parts are from.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from harpctl.doctor.archive import read_findings
from harpctl.errors import HarpError
from harpctl.stats.layout import read_page
from harpctl.trace.rings import read_recording
from harplab.lab.lab import Lab, require_lab
from harplab.lab.spec import LabSpec, Subnets
from tests import native
from tests.conftest import BUILD_DIR
from tests.harpctl.stats.test_layout import GOOD
from tests.harpctl.test_hostile import FINDING, MANIFEST, TRACE
from tests.lab.job import Job, until_all_moving
from tests.lab.xdp import XDP
from tests.many.build import compile_program
from tests.many.fleet import Fleet
from tests.release.record import Outcome
from tests.release.runner import Item, Unavailable

PLUGIN = BUILD_DIR / "libnccl-net.so"
PROBE_SEEDS = 200  # the seeds of the simulation, to see how many a second there are
LATE_S = 300  # after its time a program counts as hanging
CORPUS_MAX = 3000  # files, before those are left out that cover nothing of their own
FLAP_MAX_S = 0.15
FLAPS_AT_ONCE = 20  # between two looks at whether everything moves
CAP_MBPS = 400.0
CONNECT_LOSS = 0.3
GROWTH_MAX_KIB = 8 << 10
SEEDS_LINE = re.compile(r"^(\d+) seeds from", re.MULTILINE)
TALLY = re.compile(r"bad checksums (?P<bad>\d+)")
DATA = re.compile(r"(?P<data>\d+) data packets, (?P<acks>\d+) acknowledgements")
EXECUTIONS = re.compile(r"^stat::number_of_executed_units:\s+(\d+)", re.MULTILINE)
COVERAGE = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
DAMAGED = re.compile(r"^(\d+) damaged packets of (\d+) bytes; (\d+) messages right", re.MULTILINE)
CRC = re.compile(r" CRC (\d+)")


def _build_targets(*words: str) -> None:
    done = native.run_make(*words)
    if done.returncode:
        raise AssertionError(done.stdout[-native.TAIL_CHARS :])


def _output_of(argv: list[str], seconds: float) -> str:
    """Run a program of the tests to its end; return what it printed."""
    done = subprocess.run(
        argv,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=seconds + LATE_S,
    )
    assert done.returncode == 0, f"{' '.join(argv)}: {done.returncode}\n{done.stdout}"
    return done.stdout


def _find_number(pattern: re.Pattern[str], text: str, group: int | str = 1) -> int:
    found = pattern.search(text)
    assert found, f"the output has no {pattern.pattern}:\n{text[-native.TAIL_CHARS :]}"
    return int(found[group])


@dataclass
class Simulation:
    """Seeds of tests/sim."""

    name = "simulation"
    what = "seeds of the simulation"
    unit = "seeds"
    target = 10_000_000
    _rate = 0.0

    def prepare(self) -> None:
        """Build it."""
        _build_targets("VARIANT=fast", "build/fast/sim")

    def run(self, start: int, seconds: float) -> Outcome:
        """Run the next seeds."""
        end_s, done, sums = (
            time.monotonic() + seconds,
            0,
            {"data packets": 0, "acknowledgements": 0, "damaged": 0},
        )
        while not done or time.monotonic() + 1 < end_s:
            seeds = max(PROBE_SEEDS, int(self._rate * (end_s - time.monotonic())))
            began_s = time.monotonic()
            jobs = ["--jobs", str(os.cpu_count() or 1)]
            argv = [
                str(BUILD_DIR / "fast/sim"),
                "--seeds",
                str(seeds),
                "--seed0",
                str(start + done + 1),
                *jobs,
            ]
            text = _output_of(argv, seconds)
            assert _find_number(SEEDS_LINE, text) == seeds
            self._rate = seeds / (time.monotonic() - began_s)
            done += seeds
            sums["data packets"] += _find_number(DATA, text, "data")
            sums["acknowledgements"] += _find_number(DATA, text, "acks")
            sums["damaged"] += _find_number(TALLY, text, "bad")
        return Outcome(done, sums)


@dataclass
class Fuzzing:
    """One decoder of tests/fuzz, with libFuzzer and sanitizers; the corpus grows from run to run."""

    decoder: str
    target: int
    folder: Path
    unit = "executions"

    @property
    def name(self) -> str:
        """Return its name."""
        return f"fuzz-{self.decoder}"

    @property
    def what(self) -> str:
        """Return its name in the table."""
        return f"fuzzing: {self.decoder}"

    @property
    def _build_program(self) -> str:
        return f"build/fuzz/fuzz/fuzz_{self.decoder}"

    def prepare(self) -> None:
        """Build it, with clang."""
        if shutil.which("clang") is None:
            raise Unavailable("fuzzing needs clang")
        _build_targets("VARIANT=fuzz", "CC=clang", self._build_program)

    def run(self, start: int, seconds: float) -> Outcome:
        """Search for so long."""
        found = self.folder / "corpus" / self.decoder
        kept = native.TESTS_DIR / "fuzz" / "corpus" / self.decoder
        found.mkdir(parents=True, exist_ok=True)
        argv = [
            str(native.PLUGIN_DIR / self._build_program),
            f"-artifact_prefix={self.folder}/",
            "-reduce_inputs=1",
        ]
        if len(list(found.iterdir())) > CORPUS_MAX:
            self._reduce_input(argv, found, kept)
        words = [
            f"-max_total_time={max(1, int(seconds))}",
            f"-seed={start % 2**31 + 1}",
            "-print_final_stats=1",
        ]
        text = _output_of([*argv, *words, str(found), str(kept)], seconds)
        *_, (edges, features, corpus) = COVERAGE.findall(text)
        most = {"edges": float(edges), "features": float(features), "corpus": float(corpus)}
        return Outcome(_find_number(EXECUTIONS, text), most=most)

    @staticmethod
    def _reduce_input(argv: list[str], found: Path, kept: Path) -> None:
        merged = found.with_name(f"{found.name}.new")
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir()
        _output_of([*argv, "-merge=1", str(merged), str(found), str(kept)], LATE_S)
        shutil.rmtree(found)
        merged.rename(found)


def _make_bundle() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
        for name, value in (("manifest.json", MANIFEST), ("doctor.json", [FINDING])):
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(f"x/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _read_page(file: Path) -> object:
    with file.open("rb") as opened:
        return read_page(opened, "x.stats")


def _read_recording(file: Path) -> object:
    with file.open("rb") as opened:
        return read_recording(opened, "it")


@dataclass
class PythonDecoders:
    """Damages at random what harpctl reads of other processes and hosts."""

    name = "fuzz-harpctl"
    what = "fuzzing: statistics file, recording and bundle, as harpctl reads them"
    unit = "executions"
    target = 1_000_000

    def prepare(self) -> None:
        """Build nothing."""

    def run(self, start: int, seconds: float) -> Outcome:
        """Read damaged ones; each is taken, or refused with a sentence."""
        end_s, done, taken = time.monotonic() + seconds, 0, 0
        readers = ((_read_page, GOOD), (_read_recording, TRACE), (read_findings, _make_bundle()))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "damaged"
            while not done or time.monotonic() < end_s:
                read, good = readers[done % len(readers)]
                file.write_bytes(_damage_bytes(random.Random(start + done), good))
                with contextlib.suppress(HarpError):
                    read(file)
                    taken += 1
                done += 1
        return Outcome(done, {"taken as good": taken})


def _damage_bytes(dice: random.Random, good: bytes) -> bytes:
    data = bytearray(good)
    for _ in range(dice.randrange(1, 5)):
        at = dice.randrange(len(data))
        data[at : at + dice.randrange(8)] = dice.randbytes(dice.randrange(1, 8))
    return bytes(data[: dice.choice((len(data), dice.randrange(len(data) + 1)))])


@dataclass
class Damage:
    """Packets with wrong bits, into the protocol core."""

    carrier: str
    what: str
    unit = "packets"
    target = 10**9

    @property
    def name(self) -> str:
        """Return its name."""
        return f"damage-{self.carrier}"

    def prepare(self) -> None:
        """Build it."""
        _build_targets("VARIANT=fast", "build/fast/damage")

    def run(self, start: int, seconds: float) -> Outcome:
        """Bring damaged packets for so long."""
        text = _output_of([str(BUILD_DIR / "fast/damage"), self.carrier, str(start), f"{seconds:.1f}"], seconds)
        sums = {
            "messages compared": _find_number(DAMAGED, text, 3),
            "of them stopped by the CRC": _find_number(CRC, text),
        }
        return Outcome(_find_number(DAMAGED, text), sums)


# ---- in labs ----


class _InLab:
    """An item that runs plugin and harp-perf in a lab."""

    def prepare(self) -> None:
        """Build both."""
        _build_targets("all")


@contextlib.contextmanager
def _provide_lab(spec: LabSpec) -> Iterator[tuple[Lab, Path]]:
    """Provide a lab, and a folder for its job."""
    try:
        require_lab(spec)
    except HarpError as error:
        raise Unavailable(error.message) from error
    with tempfile.TemporaryDirectory() as folder, Lab(spec) as lab:
        yield lab, Path(folder)


@contextlib.contextmanager
def _provide_fleet(spec: LabSpec, ranks_per_host: int, seed: int) -> Iterator[Fleet]:
    with _provide_lab(spec) as (lab, folder):
        program = compile_program("rank.c", folder / "rank", "-rdynamic")
        yield Fleet(lab, program, PLUGIN, folder, ranks_per_host, seed)


@dataclass
class Kills(_InLab):
    """Ranks that are killed while all connect or move data."""

    name = "kills"
    what = "processes killed at random moments; their peers have the error within 1 s"
    unit = "kills"
    target = 10_000

    def run(self, start: int, seconds: float) -> Outcome:
        """Kill one in each round."""
        spec = LabSpec(hosts=2, enis=2, subnets=Subnets.ONE)
        with _provide_fleet(spec, 2, seed=start) as fleet:
            fleet.faults, fleet.error_s, fleet.peer_timeout_s = {"kill": 1}, 1.0, 2.0
            with fleet:
                fleet.run(seconds, fault_mean_s=0.1, compare_s=seconds, tell=lambda _line: None)
            _check_fleet(fleet)
            summary = fleet.summary
            most = {"latest error after s": summary.late_s, "machine slower by": fleet.slowness}
            return Outcome(summary.faults["kill"], {"errors": summary.expected}, most)


@dataclass
class Connects(_InLab):
    """New processes that connect, all to all, over links that lose much."""

    name = "connects"
    what = "connects while 30 % of all packets are lost each way"
    unit = "connects"
    target = 10_000

    def run(self, start: int, seconds: float) -> Outcome:
        """Connect, close and begin anew with new processes."""
        spec = LabSpec(hosts=4, enis=2, subnets=Subnets.ONE)
        end_s, done, lost, slowest_s, seed = time.monotonic() + seconds, 0, 0, 0.0, start
        while not done or time.monotonic() < end_s:
            with _provide_fleet(spec, 2, seed) as fleet:
                fleet.peer_timeout_s, fleet.hang_s = 90.0, 300.0
                lossy = [fleet.lab.faults(host, eni) for host in range(spec.hosts) for eni in range(spec.enis)]
                for faults in lossy:
                    faults.drop(CONNECT_LOSS, "in")
                with fleet:
                    began_s = time.monotonic()
                    done += fleet.connect_all()
                    slowest_s = max(slowest_s, time.monotonic() - began_s)
                assert not fleet.summary.unexpected, "\n".join(fleet.summary.unexpected)
                lost += sum(faults.total("dropped") for faults in lossy)
                seed += 1
        return Outcome(done, {"packets lost": lost}, {"slowest round, all to all, s": slowest_s})


@dataclass
class Flaps(_InLab):
    """Links of a job over four interfaces go down and up again; every byte is checked."""

    carrier: str
    unit = "flaps"
    target = 1000

    @property
    def name(self) -> str:
        """Return its name."""
        return f"flaps-{self.carrier}"

    @property
    def what(self) -> str:
        """Return its name in the table."""
        carriers = {"auto": "udp and tcp together"}
        return f"interface flaps over {carriers.get(self.carrier, self.carrier)}"

    def run(self, start: int, seconds: float) -> Outcome:
        """Flap links of one job."""
        dice, flaps = random.Random(start), 0
        with _provide_lab(LabSpec(enis=4, cap_mbps=CAP_MBPS)) as (lab, folder):
            env = {"HARP_IFNAME": "eni", "HARP_PEER_TIMEOUT": "60", "HARP_DRIVER": self.carrier}
            # In mid-transfer until it is told to end.
            words = ("--time", f"{seconds + LATE_S:.0f}", "--interval-ms", "100", "--warmup", "0")
            with Job(
                lab, PLUGIN, mode="bidir", sizes="256K", words=words, env=env, meeting=folder / "meeting"
            ) as job:
                until_all_moving(job, 1)
                end_s = time.monotonic() + seconds
                while not flaps or time.monotonic() < end_s:
                    for _ in range(FLAPS_AT_ONCE):
                        host, eni = dice.randrange(2), dice.randrange(4)
                        lab.link_down(host, eni)
                        time.sleep(dice.uniform(0, FLAP_MAX_S))
                        lab.link_up(host, eni)
                        flaps += 1
                        assert all(child.poll() is None for child in job.ranks), "a flap ended the job"
                    until_all_moving(job, 1)
                job.end()
                report = job.finish(may_fall_back=True)
        return Outcome(flaps, {"messages checked": sum(result.messages for result in report.results)})


@dataclass
class XdpFlaps(_InLab):
    """The interface of a job over AF_XDP goes down and up: it goes on with sockets; a new job each time."""

    name = "flaps-xdp"
    what = "interface flaps over xdp"
    unit = "flaps"
    target = 1000

    def run(self, start: int, seconds: float) -> Outcome:
        """Flap the link of one job after the other."""
        dice, flaps, falls, messages = random.Random(start), 0, 0, 0
        words = ("--time", str(LATE_S), "--interval-ms", "100", "--warmup", "0")
        with _provide_lab(LabSpec(enis=2)) as (lab, _):
            end_s = time.monotonic() + seconds
            while not flaps or time.monotonic() < end_s:
                with Job(lab, PLUGIN, mode="bidir", sizes="256K", words=words, env=XDP) as job:
                    job.until_moving()
                    if not job.driver_mode(1).startswith("xdp"):
                        raise Unavailable(f"no AF_XDP here: {job.driver_mode(1)}")
                    lab.link_down(1, 0)
                    time.sleep(dice.uniform(0, 4 * FLAP_MAX_S))
                    lab.link_up(1, 0)
                    job.until_moving()
                    job.end()
                    report = job.finish(may_fall_back=True)
                    falls += job.statistics()["driver_fallbacks"]
                    messages += sum(result.messages for result in report.results)
                    flaps += 1
        return Outcome(flaps, {"went on with sockets": falls, "messages checked": messages})


@dataclass
class Soak(_InLab):
    """Mixed traffic of eight ranks, with every fault of tests/many; what an idle rank holds does not grow."""

    name = "soak"
    what = "seconds of mixed traffic with faults: files, threads and memory do not grow"
    unit = "s"
    target = 8 * 3600

    def run(self, start: int, seconds: float) -> Outcome:
        """Do a job for so long."""
        with _provide_fleet(LabSpec(hosts=4, enis=2, subnets=Subnets.ONE), 2, seed=start) as fleet:
            with fleet:
                fleet.run(seconds, fault_mean_s=1.0, compare_s=max(10.0, seconds / 10), tell=lambda _line: None)
            _check_fleet(fleet)
            summary = fleet.summary
            sums = {"messages": summary.messages, "MB": summary.bytes // 10**6, "rounds": summary.rounds}
            faults = {f"{kind} faults": count for kind, count in summary.faults.items()}
            return Outcome(int(seconds), {**sums, **faults}, {"KiB grown": summary.grown.memory_kib})


def _check_fleet(fleet: Fleet) -> None:
    """Raise what was unexpected, or has grown."""
    summary = fleet.summary
    text = summary.line()
    assert not summary.unexpected, "\n".join([text, *summary.unexpected])
    assert summary.messages, text
    assert summary.grown.files == summary.grown.threads == 0, text
    assert summary.grown.memory_kib <= GROWTH_MAX_KIB, text


def all_items(folder: Path) -> list[Item]:
    """List them; `folder` keeps what fuzzing finds."""
    decoders = native.fuzz_targets()
    return [
        Simulation(),
        *(Fuzzing(decoder, -(-(10**9) // len(decoders)), folder) for decoder in decoders),
        PythonDecoders(),
        Damage("udp", "damaged datagrams into the protocol core; 0 wrong bytes"),
        Damage("tcp", "damaged records of tcp paths into it, checksum on; 0 wrong bytes"),
        Kills(),
        Flaps("udp"),
        Flaps("tcp"),
        Flaps("auto"),
        XdpFlaps(),
        Connects(),
        Soak(),
    ]
