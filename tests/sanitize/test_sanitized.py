# SPDX-License-Identifier: Apache-2.0
"""The plugin itself and harp-perf, both built with a sanitizer, over loopback: modes, both kinds of engine, a
rank that dies and one that gets SIGTERM. Nothing may be reported.

AddressSanitizer also looks for leaks at exit; ThreadSanitizer sees several of NCCL's threads at once only in
unit/test_threads, since harp-perf's ranks have one each.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests import native
from tests.bench.conftest import Ended, Perf, wait_for_end
from tests.sanitize.conftest import MAY_BUILD, OPTIONS, REPORT

pytestmark = MAY_BUILD

SIZES = ("--sizes", "0,8,4K,70000,1M", "--iters", 6, "--warmup", 2)
FOREVER = ("--sizes", "70000", "--time", 600)
OK, PLUGIN, PEER, INTERRUPTED = 0, 3, 4, 130
ENGINES = ("inline", "thread")
BOTH = "udp+tcp"  # large messages take TCP, small ones datagrams
TRAFFIC: dict[str, tuple[tuple[object, ...], int, str]] = {  # words, paths, carriers
    "one": (("--mode", "stream", "--nranks", 2), 1, BOTH),
    "pingpong": (("--mode", "pingpong", "--nranks", 2, "--connections", 3), 2, BOTH),
    "many": (("--mode", "bidir", "--nranks", 2, "--connections", 8), 4, BOTH),
    "ranks": (("--mode", "alltoall", "--nranks", 3), 1, BOTH),
    "datagrams": (("--mode", "bidir", "--nranks", 2, "--connections", 2), 4, "udp"),
}


@pytest.fixture
def perf(variant: str) -> Iterator[Perf]:
    folder = native.PLUGIN_DIR / "build" / variant
    made = Perf(folder / "harp-perf", folder / "libnccl-net.so")
    yield made
    for child in made.running:
        if child.poll() is None:
            child.kill()
            child.communicate()


def _make_env(variant: str, engine: str, paths: int, carriers: str = BOTH) -> dict[str, str]:
    own = {"HARP_IFNAME": "=lo", "HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    return OPTIONS[variant] | own | {"HARP_DRIVER": carriers}


def _check_clean(ended: Ended) -> Ended:
    assert not REPORT.search(ended.err), ended.err[-native.TAIL_CHARS :]
    return ended


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("traffic", TRAFFIC)
def test_traffic(perf: Perf, variant: str, traffic: str, engine: str) -> None:
    words, paths, carriers = TRAFFIC[traffic]
    ended = _check_clean(perf.run(*words, *SIZES, env=_make_env(variant, engine, paths, carriers)))
    assert ended.code == OK, ended.err[-native.TAIL_CHARS :]


@pytest.mark.parametrize("abi", [4, 8])
def test_old_abi(perf: Perf, variant: str, abi: int) -> None:
    """The blocking calls, and the process-wide context that nobody finalizes."""
    words = ("--abi", abi, *TRAFFIC["one"][0], "--connections", 4, *SIZES)
    ended = _check_clean(perf.run(*words, env=_make_env(variant, "inline", 2)))
    assert ended.code == OK, ended.err[-native.TAIL_CHARS :]


def _until_moving(child: subprocess.Popen[str]) -> None:
    """Read the table's head: from there on messages move."""
    assert child.stdout
    for line in child.stdout:
        if line.lstrip("# ").startswith("(B)"):
            return
    assert child.stderr
    raise AssertionError(f"no table: {child.stderr.read()}")


@pytest.mark.parametrize("engine", ENGINES)
def test_dead_rank(perf: Perf, variant: str, engine: str) -> None:
    """The survivor fails, and takes its connections down with requests under way."""
    words = ("--mode", "bidir", "--connections", 4, *FOREVER)
    first, second = perf.start_ranks(2, *words, env=_make_env(variant, engine, 2))
    _until_moving(first)
    second.kill()
    ended = _check_clean(wait_for_end(first))
    assert ended.code in {PLUGIN, PEER}, ended.err
    wait_for_end(second)


@pytest.mark.parametrize("engine", ENGINES)
def test_stopped_run(perf: Perf, variant: str, engine: str) -> None:
    """A signal in mid-transfer: both ranks deregister, free and close while packets are still arriving."""
    words = ("--mode", "alltoall", "--connections", 4, *FOREVER)
    first, second = perf.start_ranks(2, *words, env=_make_env(variant, engine, 2))
    _until_moving(first)
    first.send_signal(signal.SIGTERM)
    for child in (first, second):
        assert _check_clean(wait_for_end(child)).code in {PLUGIN, PEER, INTERRUPTED}


def test_threads(variant: str) -> None:
    """Several of NCCL's threads on one engine at once."""
    program = native.PLUGIN_DIR / "build" / variant / "tests" / "unit" / "test_threads"
    done = subprocess.run(
        [str(program)],
        env={**OPTIONS[variant], "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
        timeout=native.RUN_TIMEOUT_S,
    )
    output = done.stdout + done.stderr
    assert not REPORT.search(output), output[-native.TAIL_CHARS :]
    assert done.returncode == 0, output[-native.TAIL_CHARS :]
