# SPDX-License-Identifier: Apache-2.0
"""`harpctl boot`: what a boot forgets is set again, and the host is checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace
from typer.testing import CliRunner

from harpctl import boot
from harpctl.confs.conf import CONF_DIR, Conf, render
from harpctl.doctor.model import Finding
from harpctl.facts.model import Boot, Eni, Facts, Memory, System
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed
from tests.harpctl.cli_app import app
from tests.harpctl.links import FRESH, FakeLinks

CROWDING = "10.0.0.0/24 dev eth1 proto kernel scope link src 10.0.0.11"
FLUSH = "ip -4 route flush exact 10.0.0.0/24 dev eth1 table main"
ENIS = (
    Eni(name="eth0", addresses=("10.0.0.10/24",), is_default_route=True, queues=8, queues_max=8),
    Eni(name="eth1", addresses=("10.0.0.11/24",), queues=8, queues_max=8),
    Eni(name="eth2", addresses=("10.0.2.12/24",), queues=4, queues_max=8),
    Eni(name="eth3", addresses=("10.0.3.13/24",), queues=0),
)


class Machine:
    """Answers `ip`, remembers what changes something, and lets one program fail."""

    runs = True

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.changes: list[str] = []

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        del timeout_s
        if "show" in argv:
            return Completed(tuple(argv), 0, f"default via 10.0.0.1 dev eth0\n{CROWDING}\n")
        self.changes.append(" ".join(argv))
        return Completed(tuple(argv), int(argv[0] == self.failing), "", "netlink error: no")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host with three conf files, and one that cannot be parsed; all checks pass."""
    folder = tmp_path / CONF_DIR[1:]
    folder.mkdir(parents=True)
    for number, eni in enumerate(ENIS[1:]):
        conf = Conf(interface=eni.name, address=eni.addresses[0].partition("/")[0])
        (folder / f"ztcp{number}.conf").write_text(render(conf))
    (folder / "ztcp7.conf").write_text("of some vendor")
    monkeypatch.setattr(
        boot, "collect", lambda _host: Facts(system=System(), boot=Boot(), memory=Memory(), enis=ENIS)
    )
    found = [Finding(id="a.b", title="All is well", group="a", level="ok")]
    monkeypatch.setattr(boot, "examine", lambda _context, only_validating: found if only_validating else [])
    return tmp_path


def test_channels_and_the_crowding_route_are_set_again(root: Path) -> None:
    machine = Machine()
    done = boot.run_boot(Host(root, machine), 4)
    assert machine.changes == ["ethtool -L eth1 combined 4", FLUSH]  # eth3 does not report how many it has
    assert [one.command for one in done.commands] == machine.changes
    assert done.ok


def test_channels_stay_where_none_are_requested(root: Path) -> None:
    machine = Machine()
    boot.run_boot(Host(root, machine), None)
    assert machine.changes == [FLUSH]


def test_big_tcp_is_set_again_where_it_is_wanted(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = FakeLinks(eth1=dict(FRESH), eth2=dict(FRESH))
    enis = tuple(replace(eni, **links.sizes(eni.name)) for eni in ENIS)
    monkeypatch.setattr(
        boot, "collect", lambda _host: Facts(system=System(), boot=Boot(), memory=Memory(), enis=enis)
    )
    del links.interfaces["eth2"]  # it goes while it is looked at
    boot.run_boot(Host(root, Machine(), links), None)
    assert links.sizes("eth1") == FRESH
    done = boot.run_boot(Host(root, Machine(), links), None, big_tcp=True)
    assert links.sizes("eth1")["gso_ipv4_max_size"] == 131072
    sizes = " ".join(f"{size}=131072" for size in FRESH if size != "tso_max_size")
    assert [(one.command, one.error) for one in done.commands[1:]] == [
        (f"set {sizes} of eth1", ""),
        (f"set {sizes} of eth2", "No such device"),
    ]
    assert not done.ok


def test_a_command_that_fails_is_reported_and_the_others_run(root: Path) -> None:
    machine = Machine(failing="ethtool")
    done = boot.run_boot(Host(root, machine), 4)
    assert machine.changes == ["ethtool -L eth1 combined 4", FLUSH]
    assert [one.error for one in done.commands] == ["netlink error: no", ""]
    assert not done.ok


def test_what_validate_finds_fails_the_unit(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = Finding(id="a.c", title="The ENIs are up", group="a", level="fail", cause="eth1 is down.")
    monkeypatch.setattr(boot, "examine", lambda _context, only_validating: [bad] if only_validating else [])
    monkeypatch.setattr(boot, "Host", lambda: Host(root, Machine()))
    done = CliRunner().invoke(app, ["boot", "--json"])
    assert done.exit_code == 1
    result = json.loads(done.stdout)
    assert result["failed"] == ["The ENIs are up: eth1 is down."]
    assert not result["ok"]
