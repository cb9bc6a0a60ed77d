# SPDX-License-Identifier: Apache-2.0
"""Many hosts looked at together: who is at fault, the report, eight hosts over ssh."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec import to_builtins
from msgspec.structs import replace

from harpctl.cli import app
from harpctl.errors import HarpError
from harpctl.fleet import DIST_VARIABLE, Remote
from harpctl.preflight import sessions
from harpctl.preflight.diagnosis import Fault, attribute_faults, host_problems, merge_notes
from harpctl.preflight.model import HostFinding, HostState, Problem, Rate, Report, Verdict
from harpctl.preflight.run import verdict_of
from harpctl.preflight.show import show_report
from harpctl.records import decode_json
from harplab.bench.nccl_wheel import NEWEST, fetch_nccl, wheel_of
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from harplab.perf.baseline import cache_dir
from tests.harpctl.preflight.build import make_eni, make_row, make_state

FAKE_SSH = r"""
import os, pathlib, sys
at = sys.argv.index("--")
host, command = sys.argv[at + 1], sys.argv[at + 2]
folder = pathlib.Path(os.environ["FAKE_HOSTS"]) / host
settings = (folder / "environment").read_text().splitlines()
netns = (folder / "netns").read_text()
os.execvp("ip", ["ip", "netns", "exec", netns, "env", *settings, "sh", "-c", command])
"""
CAP_MBPS, SLOW_MBPS = 100.0, 20.0
MTU = 1500
WAIT_S = 120


class Fleet:
    """The hosts of a lab, and an ssh that leads to them."""

    def __init__(self, folder: Path, lab: Lab, plugin: Path) -> None:
        self.lab = lab
        self.folder = folder
        self.names = [f"gpu{number}" for number in range(lab.spec.hosts)]
        for number, name in enumerate(self.names):
            host = folder / "hosts" / name
            host.mkdir(parents=True)
            (host / "netns").write_text(lab.hosts[number])
            (host / "ztcp0.conf").write_text("[eni]\ninterface = eni0\n")
            self.use(number, plugin)
        code, program = folder / "ssh.py", folder / "ssh"
        code.write_text(FAKE_SSH)
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(code))} "$@"\n')
        program.chmod(0o755)

    is_streamed = False

    def use(self, number: int, plugin: Path) -> None:
        """Let a host take a plugin."""
        host = self.folder / "hosts" / self.names[number]
        (host / "environment").write_text(f"HARP_CONF_DIR={host}\nNCCL_NET_PLUGIN={plugin}\n")

    def inside(self, number: int, *argv: str) -> None:
        subprocess.run(self.lab.command(number, argv), check=True, timeout=WAIT_S)

    def preflight(self, *words: str) -> tuple[int, dict[str, Any]]:
        """Run it over all hosts; return exit code and report."""
        env = {"PATH": f"{self.folder}:{os.environ['PATH']}", "FAKE_HOSTS": str(self.folder / "hosts")}
        here = shlex.join([sys.executable, "-m", "harpctl"])
        remote = ["--remote", here]
        if self.is_streamed:
            file = self.folder / "harp_setup.sh"
            file.write_text(f'# the one file\n{here} "$@"; exit $?\n')
            env[DIST_VARIABLE], remote = str(file), []
        argv = [sys.executable, "-m", "harpctl", "preflight", "-H", ",".join(self.names), "--json"]
        done = subprocess.run(
            [*argv, *remote, *words],
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=WAIT_S,
        )
        assert "problems" in done.stdout, done.stdout + done.stderr
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def make_fleet(
    make_lab: Callable[[LabSpec], Lab], tmp_path: Path, plugin_file: Path
) -> Callable[[LabSpec], Fleet]:
    return lambda spec: Fleet(tmp_path, make_lab(spec), plugin_file)


def test_an_agent_that_writes_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "OUTPUT_BYTES_MAX", 4096)
    monkeypatch.setattr(sessions, "ssh_words", lambda _host, _command: ["yes", "gpu1 speaks " * 50])
    agent = sessions.Agent("gpu1")
    try:
        agent.open(Remote(), ["agent"], WAIT_S)
    finally:
        agent.close()
    assert agent.state is None
    assert agent.failure is not None
    assert agent.failure.result == "failed"
    assert len(str(agent.failure)) < 2 * 4096


def another_build(plugin: Path, folder: Path) -> Path:
    """Return a copy of the plugin with another build id."""
    data = plugin.read_bytes()
    # The id follows the head of its ELF note: type 3, NT_GNU_BUILD_ID, and the name "GNU".
    at = data.index(b"GNU\0", data.index(b"\x03\0\0\0GNU\0")) + 4
    copy = folder / "libnccl-net-other.so"
    copy.write_bytes(data[:at] + bytes(byte ^ 0xFF for byte in data[at : at + 8]) + data[at + 8 :])
    return copy


def failed_checks(report: dict[str, Any]) -> dict[str, set[str]]:
    """Return the checks that failed, by the host that is named."""
    found: dict[str, set[str]] = {}
    for one in report["problems"]:
        if one["level"] == "fail":
            for host in one["hosts"]:
                found.setdefault(host, set()).add(one["check"])
    return found


@pytest.mark.lab
def test_four_of_eight_hosts_are_wrong(make_fleet: Callable[[LabSpec], Fleet], plugin_file: Path) -> None:
    fleet = make_fleet(LabSpec(hosts=8, cap_mbps=CAP_MBPS))
    fleet.lab.set_mtu(1, 0, MTU - 100)
    fleet.inside(3, "nft", "add table inet wall")
    fleet.inside(3, "nft", "add chain inet wall in { type filter hook input priority 0; }")
    fleet.inside(3, "nft", "add rule inet wall in udp dport 40000-50000 drop")
    fleet.lab.cap(4, 0, SLOW_MBPS)
    fleet.use(6, another_build(plugin_file, fleet.folder))
    code, report = fleet.preflight("--against", "none", "--time", "0.2")
    found = failed_checks(report)
    assert set(found) == {"gpu1", "gpu3", "gpu4", "gpu6"}, report["problems"]
    right = ({"mtu"}, {"rate"}, {"build"})
    assert (found["gpu1"], found["gpu4"], found["gpu6"]) == right, report["problems"]
    assert "ports" in found["gpu3"]  # and where its own source port is blocked, others
    assert (code, report["ok"], report["verdict"]["use"]) == (1, False, False)


@pytest.mark.lab
def test_two_hosts_are_compared(make_fleet: Callable[[LabSpec], Fleet], plugin_file: Path) -> None:
    fleet = make_fleet(LabSpec(hosts=2, cap_mbps=CAP_MBPS))
    fleet.is_streamed = True
    code, report = fleet.preflight(
        *("--against", str(plugin_file), "--time", "0.5", "--sizes", "64K", "--within", "100")
    )
    assert failed_checks(report) == {}, report["problems"]
    assert (code, report["ok"], report["rounds"], len(report["rates"])) == (0, True, 1, 2)
    assert [row["bytes"] for row in report["compared"]] == [64 << 10]
    assert all(rate["gbps"] > 0 for rate in report["rates"])
    assert report["pair"] == ["gpu0", "gpu1"]
    assert report["hosts"]["gpu0"]["wire"] == [1, 1]


@pytest.mark.lab
def test_time_that_runs_out_and_a_host_that_is_not_there(make_fleet: Callable[[LabSpec], Fleet]) -> None:
    fleet = make_fleet(LabSpec(hosts=3))
    (fleet.folder / "hosts" / "gpu2" / "netns").write_text("no-such-host")
    code, report = fleet.preflight("--within", "60", "--time", "60")
    assert failed_checks(report)["gpu2"] == {"ssh"}
    assert code == 4
    assert [one["cause"] for one in report["problems"] if one["check"] == "time"] == [
        "Time ran out: 0 of 1 rounds were measured in 60 s."
    ]


@pytest.mark.nccl
@pytest.mark.lab
def test_two_hosts_are_compared_with_nccls_own_sockets(make_fleet: Callable[[LabSpec], Fleet]) -> None:
    library = fetch_nccl(wheel_of(NEWEST), cache_dir())
    code, report = make_fleet(LabSpec(hosts=2, cap_mbps=CAP_MBPS)).preflight(
        *("--nccl-lib", str(library), "--time", "0.1", "--sizes", "1M")
    )
    assert (code, len(report["compared"]), report["verdict"]["use"] is None) == (0, 1, False), report


# ---- who is to attribute_faults ----


def with_own_addresses(states: dict[str, HostState]) -> dict[str, HostState]:
    """Return the states with an address of its own for each ENI."""
    return {
        host: replace(state, enis=tuple(replace(e, address=f"10.0.{n}.{k}") for k, e in enumerate(state.enis)))
        for n, (host, state) in enumerate(states.items())
    }


def make_fault(source: int, target: int, check: str = "udp") -> Fault:
    return Fault(check=check, source=f"gpu{source}", target=f"gpu{target}", cause="It is silent.")


HOSTS = [f"gpu{number}" for number in range(6)]


def failed_hosts_by_check(problems: Sequence[Problem]) -> list[tuple[str, ...]]:
    return [(one.check, *one.hosts) for one in problems if one.level == "fail"]


def test_the_host_that_fails_with_all_others_is_named_alone() -> None:
    found = attribute_faults([make_fault(number, 3) for number in range(6) if number != 3], HOSTS)
    assert failed_hosts_by_check(found) == [("udp", "gpu3")]
    assert "with 5 of 5 hosts" in found[0].cause
    assert not found[0].cause.startswith("From here")


def test_a_host_that_nobody_answers_is_named_with_its_direction() -> None:
    (found,) = attribute_faults([make_fault(3, 1), make_fault(3, 2)], HOSTS)
    assert found.cause == "From here to gpu1: It is silent. The same holds with 2 of 5 hosts."


def test_other_checks_of_a_named_host_are_its_own() -> None:
    faults = [*(make_fault(number, 3, "ports") for number in (0, 1, 2)), make_fault(3, 4, "mtu")]
    assert failed_hosts_by_check(attribute_faults(faults, HOSTS)) == [("ports", "gpu3"), ("mtu", "gpu3")]


def test_a_closed_port_is_not_of_the_host_whose_packets_are_too_large() -> None:
    """The firewall of gpu3 drops some answers too; gpu1 has a smaller MTU."""
    faults = [make_fault(number, 3, "ports") for number in (0, 1, 2)]
    faults += [make_fault(number, 1, "mtu") for number in (0, 2, 4, 5)]
    found = failed_hosts_by_check(attribute_faults([*faults, make_fault(3, 1)], HOSTS))
    assert set(found) == {("mtu", "gpu1"), ("ports", "gpu3"), ("udp", "gpu3")}


def test_a_pair_of_which_nobody_fails_elsewhere_is_named_as_a_pair() -> None:
    faults = [make_fault(4, 1), make_fault(1, 4), make_fault(2, 3, "mtu")]
    assert failed_hosts_by_check(attribute_faults(faults, HOSTS)) == [
        ("udp", "gpu1", "gpu4"),
        ("mtu", "gpu2", "gpu3"),
    ]


def test_two_hosts_at_fault() -> None:
    faults = [make_fault(a, b) for a in (1, 4) for b in range(6) if a != b]
    assert failed_hosts_by_check(attribute_faults(faults, HOSTS)) == [("udp", "gpu1"), ("udp", "gpu4")]


def test_hosts_unlike_most() -> None:
    states = {
        "a": make_state(),
        "b": make_state(build="other"),
        "c": make_state(version="1.1.0", wire=(2, 2)),
        "d": make_state(),
        "e": make_state(enis=(make_eni(mtu=9000),)),
        "f": make_state(enis=()),
        "g": make_state(perf=""),
    }
    found = host_problems(with_own_addresses(states))
    assert failed_hosts_by_check(found) == [
        ("conf", "f"),
        ("build", "g"),
        ("build", "b"),
        ("wire", "c"),
        ("mtu", "e"),
    ]
    assert any("no wire version in common: 2 here, 1 there" in one.cause for one in found)


def test_hosts_with_the_same_address_are_named() -> None:
    found = host_problems(
        {"a": make_state(), "b": make_state(), "c": make_state(enis=(make_eni(address="10.0.0.9"),))}
    )
    assert failed_hosts_by_check(found) == [("address", "a", "b")]


def test_one_host_by_two_names_is_named_once() -> None:
    one = make_state(boot="1-2", network="net:[5]")
    assert failed_hosts_by_check(
        host_problems({"a": one, "b": one, "c": make_state(boot="3", network="net:[5]", enis=())})
    ) == [
        ("conf", "c"),
        ("host", "a", "b"),
    ]


@pytest.mark.parametrize(
    ("boots", "expected"), [("12", [("warn", ("a", "b"))]), ("11", [])], ids=["clones", "containers"]
)
def test_hosts_with_one_machine_id(boots: str, expected: list[tuple[str, tuple[str, ...]]]) -> None:
    states = {
        host: make_state(boot=boot, network=f"net:[{host}]", machine_id="abc")
        for host, boot in zip("ab", boots, strict=True)
    }
    found = [one for one in host_problems(with_own_addresses(states)) if one.check == "address"]
    assert [(one.level, one.hosts) for one in found] == expected


def test_hosts_with_one_mac_are_named() -> None:
    states = with_own_addresses({host: make_state(enis=(make_eni(mac="52:54:00:00:00:01"),)) for host in "ab"})
    assert failed_hosts_by_check(host_problems(states)) == [("address", "a", "b")]


@pytest.mark.parametrize(
    "change",
    [
        {"ephemeral": [60999, 32768]},
        {"ephemeral": [0, 9]},
        {"enis": [{**to_builtins(make_eni()), "ports": [9, 1]}]},
        {"enis": [{**to_builtins(make_eni()), "tried": [70000]}]},
        {"enis": [{**to_builtins(make_eni()), "address": "none"}]},
    ],
)
def test_a_state_that_no_host_can_have_is_refused(change: dict[str, object]) -> None:
    good = to_builtins(make_state())
    assert decode_json(json.dumps(good), HostState, "It") == make_state()
    with pytest.raises(HarpError, match="It is not understood"):
        decode_json(json.dumps(good | change), HostState, "It")


def test_of_two_different_builds_both_are_named() -> None:
    assert failed_hosts_by_check(
        host_problems(with_own_addresses({"a": make_state(), "b": make_state(build="other")}))
    ) == [
        ("build", "a"),
        ("build", "b"),
    ]


def test_notes_that_all_hosts_have_are_one() -> None:
    note = HostFinding(id="hugepages.present", cause="None.")
    found = merge_notes(host_problems(with_own_addresses({name: make_state(warned=(note,)) for name in "abc"})))
    assert [(one.level, one.hosts) for one in found] == [("warn", ("a", "b", "c"))]


# ---- the verdict ----


@pytest.mark.parametrize(
    ("unfit", "use", "found", "text"),
    [
        ((), True, True, "Use HARP: It is twice as fast."),
        ((), False, False, "Do not use HARP: It is twice as fast."),
        ((), None, None, "HARP works on these hosts. It is twice as fast."),
        (("a", "b"), True, False, "Do not use HARP yet: not fit are a, b. It is twice as fast."),
    ],
)
def test_verdict(unfit: Sequence[str], use: bool | None, found: bool | None, text: str) -> None:
    verdict = verdict_of(unfit, Verdict(use=use, text="It is twice as fast."))
    assert (verdict.use, verdict.text) == (found, text)


RATES = tuple(Rate(source=a, target=b, eni="eth1", lane=0, gbps=10) for a, b in (("a", "b"), ("b", "a")))


def test_the_report_for_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(
        ok=False,
        verdict=Verdict(use=False, text="Do not use HARP yet."),
        problems=(Problem(check="mtu", level="fail", hosts=("b",), cause="Too small.", repair=("do it",)),),
        hosts={"a": make_state(), "b": make_state()},
        rates=RATES,
        pair=("a", "b"),
        compared=(make_row(1 << 19, 1.4),),
    )
    show_report(report, "Socket")
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert shown[:3] == [
        "host result HARP build ENIs out Gbit/s in Gbit/s",
        "a ok 1.0.0 abc eth1 10 10",
        "b failed 1.0.0 abc eth1 10 10",
    ]
    assert "fail b: mtu: Too small." in shown
    assert "512K 1.4 1 1.40 (1.40-1.40)" in shown
    assert shown[-1] == report.verdict.text


def test_wrong_usage() -> None:
    for words, code in ((["-H", "one"], 2), ([], 2), (["-H", "a,b", "--sizes", "x"], 2)):
        assert CliRunner().invoke(app, ["preflight", *words]).exit_code == code
