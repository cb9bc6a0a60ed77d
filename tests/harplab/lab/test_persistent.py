# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab`: what it makes stays, is described, and goes without a trace, whatever was killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harplab.lab import persistent as standing
from harplab.lab.command import parse_fault
from harplab.lab.lab import RUN_DIR, namespaces_there
from harplab.lab.numbers import parse_caps, parse_enis, parse_loss, parse_share
from harplab.lab.spec import LabSpec

NAME = f"t{os.getpid()}"
KILLED = """
import os, signal, subprocess, sys
from harplab.lab import persistent as standing
from harplab.lab.spec import LabSpec
what, name, left = sys.argv[1], sys.argv[2], int(sys.argv[3])
real = subprocess.run
def run(*args, **kwargs):
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1
    return real(*args, **kwargs)
subprocess.run = run
if what == "up":
    standing.up(name, LabSpec(switch=True, loss_share=0.1))
elif what == "fault":
    standing.find(name).faults(0, 0).delay_ms(1)
else:
    standing.down(name)
"""


def run_harpctl(*words: str, wants: int = 0) -> str:
    done = CliRunner().invoke(app, ["lab", *words])
    assert done.exit_code == wants, done.output
    return done.stderr if wants else done.stdout


def on_host(*words: str, wants: int = 0) -> str:
    argv = [sys.executable, "-m", "harpctl", "lab", "exec", *words]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == wants, done.stderr
    return done.stdout


def run_killed(what: str, after: int) -> None:
    argv = [sys.executable, "-c", KILLED, what, NAME, str(after)]
    assert subprocess.run(argv, check=False, timeout=60).returncode == -9


def traces_of_lab() -> list[str]:
    folder = RUN_DIR / f"harplab-{NAME}"
    found = [name for name in namespaces_there() if name.startswith(f"harplab-{NAME}-")]
    return [*found, *([str(folder)] if folder.exists() else [])]


@pytest.fixture
def clean() -> Iterator[None]:
    yield
    standing.down(NAME)


@pytest.mark.lab
@pytest.mark.usefixtures("clean")
def test_a_lab_from_up_to_down() -> None:
    own = ("--name", NAME)
    output = run_harpctl("up", "--enis", "1,2", "--subnets", "routed", "--cap", "100", *own)
    assert f"harpctl lab exec --name {NAME} 0 --" in output
    assert "eni1 10.77.1.2" in output
    assert "is there already" in run_harpctl("up", *own, wants=ExitCode.REFUSED)

    command = ("--", "sh", "-c", "cat /sys/class/net/eni1/mtu; exit 7")
    assert on_host(*own, "h1", *command, wants=7) == "1500\n"
    assert "is no host" in run_harpctl("exec", *own, "2", "--", "true", wants=ExitCode.USAGE)

    run_harpctl("fault", *own, "1", "1", "drop=1%", "delay_ms=2", "mtu=1400", "--direction", "in")
    run_harpctl("fault", *own, "0", "0", "unplug", "no-address")
    (lab,) = json.loads(run_harpctl("status", *own, "--json"))["labs"]
    one, other = (host["enis"] for host in lab["hosts"])
    assert (one[0]["state"], one[0]["address"]) == ("no-carrier", "")
    assert (other[1]["mtu"], other[1]["address"], other[1]["state"]) == (1400, "10.77.1.2", "up")
    assert other[1]["faults"] == {"in": {"drop": 0.01, "delay_ms": 2.0}}
    assert other[1]["counts"]["in"]["forwarded"] >= 0
    assert "in: drop=0.01 delay_ms=2" in run_harpctl("status", *own)

    run_harpctl("fault", *own, "1", "1", "clear")
    assert "no-carrier" in run_harpctl("status", *own)
    assert "drop=" not in run_harpctl("status", *own)
    assert json.loads(run_harpctl("down", *own, "--json"))["ok"]
    assert traces_of_lab() == []
    assert "nothing to do" in run_harpctl("down", *own)
    assert "no lab named" in run_harpctl("exec", *own, "0", "--", "true", wants=ExitCode.MISSING)
    assert f"No lab named {NAME}" in run_harpctl("status", *own)


@pytest.mark.lab
@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("after", [0, 1, 4, 16])
def test_killed_while_it_is_made(after: int) -> None:
    run_killed("up", after)
    assert traces_of_lab()
    if after:
        assert "not made completely" in run_harpctl("status", "--name", NAME)
        with pytest.raises(HarpError, match="not made completely"):
            standing.find(NAME)
    with pytest.raises(HarpError, match="interrupted command left"):
        standing.up(NAME, LabSpec(switch=True))
    assert standing.down(NAME)
    assert traces_of_lab() == []


@pytest.mark.lab
@pytest.mark.usefixtures("clean")
def test_killed_while_it_is_changed_or_taken_down() -> None:
    standing.up(NAME, LabSpec(switch=True))
    standing.find(NAME).faults(1, 0).delay_ms(1)
    for after in (0, 1, 2):
        run_killed("fault", after)
        standing.find(NAME).faults(0, 0).delay_ms(1).clear()
    for after in (1, 3, 4):
        run_killed("down", after)
        assert traces_of_lab()
    assert standing.down(NAME)
    assert traces_of_lab() == []
    assert not standing.down(NAME)


@pytest.mark.lab
@pytest.mark.usefixtures("clean")
def test_a_lab_that_fails_halfway_leaves_nothing() -> None:
    with pytest.raises(HarpError, match="nosuchcontrol"):
        standing.up(NAME, LabSpec(switch=True, congestion="nosuchcontrol"))
    assert traces_of_lab() == []


def test_words() -> None:
    assert parse_enis("2", 3) == (2, ())
    assert parse_enis("2,8", 2) == (8, (2, 8))
    assert parse_caps("1000,4000") == (1000, 4000)
    assert parse_caps("1000") == 1000
    assert parse_loss("0.1%") == parse_loss("0.1") == pytest.approx(0.001)
    for text in ("half", "-1", "100", "nan", "1,2"):
        with pytest.raises(HarpError, match=f"from 0 to below 100, not '{text}'"):
            parse_loss(text)
    assert parse_share("1%") == parse_share("0.01") == 0.01
    assert parse_fault("blackhole") == ("blackhole", 1)
    assert parse_fault("drop=2%") == ("drop", 0.02)
    for text in ("frop=1", "drop", "down=1", "=1"):
        with pytest.raises(HarpError, match="is no fault"):
            parse_fault(text)
    with pytest.raises(HarpError, match="2 numbers for 3 hosts"):
        parse_enis("2,8", 3)
    for name in ("", "a-b", "A", "x" * 17, "../x"):
        with pytest.raises(HarpError, match="can't be the name"):
            standing.down(name)


def test_not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for refused in (
        lambda: standing.up(NAME, LabSpec(switch=True)),
        lambda: standing.find(NAME),
        lambda: standing.down(NAME),
        standing.status,
    ):
        with pytest.raises(HarpError, match="needs root") as caught:
            refused()
        assert caught.value.exit_code is ExitCode.REFUSED
