# SPDX-License-Identifier: Apache-2.0
"""The plan's own commands, and the rollback timer, for real in namespaces: each case of box.py.

Cases share nothing and mostly wait, so some of them run at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from shutil import which

import pytest

from tests.harpctl.network.box import CASES

pytestmark = [pytest.mark.lab, pytest.mark.timeout(300)]
AT_ONCE = 4
UNSHARE = ["unshare", "--net", "--mount-proc", "--pid", "--fork", "--kill-child"]
NEEDS = {"networkmanager_at_boot": ["NetworkManager", "nmcli", "dbus-daemon"]}
Done = subprocess.CompletedProcess[str]


def _missing_tool(case: str) -> str:
    for tool in ("unshare", "ping", *NEEDS.get(case, [])):
        if which(tool) is None:
            return tool
    return ""


def _run_case(case: str, folder: Path, root: Path) -> Done:
    env = {name: value for name, value in os.environ.items() if name != "SSH_CONNECTION"}
    command = [*UNSHARE, sys.executable, "-m", "tests.harpctl.network.box", case, str(folder / "root")]
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def boxes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, root: Path
) -> Iterator[dict[str, Future[Done]]]:
    """Provide every case that is selected and can run, under way."""
    items = [item for item in request.session.items if item.path == request.path]
    selected = {item.callspec.params["case"] for item in items if isinstance(item, pytest.Function)}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {
            case: pool.submit(_run_case, case, tmp_path_factory.mktemp(case), root)
            for case in CASES
            if case in selected and not _missing_tool(case)
        }
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("case", CASES)
def test_in_a_box(case: str, boxes: dict[str, Future[Done]]) -> None:
    if tool := _missing_tool(case):
        pytest.skip(f"needs the program {tool}")
    done = boxes[case].result()
    assert done.returncode == 0, done.stdout + done.stderr
