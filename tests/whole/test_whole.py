# SPDX-License-Identifier: Apache-2.0
"""Whole processes in a simulated world: the plugin with its engines, threads, handshakes and sockets.

`whole` (tests/whole/whole.c) runs a plan in virtual time, as often as wanted to the same end. Here are a few
hundred plans; with --whole every call of libc fails, and a process ends, stops or gives up at every call, by
thousands of seeds, in two builds: in the second one threads change places in each basic block. A failure
prints its plan: the words for `whole PLUGIN`, to which `trace` adds every call.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests import native
from tests.faults import cases
from tests.native import PLUGIN_DIR, TESTS_DIR
from tests.proofs.test_proofs import Change

INCLUDES = (f"-I{PLUGIN_DIR / 'src'}", f"-I{PLUGIN_DIR}", f"-I{TESTS_DIR}")
CC = ("cc", "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", *INCLUDES)
WARNINGS = ("-Wall", "-Wextra", "-Werror")
VARIANT = "blocks"
BUILD_TIMEOUT_S = 300
RUN_TIMEOUT_S = 14400
SEEDS, SEEDS_ALL = 60, 5000
STRIDE = 23  # calls from one at which something happens to the next, without --whole
CALLS = {"inline": 1100, "thread": 6000}  # the most calls of one process
BASES = {mode: f"seed=1 messages=4 mode={mode}" for mode in CALLS}
SAMPLE = 4  # positions at which a function fails, without --whole
PAUSE_MS = 5000  # more than two peer timeouts
# The end of a process, a pause longer than every timeout, and a jump of the wall clock.
EVENTS = {"end": "kill={}", "pause": f"pause={{}}:{PAUSE_MS}", "jump": "jump={}"}
# Plans that found a defect. What they do depends on the order of calls, so they age.
MENDED = {
    "connecting": tuple(f"{BASES['inline']} pause={n}:{PAUSE_MS}" for n in range(163, 290, 9)),
    "connect given up": (f"{BASES['inline']} pause=472:{PAUSE_MS}",),
    "peer answers again": (
        *(f"{BASES['thread']} pause={n}:{PAUSE_MS}" for n in range(885, 1040, 5)),
        "seed=102 draw",
    ),
    "sender": ("seed=2663 draw",),
    "bytes that a process had not read": tuple(
        f"seed={seed} enis=2 driver=udp messages=12 mode=thread streams={streams} uneven kill={n}"
        for seed, streams, n in (
            (93, 1, 3641),
            (308, 3, 6076),
            (406, 2, 3582),
            (445, 2, 1365),
            (638, 3, 2086),
        )
    ),
}

DRAWS = tuple(f"seed={seed} draw" for seed in range(1, SEEDS + 1))
# In the second build threads change places most often where the seed ends in 0, least where in 9.
RACES = tuple(f"seed={seed} messages=1 mode=thread stop=2" for seed in range(1, 1500) if seed % 10 < 3)
KILLS = tuple(f"seed=9 messages=4 kill={n}" for n in range(1, 3 * CALLS["inline"], STRIDE))
PAUSES = tuple(f"seed=9 messages=4 pause={n}:{PAUSE_MS}" for n in range(1, CALLS["inline"], STRIDE))
BREAKS = tuple(
    f"seed={seed} messages=4 enis=2 driver=udp fail=recv:{n}:once:104"
    for seed in range(21, 51)
    for n in range(10, 17)
)
KILLS_UNREAD = tuple(
    f"seed={seed} enis=2 driver=udp messages=12 mode=thread streams={1 + seed % 3} uneven kill={n}"
    for seed, n in ((seed, 200 + seed * 97 % 6000) for seed in range(200, 500))
)
# Mistakes in the plugin, and the plans that must find them.
MISTAKES = {
    "file is left": (
        Change("io/udp.c", "  if (e) {\n    close(fd);\n", "  if (e) {\n"),
        tuple(f"{BASES['inline']} fail=bind:{n}:once:98" for n in range(1, 7)),
    ),
    "memory is left": (
        Change(
            "net/net.c",
            "sizeof handle->cookie);\n  free(p);\n",
            "sizeof handle->cookie);\n",
        ),
        tuple(BASES.values()),
    ),
    "bit errors are not seen": (
        Change("wire/packet.c", "p->data.length) == harp_from", "p->data.length) != 1 + harp_from"),
        DRAWS,
    ),
    "end of a process is not seen": (
        Change(
            "engine/control/dispatch.c",
            'harp_peer_on_gone(peer, "was closed: the process ended", now);',
            "harp_monitor_set_lost(peer);",
        ),
        KILLS,
    ),
    "host of a reset connection cannot be asked": (
        Change(
            "engine/tcp/tcp.c",
            "return e->tcp ? open_or",
            "return e->tcp && harp_tcp_is_wanted(e, eni) ? open_or",
        ),
        KILLS_UNREAD,
    ),
    "listener is freed twice": (
        Change(
            "engine/control/listener.c",
            "= begin_close(l);\n",
            "= begin_close(l);\n  harp_engine_unlock(e);\n  harp_engine_lock(e);\n",
        ),
        RACES,
    ),
    "lock is not taken": (
        Change(
            "net/device.c",
            "  pthread_mutex_lock(&d->lock);\n  bool closed",
            "  bool closed",
        ),
        tuple(BASES.values()),
    ),
    "answer before a break does not count": (
        Change(
            "engine/control/connect.c",
            "peer->is_confirmed && stands",
            "peer->is_confirmed && harp_peer_is_usable(peer)",
        ),
        BREAKS,
    ),
    "time of a stopped process counts": (
        Change("engine/control/connect.c", "late_ns > counted_ns", "late_ns > HARP_SEC(3600)"),
        PAUSES,
    ),
}

pytestmark = pytest.mark.timeout(RUN_TIMEOUT_S)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile the program."""
    out = tmp_path_factory.mktemp("whole") / "whole"
    sources = [*sorted((TESTS_DIR / "whole").glob("*.c")), TESTS_DIR / "lib" / "simnet.c"]
    argv = [*CC, *WARNINGS, "-rdynamic", "-o", str(out), *map(str, sources), "-ldl"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="session")
def blocks() -> Path:
    """Build the plugin whose threads change places in each basic block."""
    target = f"build/{VARIANT}/libnccl-net.so"
    built = native.run_make(f"VARIANT={VARIANT}", target)
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    return PLUGIN_DIR / target


@pytest.fixture(scope="session")
def plugins(request: pytest.FixtureRequest, plugin_file: Path) -> list[Path]:
    """Provide the builds that the plans run on."""
    return [plugin_file, request.getfixturevalue("blocks")] if _is_all(request) else [plugin_file]


def _is_all(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--whole"))


def _run_plans(whole: Path, plugin: Path, plans: Iterable[str]) -> str:
    text = "".join(f"{plan}\n" for plan in plans)
    done = subprocess.run(
        [whole, plugin, "-"], input=text, capture_output=True, text=True, errors="replace", check=False
    )
    assert not done.stderr, done.stderr
    return done.stdout


def _run_on_plugins(whole: Path, plugins: Sequence[Path], plans: Sequence[str]) -> str:
    assert plans
    found = []
    for plugin in plugins:
        output = _run_plans(whole, plugin, plans)
        assert len(re.findall("^(?:ok|FAILURE)", output, re.MULTILINE)) == len(plans), output[-1000:]
        found += re.findall("^FAILURE.*\n.*\n", output, re.MULTILINE)
    return "".join(found)


def _calls_to_break(request: pytest.FixtureRequest, mode: str) -> range:
    return range(1, CALLS[mode], 1 if _is_all(request) else STRIDE * CALLS[mode] // CALLS["inline"])


def _failing_calls(whole: Path, plugin: Path, base: str, *, is_all: bool) -> list[str]:
    counts = re.findall(r"^calls (\S+) (\d+)$", _run_plans(whole, plugin, [f"{base} count"]), re.MULTILINE)
    plans = []
    for function, text in counts:
        count = int(text)
        positions = range(1, count + 1, 1 if is_all else count // SAMPLE + 1)
        for error in cases.ERRNOS.get(function, ()):
            plans += [f"{base} fail={function}:{n}:once:{error}" for n in positions]
            if error not in cases.PASSING:
                lasting = [n for n in cases.FIRST_OF_LASTING if n <= count][: None if is_all else 1]
                plans += [f"{base} fail={function}:{n}:on:{error}" for n in lasting]
    return plans


def test_a_plan_is_repeated_exactly(whole: Path, plugins: list[Path]) -> None:
    plans = [*BASES.values(), *(f"seed={seed} draw" for seed in range(1, 11))]
    for plugin in plugins:
        first = _run_plans(whole, plugin, plans)
        assert len(set(re.findall("hash=([0-9a-f]+)", first))) == len(plans)
        assert _run_plans(whole, plugin, plans) == first


def test_seeds(whole: Path, plugins: list[Path], request: pytest.FixtureRequest) -> None:
    count = SEEDS_ALL if _is_all(request) else SEEDS
    assert not _run_on_plugins(whole, plugins, [f"seed={seed} draw" for seed in range(1, count + 1)])


@pytest.mark.parametrize("mode", BASES)
def test_failing_calls(
    mode: str, whole: Path, plugins: list[Path], plugin_file: Path, request: pytest.FixtureRequest
) -> None:
    plans = _failing_calls(whole, plugin_file, BASES[mode], is_all=_is_all(request))
    assert not _run_on_plugins(whole, plugins, plans)


@pytest.mark.parametrize("mode", BASES)
@pytest.mark.parametrize("event", EVENTS)
def test_something_happens_at_a_call(
    event: str, mode: str, whole: Path, plugins: list[Path], request: pytest.FixtureRequest
) -> None:
    plans = [f"{BASES[mode]} {EVENTS[event].format(n)}" for n in _calls_to_break(request, mode)]
    assert not _run_on_plugins(whole, plugins, plans)


@pytest.mark.parametrize("mode", BASES)
def test_a_process_gives_up(mode: str, whole: Path, plugins: list[Path]) -> None:
    assert not _run_on_plugins(whole, plugins, [f"{BASES[mode]} stop={n}" for n in range(1, 60)])


@pytest.mark.parametrize("defect", MENDED)
def test_mended(defect: str, whole: Path, plugin_file: Path) -> None:
    assert not _run_on_plugins(whole, [plugin_file], MENDED[defect])


def _build_mistake(change: Change, library: Path, folder: Path) -> Path:
    """Link the objects of a build, but for one file's, with that of the changed file."""
    source, out = folder / change.file, folder / "libnccl-net.so"
    source.parent.mkdir(parents=True)
    source.write_text(change.applied_to((PLUGIN_DIR / "src" / change.file).read_text()))
    objects = library.parent / "src"
    skipped = {objects / Path(change.file).with_suffix(".o"), objects / "io" / "sim.o"}
    others = [str(file) for file in sorted(objects.rglob("*.o")) if file not in skipped]
    exports = f"-Wl,-z,undefs,--version-script={PLUGIN_DIR / 'src' / 'nccl' / 'exports.map'}"
    flags = (
        "-fPIC",
        "-fvisibility=hidden",
        "-fno-strict-aliasing",
        "-fsanitize-coverage=trace-pc",
        "-shared",
    )
    argv = [*CC, *flags, exports, "-o", str(out), str(source), *others, "-lpthread"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistake_is_found(mistake: str, whole: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if not _is_all(request):
        pytest.skip("asked for with --whole")
    change, plans = MISTAKES[mistake]
    plugin = _build_mistake(change, request.getfixturevalue("blocks"), tmp_path)
    assert _run_on_plugins(whole, [plugin], plans)
