# SPDX-License-Identifier: Apache-2.0
"""Commands of this machine: a fixed environment, nothing to read, and an end."""

from __future__ import annotations

import pytest

from harpctl.host.runner import SEARCH_PATH, Completed, LiveRunner


def test_a_command_and_its_output() -> None:
    done = LiveRunner().run(["sh", "-c", "echo $PATH; echo $LC_ALL; printf 'a\\377' >&2; exit 3"])
    assert done.code == 3
    assert done.stdout.splitlines() == [":".join(SEARCH_PATH), "C"]
    assert done.stderr == "a�"


def test_nothing_is_on_standard_input() -> None:
    assert LiveRunner().run(["cat"]).stdout == ""


def test_commands_that_can_not_run() -> None:
    missing = LiveRunner().run(["harp-no-such-program"])
    assert (missing.code, missing.last_line) == (127, "harp-no-such-program: not found")
    assert LiveRunner().run(["/etc"]).code == 126
    late = LiveRunner().run(["sleep", "60"], timeout_s=0.05)
    assert (late.code, late.last_line) == (124, "sleep: did not end within 0.05 s")


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [("out\n", "one\ntwo\n", "two"), ("out\n", " \n", "out"), ("", "", "exit code 1")],
)
def test_last_line(stdout: str, stderr: str, expected: str) -> None:
    assert Completed(("x",), 1, stdout, stderr).last_line == expected
