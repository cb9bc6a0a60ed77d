# SPDX-License-Identifier: Apache-2.0
"""The files of each manager: golden per distribution, read back by other readers, and the second run."""

from __future__ import annotations

import configparser
import subprocess
from collections.abc import Callable
from pathlib import Path
from shutil import which

import msgspec
import pytest

from harpctl.change.steps import Plan, RemoveFile, WriteFile, needed
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.network import keyfile
from harpctl.network.manager import Manager, detect
from harpctl.network.plan import plan_network
from tests.harpctl.machine import DISTROS, build
from tests.harpctl.network.example import ENIS, ETH1, ETH2, ETH3, carry_out, eni, facts, put

GOLDEN = Path(__file__).parent / "golden"
MANAGERS = {
    "ubuntu-18.04": Manager.NETPLAN,
    "ubuntu-20.04": Manager.NETPLAN,
    "ubuntu-22.04": Manager.NETPLAN,
    "ubuntu-24.04": Manager.NETPLAN,
    "debian-12": Manager.IFUPDOWN,
    "centos-7": Manager.IFCFG,
    "tencentos-2.4": Manager.IFCFG,
    "rocky-8": Manager.NETWORKMANAGER,
    "rocky-9": Manager.NETWORKMANAGER,
    "tencentos-3.1": Manager.NETWORKMANAGER,
    "tencentos-4": Manager.NETWORKMANAGER,
}


def _text(steps: tuple[object, ...]) -> str:
    parts = []
    for step in steps:
        assert isinstance(step, WriteFile | RemoveFile)
        if isinstance(step, RemoveFile):
            parts.append(f"=== {step.path} removed\n")
        else:
            mode = "" if step.mode is None else f" {step.mode:04o}"
            parts.append(f"=== {step.path}{mode}\n{step.data.decode()}")
    return "".join(parts)


def _compare(name: str, text: str) -> None:
    """Compare with the golden file; one that is missing is written, and the test fails this once."""
    file = GOLDEN / f"{name}.txt"
    if not file.exists():
        file.write_text(text)
        pytest.fail(f"{file} was missing and is written: look at it, and keep it")
    assert text == file.read_text()


@pytest.mark.parametrize("distro", DISTROS)
def test_files_of_a_distribution(tmp_path: Path, distro: str) -> None:
    host = Host(build(tmp_path, distro, "gpu2"))
    assert detect(host) is MANAGERS[distro]
    (group,) = plan_network(facts(), host, ENIS)
    assert not group.guarded
    _compare(MANAGERS[distro].name.lower(), _text(group.steps))
    carry_out(host, group.steps)
    again = Plan(groups=tuple(plan_network(facts(), host, ENIS)))
    assert needed(again, host).is_empty


def _netplan(tmp_path: Path, text: str) -> Host:
    put(tmp_path, "/usr/sbin/netplan", mode=0o755)
    put(tmp_path, "/etc/netplan/50-cloud-init.yaml", text)
    return Host(tmp_path)


def test_netplan_that_renders_for_networkmanager_gets_no_file_of_networkd(tmp_path: Path) -> None:
    host = _netplan(tmp_path, "network:\n  version: 2\n  renderer: NetworkManager\n")
    assert detect(host) is Manager.NETPLAN_NM
    (group,) = plan_network(facts(), host, [ETH1])
    assert [step.path for step in group.steps if isinstance(step, WriteFile)] == [
        "/etc/netplan/90-harp.yaml",
        "/etc/sysctl.d/90-harp.conf",
    ]


def test_a_pattern_in_netplan_is_preceded_by_a_file_of_networkd(tmp_path: Path) -> None:
    text = "network:\n  ethernets:\n    all-en:\n      match:\n        name: en*\n      dhcp4: true\n"
    host = _netplan(tmp_path, text)
    assert detect(host) is Manager.NETWORKD
    (group,) = plan_network(facts(), host, ENIS)
    _compare("networkd", _text(group.steps))


def test_netplan_without_files_is_not_in_use(tmp_path: Path) -> None:
    put(tmp_path, "/usr/sbin/netplan", mode=0o755)
    put(tmp_path, "/usr/sbin/NetworkManager", mode=0o755)
    (tmp_path / "etc/netplan").mkdir(parents=True)
    assert detect(Host(tmp_path)) is Manager.NETWORKMANAGER


def test_no_manager_names_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="Nothing that configures the network") as caught:
        plan_network(facts(), Host(tmp_path), [ETH1])
    assert "--no-network" in caught.value.hint
    assert caught.value.exit_code is ExitCode.MISSING


def test_no_enis_no_groups(tmp_path: Path) -> None:
    assert plan_network(facts(), Host(tmp_path), []) == []


@pytest.mark.parametrize(
    ("source", "file"),
    [
        ("source /etc/network/interfaces.d/*", "90-harp"),
        ("source interfaces.d/*.cfg", "90-harp.cfg"),
        ("source-directory /etc/network/interfaces.d", "90-harp"),
    ],
)
def test_ifupdown_takes_the_name_that_is_read(tmp_path: Path, source: str, file: str) -> None:
    put(tmp_path, "/usr/sbin/ifup", mode=0o755)
    put(tmp_path, "/etc/network/interfaces", f"{source}\niface eth0 inet dhcp\n")
    (group,) = plan_network(facts(), Host(tmp_path), [ETH1])
    paths = [step.path for step in group.steps if isinstance(step, WriteFile)]
    assert paths == [f"/etc/network/interfaces.d/{file}", "/etc/sysctl.d/90-harp.conf"]


def test_ifupdown_that_reads_no_folder_gets_a_source_line(tmp_path: Path) -> None:
    put(tmp_path, "/usr/sbin/ifup", mode=0o755)
    put(tmp_path, "/etc/network/interfaces", "iface eth0 inet dhcp")
    host = Host(tmp_path)
    (group,) = plan_network(facts(), host, [ETH1])
    carry_out(host, group.steps)
    text = host.read_text("/etc/network/interfaces")
    assert text == "iface eth0 inet dhcp\nsource /etc/network/interfaces.d/90-harp\n"
    assert needed(Plan(groups=tuple(plan_network(facts(), host, [ETH1]))), host).is_empty


@pytest.mark.parametrize("distro", ["ubuntu-22.04", "rocky-9", "centos-7", "networkd"])
def test_an_eni_that_is_not_used_any_more_leaves_no_file(tmp_path: Path, distro: str) -> None:
    if distro == "networkd":
        put(tmp_path, "/etc/systemd/network/50-all.network")
    else:
        build(tmp_path, distro, "gpu2")
    host = Host(tmp_path)
    for group in plan_network(facts(), host, [ETH1, ETH2]):
        carry_out(host, group.steps)
    (group,) = plan_network(facts(), host, [ETH1])
    gone = {step.path for step in group.steps if isinstance(step, RemoveFile)}
    assert gone
    assert all("eth2" in path for path in gone)
    assert all("eth2" not in step.data.decode() for step in group.steps if isinstance(step, WriteFile))


def test_ifcfg_files_of_others_stay(tmp_path: Path) -> None:
    host = Host(build(tmp_path, "centos-7", "gpu2"))
    (group,) = plan_network(facts(), host, [ETH1])
    assert "/etc/sysconfig/network-scripts/ifcfg-eth0" not in {getattr(s, "path", "") for s in group.steps}


@pytest.mark.parametrize("plan", ENIS, ids=lambda plan: str(plan.name))
def test_keyfiles_parse(plan: object) -> None:
    assert isinstance(plan, type(ETH1))
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=True)
    parser.read_string(keyfile.keyfile(plan))
    own = parser["ipv4" if plan.version == 4 else "ipv6"]
    assert own["address1"] == plan.address
    assert own["route-table"] == str(plan.table)
    assert own["method"] == "manual"
    assert parser["connection"]["interface-name"] == plan.name


def test_no_connection_of_others_has_a_higher_priority() -> None:
    """NetworkManager takes -999 to 999, and cloud-init's profiles have 120."""
    assert "autoconnect-priority=999\n" in keyfile.keyfile(ETH1)


def test_keyfile_keeps_its_identity(tmp_path: Path) -> None:
    del tmp_path
    assert keyfile.identity(ETH1) == keyfile.identity(ETH1)
    assert keyfile.identity(ETH1) != keyfile.identity(ETH2)


@pytest.mark.parametrize("distro", ["ubuntu-18.04", "ubuntu-24.04"])
def test_netplan_accepts_the_file(tmp_path: Path, distro: str) -> None:
    if which("netplan") is None:
        pytest.skip("needs the program netplan (apt-get install netplan.io)")
    host = Host(build(tmp_path, distro, "gpu2"))
    for group in plan_network(facts(), host, ENIS):
        carry_out(host, group.steps)
    done = subprocess.run(
        ["netplan", "generate", "--root-dir", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    made = host.read_text("/run/systemd/network/10-netplan-eth1.network") or ""
    for line in ("Address=10.0.1.11/24", "Table=7700", "From=10.0.1.11", "Priority=7700", "Gateway=10.0.1.1"):
        assert line in made.splitlines()
    assert "DHCP=yes" not in made
    # No .link file may take away the name of an interface whose name the kernel didn't give.
    assert "Name=" not in (host.read_text("/run/systemd/network/10-netplan-eth1.link") or "").replace(
        "OriginalName=eth1", ""
    )


# ---- what may not be ----


@pytest.mark.parametrize("fields", [{"is_default_route": True}, {"carries_ssh": True}])
def test_the_way_in_is_not_touched_unless_forced(
    tmp_path: Path, fields: dict[str, bool], build_tree: Callable[[Path], Host]
) -> None:
    host, found = build_tree(tmp_path), facts(eni("eth1", **fields))
    with pytest.raises(HarpError, match="could cut this host off") as caught:
        plan_network(found, host, [ETH1])
    assert caught.value.exit_code is ExitCode.REFUSED
    assert plan_network(found, host, [ETH1], force=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "10.0.1.500/24"}, "eth1: '10.0.1.500/24' does not appear"),
        ({"gateway": "fd00::1"}, "of another IP version"),
        ({"gateway": "router"}, "eth1: 'router' does not appear"),
        ({"number": 16}, "at most 16"),
    ],
)
def test_nonsense_is_refused(
    tmp_path: Path, changes: dict[str, object], message: str, build_tree: Callable[[Path], Host]
) -> None:
    plan = msgspec.structs.replace(ETH1, **changes)
    with pytest.raises(HarpError, match=message):
        plan_network(facts(), build_tree(tmp_path), [plan])


def test_one_address_twice_is_refused(tmp_path: Path, build_tree: Callable[[Path], Host]) -> None:
    twin = msgspec.structs.replace(ETH3, address=ETH1.address, gateway="")
    with pytest.raises(HarpError, match=r"eth1 and eth3\.100 would both have"):
        plan_network(facts(), build_tree(tmp_path), [ETH1, twin])


@pytest.fixture
def build_tree() -> Callable[[Path], Host]:
    return lambda folder: Host(build(folder, "ubuntu-22.04", "gpu2"))
