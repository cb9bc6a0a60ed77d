# SPDX-License-Identifier: Apache-2.0
"""Ranks that run cases, and the environment of processes with lightcc."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NO_TORCH = "no PyTorch: pip install 'torch==2.13.0+cpu'"
Case = Callable[..., "Outcome"]


class Outcome:
    """The result of a case on each rank, and the warnings of the first rank."""

    def __init__(self, answers: list[dict[str, Any]]) -> None:
        self.errors = [answer.get("error", "") for answer in answers]
        self.results: list[Any] = [answer.get("result") for answer in answers]
        self.warnings = answers[0]["warnings"]
        self.later_warnings = [text for answer in answers[1:] for text in answer["warnings"]]


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def environment(**own: str) -> dict[str, str]:
    """Return an environment without settings but these."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("LIGHT_", "TIACC_", "OMPI_"))}
    return {**kept, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **own}


@pytest.fixture(scope="session")
def has_torch() -> None:
    """Skip where there is no torch."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip(NO_TORCH)


@pytest.fixture(scope="session")
def run_case(has_torch: None) -> Iterator[Case]:
    """Run functions of cases.py on four ranks; those that fail are shown, unless may_fail."""
    assert has_torch is None
    argv = [sys.executable, "-m", "tests.lightcc.ranks", str(free_port())]
    ranks = subprocess.Popen(
        argv, cwd=ROOT, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert ranks.stdin
    assert ranks.stdout
    with ranks:
        orders, answers = ranks.stdin, ranks.stdout

        def run(case: str, *, may_fail: bool = False, **arguments: object) -> Outcome:
            print(json.dumps({"case": case, "arguments": arguments}), file=orders, flush=True)
            line = answers.readline()
            assert line, "the ranks ended"
            outcome = Outcome(json.loads(line))
            assert may_fail or not any(outcome.errors), "\n".join(outcome.errors)
            return outcome

        yield run
        orders.close()
        assert ranks.wait(500) == 0
