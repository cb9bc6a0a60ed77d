# SPDX-License-Identifier: Apache-2.0
"""Each call of libc fails, once or for good: every transfer ends, right or with an error that says why.

Two cases of each function run; with --faults all run, which takes half an hour. With --asan the plugin of the
sanitizers runs.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import cases
from tests.faults.conftest import SANITIZED, SANITIZER, Compile

ALL_TIMEOUT_S = 3600
SAMPLE = 2
SEED = 32


@pytest.fixture(scope="session")
def inject(compile_c: Compile, request: pytest.FixtureRequest) -> Path:
    return compile_c("inject", *(SANITIZER if request.config.getoption("--asan") else ()))


Counts = dict[str, dict[str, int]]


def _count_calls(inject: Path, plugin: Path, modes: tuple[str, ...]) -> Counts:
    """Count how often a run without faults calls each function, in each mode."""
    return {mode: cases.count_calls(inject, plugin, mode) for mode in modes}


@pytest.fixture(scope="session")
def counts(inject: Path, plugin: Path) -> Counts:
    return _count_calls(inject, plugin, cases.MODES)


@pytest.fixture(scope="session")
def xdp_counts(inject: Path, plugin: Path) -> Counts:
    return _count_calls(inject, plugin, cases.XDP_MODES)


def _run_cases(function: str, counts: Counts, inject: Path, plugin: Path, *, runs_all: bool) -> None:
    chosen = [case for mode in counts for case in cases.cases_of(mode, function, counts[mode].get(function, 0))]
    if not runs_all:
        chosen = random.Random(SEED).sample(chosen, min(SAMPLE, len(chosen)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(lambda case: cases.run_case(inject, plugin, case), chosen)
        failures = [text for text in found if text]
    assert not failures, "\n".join(failures)


def test_the_sanitizer_sees_the_plugin(inject: Path, compile_c: Compile, request: pytest.FixtureRequest) -> None:
    if not request.config.getoption("--asan"):
        pytest.skip("asked for with --asan")
    text = cases.run_case(inject, compile_c("overrun", *SANITIZED), cases.Case("inline", "malloc", 9, False, 12))
    assert "heap-buffer-overflow" in text
    assert "EXIT 66" in text


def test_every_function_has_its_errors(counts: Counts) -> None:
    called = set().union(*counts.values())
    assert called <= cases.ERRNOS.keys()


@pytest.mark.timeout(ALL_TIMEOUT_S)
@pytest.mark.parametrize("function", sorted(cases.ERRNOS))
def test_failing_calls(
    function: str, inject: Path, plugin: Path, counts: Counts, request: pytest.FixtureRequest
) -> None:
    _run_cases(function, counts, inject, plugin, runs_all=request.config.getoption("--faults"))


@pytest.mark.lab
@pytest.mark.timeout(ALL_TIMEOUT_S)
@pytest.mark.parametrize("function", sorted(cases.XDP_ERRNOS))
def test_failing_calls_of_xdp(
    function: str, inject: Path, plugin: Path, xdp_counts: Counts, request: pytest.FixtureRequest
) -> None:
    assert any(function in counts for counts in xdp_counts.values())
    _run_cases(function, xdp_counts, inject, plugin, runs_all=request.config.getoption("--faults"))
