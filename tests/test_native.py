# SPDX-License-Identifier: Apache-2.0
"""The C tests, so that one summary counts them: each cmocka test is a case, and so is each program's exit.

The ordinary build always; the sanitizer builds when requested (--asan, with UBSan, and --tsan). Fuzz targets
replay their corpus under AddressSanitizer; with --fuzz SEC they search instead.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests import native
from tests.conftest import SANITIZERS

pytestmark = pytest.mark.timeout(native.BUILD_TIMEOUT_S + native.RUN_TIMEOUT_S)
REPLAY_TIMEOUT_S = 120
SIM_TIMEOUT_S = 3000
# A seed of the simulation: what the search among ten million found.
FAILED_SEEDS = (
    30604751,  # a lost size probe was probed for again and again
    40078397,  # the probe timeout of what followed it lay in the past
    51669420,  # a size probe when all was done, which is allowed
    51766455,  # an acknowledgement of a tcp path went by a dead one, and the path was full
    56042110,  # a connection without an answer behind records that fill it
    56686621,
    5633,  # records of a lost connection made a tcp path search for a packet size
    120875332,  # the client did not know that a connection had ended which the server alone used
    120905411,
    12312,  # marks kept a window below a packet
)
CONF_MAX_BYTES = 64 << 10  # HARP_CONF_FILE_BYTES_MAX
# Inputs of fuzz targets that are too large for their corpora.
GENERATED_INPUTS = {"conf": {"too_long_file": b"[eni]\ninterface = eth1\n" + b"\n" * CONF_MAX_BYTES}}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    variants = ["", *(name for name in SANITIZERS if metafunc.config.getoption(f"--{name}"))]
    if {"program", "name"} <= set(metafunc.fixturenames):
        cases = [(v, p, name) for v in variants for p in native.list_programs() for name in native.test_names(p)]
        ids = [":".join(filter(None, case)) for case in cases]
        metafunc.parametrize(("variant", "program", "name"), cases, ids=ids)
    elif "program" in metafunc.fixturenames:
        pairs = [(v, p) for v in variants for p in native.list_programs()]
        metafunc.parametrize(("variant", "program"), pairs, ids=[":".join(filter(None, pair)) for pair in pairs])
    elif "target" in metafunc.fixturenames:
        metafunc.parametrize("target", native.fuzz_targets())


def test_c(variant: str, program: str, name: str) -> None:
    ran = native.run_program(program, variant)
    if ran.outcomes.get(name) == "SKIPPED":
        pytest.skip(f"the program skipped it: {program} {name}")
    assert ran.outcomes.get(name) == "OK", ran.output


def test_c_program_exit(variant: str, program: str) -> None:
    ran = native.run_program(program, variant)
    assert ran.code == 0, ran.output
    assert ran.outcomes, f"{program} ran no test:\n{ran.output}"


def test_fuzz(target: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    seconds = int(request.config.getoption("--fuzz"))
    corpus = native.TESTS_DIR / "fuzz" / "corpus" / target
    inputs = sorted(file for file in corpus.rglob("*") if file.is_file())
    assert inputs, f"{corpus} holds no input"
    for name, content in GENERATED_INPUTS.get(target, {}).items():
        (tmp_path / name).write_bytes(content)
        inputs.append(tmp_path / name)
    if seconds:
        if shutil.which("clang") is None:
            pytest.skip("fuzzing needs clang")
        words, program = ["VARIANT=fuzz", "CC=clang"], f"build/fuzz/fuzz/fuzz_{target}"
        arguments = [
            f"-max_total_time={seconds}",
            f"-artifact_prefix={tmp_path}/",
            str(tmp_path),
            str(corpus),
        ]
    else:
        words, program = ["VARIANT=asan"], f"build/asan/fuzz/replay_{target}"
        arguments = [str(file) for file in inputs]
    built = native.run_make(*words, program)
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    done = subprocess.run(
        [str(native.PLUGIN_DIR / program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
        timeout=seconds + REPLAY_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout.decode(errors="replace")[-native.TAIL_CHARS :]


def _run_program(program: str, *words: str) -> str:
    """Build a program, and run it outside make, of which one at a time runs; return what it printed."""
    built = native.run_make(f"build/{program}")
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    done = subprocess.run(
        [str(native.PLUGIN_DIR / "build" / program), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        timeout=SIM_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout[-native.TAIL_CHARS :]
    return done.stdout


@pytest.mark.parametrize("seed", FAILED_SEEDS)
def test_simulation_of_a_seed_that_failed(seed: int) -> None:
    _run_program("sim", "--seed", str(seed))


@pytest.mark.timeout(SIM_TIMEOUT_S + 60)
def test_networks(tmp_path: Path) -> None:
    """What is lost, shared and queued in the most telling networks; `make networks` runs all."""
    _run_program("networks", "--quick", "--jobs", "1", "--out", str(tmp_path / "results"))


@pytest.mark.timeout(SIM_TIMEOUT_S + 60)
def test_simulation(request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = int(request.config.getoption("--sim"))
    printed = _run_program("sim", "--seeds", str(seeds))
    rate = [line for line in printed.splitlines() if "seeds/s" in line]
    assert rate, f"the simulation did not say how many seeds per second it ran:\n{printed}"
    assert rate[0].startswith(f"{seeds} seeds")
    with capsys.disabled():
        print(f"\nsimulation: {rate[0]}")
