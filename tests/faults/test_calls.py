# SPDX-License-Identifier: Apache-2.0
"""Each call of libc fails, once or for good: every transfer ends, right or with an error that says why.

Of each function two cases; with --faults all of them, which takes half an hour.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import cases
from tests.faults.conftest import Compile

ALL_TIMEOUT_S = 3600
SAMPLE = 2
SEED = 32


@pytest.fixture(scope="session")
def inject(compile_c: Compile) -> Path:
    return compile_c("inject")


@pytest.fixture(scope="session")
def counts(inject: Path, plugin_file: Path) -> dict[str, dict[str, int]]:
    """How often a run without faults calls each function, in each mode."""
    return {mode: cases.count_calls(inject, plugin_file, mode) for mode in cases.MODES}


def test_every_function_has_its_errors(counts: dict[str, dict[str, int]]) -> None:
    called = set().union(*counts.values())
    assert called <= cases.ERRNOS.keys()


@pytest.mark.timeout(ALL_TIMEOUT_S)
@pytest.mark.parametrize("function", sorted(cases.ERRNOS))
def test_failing_calls(
    function: str,
    inject: Path,
    plugin_file: Path,
    counts: dict[str, dict[str, int]],
    request: pytest.FixtureRequest,
) -> None:
    all_cases = [
        case for mode in cases.MODES for case in cases.cases_of(mode, function, counts[mode].get(function, 0))
    ]
    if not request.config.getoption("--faults"):
        all_cases = random.Random(SEED).sample(all_cases, min(SAMPLE, len(all_cases)))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failures = [
            text
            for text in pool.map(lambda case: cases.failure(inject, plugin_file, case), all_cases)
            if text
        ]
    assert not failures, "\n".join(failures)
