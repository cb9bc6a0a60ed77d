# SPDX-License-Identifier: Apache-2.0
"""Commands with streams that are closed, full, or read by nobody: real processes, a tree as the host."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harpctl.machine import build_machine

SUCCESS = "Set up HARP successfully"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return build_machine(tmp_path / "host", "ubuntu-22.04", "gpu1")


def run_shell(script: str, root: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which $harpctl is the program and $root the tree."""
    env = {**os.environ, "harpctl": f"{sys.executable} -m harpctl", "root": str(root)}
    return subprocess.run(["bash", "-c", script], env=env, text=True, capture_output=True, check=False)


@pytest.mark.parametrize("closed", ["<&-", "2>&-", "<&- 2>&-", "< /dev/null", "2> /dev/full"])
def test_setup_needs_neither_input_nor_standard_error(root: Path, closed: str) -> None:
    done = run_shell(f"$harpctl setup --root $root {closed}", root)
    assert done.returncode == 0, done.stderr
    assert SUCCESS in done.stdout


def test_setup_goes_on_when_nobody_reads_its_progress(root: Path) -> None:
    done = run_shell("{ $harpctl setup --root $root; echo $? > $root/rc; } 2> >(exec true)", root)
    assert SUCCESS in done.stdout
    assert (root / "rc").read_text() == "0\n"
    assert " done " in run_shell("$harpctl rollback --list --root $root", root).stdout


@pytest.mark.parametrize("command", ["facts", "facts --json", "setup", "rollback --list"])
def test_a_full_disk_below_the_output_is_reported_in_a_line(root: Path, command: str) -> None:
    done = run_shell(f"$harpctl {command} --root $root > /dev/full", root)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "harpctl: standard output: No space left on device" in done.stderr


def test_an_error_with_json_is_a_document_too(root: Path) -> None:
    done = run_shell("$harpctl setup --root $root --enis eth9 --json", root)
    result = json.loads(done.stdout)
    assert done.returncode == result["exit_code"] == 4
    assert not result["ok"]
    assert "no interface eth9" in result["error"]
    assert "harpctl facts" in result["hint"]
    assert f"harpctl: {result['error']}" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_takes_everything_back(root: Path, number: signal.Signals) -> None:
    """A signal while it writes: kernel arguments are written by then, the network is not."""
    stop = (
        "import harpctl.cli, os\nfrom harpctl.host.host import Host\nwrite = Host.write_file\n"
        "def stop(self, path, *args, **more):\n"
        "    write(self, path, *args, **more)\n"
        f"    if 'systemd/network' in path: os.kill(os.getpid(), {int(number)})\n"
        "Host.write_file = stop\n"
        f"import sys; sys.argv = ['harpctl', 'setup', '--root', {str(root)!r}]\n"
        "harpctl.cli.main()\n"
    )
    before = (root / "etc/default/grub").read_bytes()
    done = subprocess.run([sys.executable, "-c", stop], text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert "Interrupted. Nothing was changed." in done.stderr
    assert "Traceback" not in done.stderr
    assert (root / "etc/default/grub").read_bytes() == before
    assert not (root / "var/lib/harp").exists()


def test_tables_in_a_pipe_have_no_blanks_at_the_end(root: Path) -> None:
    lines = run_shell("$harpctl facts --root $root", root).stdout.splitlines()
    assert lines
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(("answer", "code"), [("y", 0), ("yes", 0), ("n", 5), ("", 5)])
def test_a_question_is_asked_on_the_terminal(root: Path, answer: str, code: int) -> None:
    """Setup of a tree asks as that of a host does; standard output is no terminal."""
    master, slave = pty.openpty()
    argv = ["setsid", "--ctty", "--wait", sys.executable, "-m", "harpctl", "setup", "--root", str(root)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=slave, stdout=pipe, stderr=pipe, text=True) as run:
        os.close(slave)
        os.write(master, f"{answer}\n".encode())
        out, err = run.communicate()
        os.close(master)
    assert run.returncode == code, err
    assert (SUCCESS in out) == (code == 0)
