# SPDX-License-Identifier: Apache-2.0
"""`harpctl boot`: each ENI gets what the record says, whatever another one lacks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from harpctl import boot
from harpctl.change import store
from harpctl.change.journal import Journal
from harpctl.cli import app
from harpctl.confs.conf import CONF_DIR, Conf, render_conf
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Boot, Eni, Facts, Memory, System
from harpctl.facts.sources import RECORD
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed
from harpctl.network.model import EniPlan, Interfaces, encode_record
from harpctl.network.runtime import ARP
from tests.harpctl.links import FRESH, FakeLinks
from tests.harpctl.network.example import write_file

ENIS = (
    Eni(name="eth0", addresses=("10.0.0.10/24",), is_default_route=True, is_up=True, queues=8),
    Eni(name="eth1", mac="52:54:00:00:00:01", addresses=("10.0.1.11/24",), is_up=True, queues=8),
    Eni(name="eth2", mac="52:54:00:00:00:02", addresses=("10.0.2.12/24",), is_up=True, queues=4),
)
PLANS = tuple(
    EniPlan(number=number, name=eni.name, mac=eni.mac, address=eni.addresses[0], queues=4)
    for number, eni in enumerate(ENIS[1:])
)
CHANNELS = "ethtool -L eth1 combined 4"
ROUTE = "ip -4 route replace 10.0.2.0/24 dev eth2 scope link table 7701"


class Machine:
    """Answers `ip` as if only the route of eth2 lacked, remembers changes, and lets one program fail."""

    runs = True

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.changes: list[str] = []

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        del timeout_s
        if "show" in argv:
            answers = {
                "-4 rule show": "7700: from 10.0.1.11 lookup 7700\n7701: from 10.0.2.12 lookup 7701\n",
                "-4 route show table all": "10.0.1.0/24 dev eth1 table 7700 scope link\n",
            }
            answer = answers.get(" ".join(argv[1:]))
            return Completed(tuple(argv), int(answer is None), answer or "")
        self.changes.append(" ".join(argv))
        return Completed(tuple(argv), int(argv[0] == self.failing), "", "netlink error: no")


def use_facts(monkeypatch: pytest.MonkeyPatch, *enis: Eni) -> None:
    found = Facts(system=System(), boot=Boot(), memory=Memory(), enis=enis)
    monkeypatch.setattr(boot, "_gather_facts", lambda _host, _names: found)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Provide a host of two ENIs, and a conf file that can't be parsed beside theirs."""
    write_file(tmp_path, RECORD, encode_record(Interfaces(enis=PLANS)).decode())
    for number, plan in enumerate(PLANS):
        write_file(tmp_path, f"{CONF_DIR}/ztcp{number}.conf", render_conf(Conf(interface=plan.name)))
        for setting, value in ARP.items():
            write_file(tmp_path, f"/proc/sys/net/ipv4/conf/{plan.name}/{setting}", value)
    write_file(tmp_path, f"{CONF_DIR}/ztcp7.conf", "of some vendor")
    use_facts(monkeypatch, *ENIS)
    return tmp_path


def test_what_lacks_is_set(root: Path) -> None:
    machine = Machine()
    done = boot.run_boot(Host(root, machine))
    assert machine.changes == [CHANNELS, ROUTE]
    assert [one.step for one in done.steps] == machine.changes
    assert done.ok


def test_a_host_without_a_record_is_left_alone(root: Path) -> None:
    (root / RECORD[1:]).unlink()
    machine = Machine()
    assert boot.run_boot(Host(root, machine)).ok
    assert machine.changes == []


def test_a_command_that_fails_is_reported_and_the_others_run(root: Path) -> None:
    machine = Machine(failing="ethtool")
    done = boot.run_boot(Host(root, machine))
    assert machine.changes == [CHANNELS, ROUTE]
    assert [one.error for one in done.steps] == ["netlink error: no", ""]
    assert not done.ok


def test_an_eni_that_is_missing_keeps_no_other_from_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_facts(monkeypatch, ENIS[0], ENIS[2])
    machine = Machine()
    done = boot.run_boot(Host(root, machine))
    assert machine.changes == [ROUTE]
    assert [(one.step, one.error) for one in done.steps if one.error] == [
        ("eth1", "There is no interface eth1 on this host.")
    ]


def test_an_interface_that_took_the_name_gets_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_facts(monkeypatch, ENIS[0], replace(ENIS[1], mac="52:54:00:00:00:99"), ENIS[2])
    machine = Machine()
    assert not boot.run_boot(Host(root, machine)).ok
    assert machine.changes == [ROUTE]


@pytest.mark.parametrize("chosen", [True, False, None])
def test_big_tcp_is_set_again_where_it_was_chosen(
    root: Path, monkeypatch: pytest.MonkeyPatch, chosen: bool | None
) -> None:
    write_file(root, RECORD, encode_record(Interfaces(enis=PLANS, big_tcp=chosen)).decode())
    links = FakeLinks(eth1=dict(FRESH), eth2=dict(FRESH))
    use_facts(monkeypatch, *(replace(eni, **links.sizes(eni.name)) for eni in ENIS))
    del links.interfaces["eth2"]  # it goes while it is looked at
    done = boot.run_boot(Host(root, Machine(), links))
    assert links.sizes("eth1")["gso_ipv4_max_size"] == (131072 if chosen else 65536)
    sizes = " ".join(f"{size}=131072" for size in FRESH if size != "tso_max_size")
    expected = [(f"set {sizes} of eth1", ""), (f"set {sizes} of eth2", "No such device")]
    assert [(one.step, one.error) for one in done.steps[2:]] == (expected if chosen else [])


def test_nothing_is_changed_beside_another_harpctl(root: Path) -> None:
    machine, host = Machine(), Host(root)
    store.make_folder(host)
    with store.hold_lock(host), pytest.raises(HarpError, match="Another harpctl"):
        boot.run_boot(Host(root, machine))
    assert machine.changes == []
    assert boot.run_boot(Host(root, machine)).ok


def test_nothing_is_changed_before_an_interrupted_transaction_is_undone(root: Path) -> None:
    machine, host = Machine(), Host(root)
    store.make_folder(host)
    Journal(host).begin("setup")
    with pytest.raises(HarpError, match="was interrupted") as caught:
        boot.run_boot(Host(root, machine))
    assert "harpctl rollback" in caught.value.hint
    assert machine.changes == []


def test_the_command_reports_what_it_did(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boot, "Host", lambda: Host(root, Machine(failing="ethtool")))
    done = CliRunner().invoke(app, ["boot", "--json"])
    assert done.exit_code == ExitCode.FAILED
    result = json.loads(done.stdout)
    assert result["steps"][0] == {"step": CHANNELS, "error": "netlink error: no"}
    assert not result["ok"]
