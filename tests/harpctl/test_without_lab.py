# SPDX-License-Identifier: Apache-2.0
"""harpctl on a host that has no lab: its commands say in one line what to install; all others work."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from harpctl.cli import COMPLETION
from harpctl.errors import ExitCode
from harpctl.lab import NO_LAB

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
sys.argv[:3] = ["harpctl"]
from harpctl.cli import main
main()
"""


@pytest.fixture
def alone(root: Path, tmp_path: Path) -> list[str]:
    """Provide the words that run harpctl without what lies beside it in the checkout."""
    (tmp_path / "harpctl").symlink_to(root / "harpctl")
    packages = sysconfig.get_paths()["purelib"]
    return [sys.executable, "-I", "-S", "-c", PROGRAM, str(tmp_path), packages]


def run_words(words: list[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, env=env)


@pytest.mark.parametrize(
    "words", ["demo", "bench --hosts a,b", "bench nccl", "lab", "lab up --enis 4 --cap 1000", "dissector"]
)
def test_its_commands_name_what_to_install(alone: list[str], words: str) -> None:
    done = run_words([*alone, *words.split()])
    told = NO_LAB.format(words.split(maxsplit=1)[0])
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.MISSING, "", f"harpctl: {told}\n")


def test_an_option_that_needs_it_says_so(alone: list[str], tmp_path: Path) -> None:
    done = run_words([*alone, "trace", "1", "--plot", str(tmp_path / "picture.png")])
    told = NO_LAB.format("trace --plot")
    assert (done.returncode, done.stderr) == (ExitCode.MISSING, f"harpctl: {told}\n")


def test_a_preflight_looks_and_does_not_measure(alone: list[str], tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text("#!/bin/sh\nexit 255\n")
    ssh.chmod(0o755)
    done = run_words([*alone, "preflight", "-H", "a,b"], {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    last = done.stdout.splitlines()[-1]
    told = f"Nothing was measured: {NO_LAB.format('preflight')}"
    assert (done.returncode, last) == (ExitCode.MISSING, f"Do not use HARP yet: not fit are a, b. {told}")


def test_they_tell_the_same_in_json_and_in_the_help(alone: list[str]) -> None:
    done = run_words([*alone, "bench", "nccl", "--json"])
    told = NO_LAB.format("bench")
    assert json.loads(done.stdout) == {"ok": False, "error": told, "hint": "", "exit_code": ExitCode.MISSING}
    done = run_words([*alone, "lab", "--help"])
    assert done.returncode == 0
    assert "harpctl_lab (wheel)" in " ".join(done.stdout.split())


def test_all_other_commands_are_there(alone: list[str]) -> None:
    done = run_words([*alone, "--help"])
    assert done.returncode == 0, done.stderr
    assert "Prepare this host for HARP" in done.stdout
    assert run_words([*alone, "facts", "--help"]).returncode == 0
    env = {COMPLETION: "bash_complete", "COMP_WORDS": "harpctl b", "COMP_CWORD": "1"}
    assert run_words(alone, env).stdout.split() == ["plain,bench", "plain,boot"]
