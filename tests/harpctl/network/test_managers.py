# SPDX-License-Identifier: Apache-2.0
"""Files for each manager on trees of distributions, refusals, and the second run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from harpctl.change.steps import Group, MakeLink, Plan, RemoveFile, WriteFile, drop_held_steps
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Facts
from harpctl.facts.sources import RECORD, collect_sources
from harpctl.host.host import Host
from harpctl.network.managers import IFUPDOWN, NETWORKMANAGER, RELOAD
from harpctl.network.model import EniPlan, Interfaces, decode_record, encode_record
from harpctl.network.plan import plan_network
from tests.harpctl.machine import DISTROS, build_machine
from tests.harpctl.network.example import (
    ENIS,
    ETH1,
    ETH2,
    ETH3,
    ScriptedRunner,
    carry_out,
    commands_of,
    make_eni,
    make_facts,
    undos_of,
    write_file,
)

NETPLAN = {"ubuntu-18.04", "ubuntu-20.04", "ubuntu-22.04", "ubuntu-24.04"}
NM = {"rocky-8", "rocky-9", "tencentos-3.1", "tencentos-4"}
IFCFG = {"centos-7", "tencentos-2.4"}
NETWORKD_FILES = {f"/etc/systemd/network/0-harp-{one.name}.network" for one in ENIS}


def steps_of(host: Host, enis: tuple[EniPlan, ...] = ENIS, found: Facts | None = None) -> list[object]:
    known = found or make_facts(*map(make_eni, {one.name for one in enis}))
    sources = collect_sources(host, known.enis, program="harpctl")
    (group,) = plan_network(found or make_facts(), sources, Interfaces(enis=enis))
    return list(group.steps)


def texts_of(steps: list[object]) -> dict[str, str]:
    return {step.path: step.data.decode() for step in steps if isinstance(step, WriteFile)}


def paths_of(steps: list[object]) -> set[str]:
    return {step.path for step in steps if isinstance(step, WriteFile | MakeLink)}


@pytest.mark.parametrize("distro", DISTROS)
def test_files_of_a_distribution(tmp_path: Path, distro: str) -> None:
    host = Host(build_machine(tmp_path, distro, "gpu2"))
    if distro in IFCFG:
        write_file(tmp_path, "/etc/sysconfig/network-scripts/ifcfg-eth1", "DEVICE=eth1\nONBOOT=yes\n")
    wanted = {RECORD}
    if distro in NETPLAN or distro == "debian-12":
        wanted |= NETWORKD_FILES
    if distro == "debian-12":
        wanted |= {IFUPDOWN, *(f"/etc/systemd/system/ifup@{one.name}.service" for one in ENIS)}
    if distro in NM:
        wanted |= {NETWORKMANAGER}
    if distro in IFCFG:
        wanted |= {"/etc/sysconfig/network-scripts/ifcfg-eth1"}
    steps = steps_of(host)
    assert paths_of(steps) == wanted
    carry_out(host, steps)
    for step in steps:
        if isinstance(step, MakeLink):
            host.make_dir(step.path.rpartition("/")[0]) if not host.is_dir(step.path.rpartition("/")[0]) else None
            host.make_link(step.path, step.target)
    again = Group(name="", steps=tuple(steps_of(host)))  # type: ignore[arg-type]
    assert drop_held_steps(Plan(groups=(again,)), host).is_empty


def test_no_manager_is_no_reason_to_stop(tmp_path: Path) -> None:
    assert paths_of(steps_of(Host(tmp_path))) == {RECORD}


def test_an_eni_that_is_not_used_any_more_leaves_nothing(tmp_path: Path) -> None:
    host = Host(build_machine(tmp_path, "debian-12", "gpu2"))
    steps = steps_of(host, (ETH1, ETH2))
    carry_out(host, steps)
    steps = steps_of(host, (ETH1,))
    gone = {step.path for step in steps if isinstance(step, RemoveFile)}
    assert "/etc/systemd/network/0-harp-eth2.network" in gone
    assert "/etc/systemd/system/ifup@eth2.service" in gone
    assert all("eth2" not in text for text in texts_of(steps).values())


# ---- the record ----


def test_the_record_is_read_as_it_was_written() -> None:
    record = Interfaces(enis=ENIS, big_tcp=False)
    assert decode_record(encode_record(record)) == record
    assert decode_record(None) == Interfaces()


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"enis": 5}', '{"enis": [{"number": 0, "name": "eth1", "address": "10.0.1"}]}', '{"x": 1}'],
)
def test_a_record_that_is_damaged_is_refused(text: str) -> None:
    with pytest.raises(HarpError, match=RECORD) as caught:
        decode_record(text.encode())
    assert caught.value.exit_code is ExitCode.WRONG_DATA


# ---- systemd-networkd ----


@pytest.fixture
def networkd(tmp_path: Path) -> Host:
    write_file(tmp_path, "/usr/bin/networkctl", mode=0o755)
    return Host(tmp_path)


@pytest.mark.parametrize("other", ["05-all.network", "00-a.network", "10-netplan-a-nic1.network", "0-x.network"])
def test_the_file_of_networkd_is_its_first(networkd: Host, other: str) -> None:
    write_file(networkd.root, f"/run/systemd/network/{other}", "[Match]\nName=*\n")
    (path,) = (path for path in texts_of(steps_of(networkd, (ETH1,))) if path != RECORD)
    assert path.rpartition("/")[2] < other
    assert "Unmanaged=yes" in texts_of(steps_of(networkd, (ETH1,)))[path]


@pytest.mark.parametrize("other", ["-a.network", "0-a.network", "+.network"])
def test_an_earlier_file_of_networkd_is_refused(networkd: Host, other: str) -> None:
    write_file(networkd.root, f"/usr/lib/systemd/network/{other}", "[Match]\nName=*\n")
    with pytest.raises(HarpError, match=f"reads /usr/lib/systemd/network/.*{other[1:]}") as caught:
        steps_of(networkd, (ETH1,))
    assert "mv /usr/lib" in caught.value.hint
    assert caught.value.exit_code is ExitCode.REFUSED


# ---- NetworkManager ----

OLD = "11111111-2222-3333-4444-555555555555"


def make_networkmanager(root: Path, state: str, uuid: str = OLD) -> Host:
    write_file(root, "/usr/sbin/NetworkManager", mode=0o755)
    write_file(root, "/usr/sbin/ip", mode=0o755)
    show = "nmcli -t -f GENERAL.STATE,GENERAL.CON-UUID device show eth1"
    answer = f"GENERAL.STATE:{state}\nGENERAL.CON-UUID:{uuid}\n"
    return Host(root, ScriptedRunner({show: answer, "nmcli -t -f RUNNING general": "running\n"}))


def test_a_running_networkmanager_leaves_the_eni_as_it_is(tmp_path: Path) -> None:
    steps = steps_of(make_networkmanager(tmp_path, "100 (connected)"), (ETH1,), make_facts(make_eni("eth1")))
    assert commands_of(steps)[0] == "nmcli device set eth1 managed no"
    assert undos_of(steps)[:3] == [
        f"nmcli --wait 45 connection up uuid {OLD} ifname eth1",
        "nmcli device set eth1 managed yes",
        f"sh -c {RELOAD}",
    ]
    assert f"unmanaged-devices+=mac:{ETH1.mac}\n" in texts_of(steps)[NETWORKMANAGER]


def test_a_connection_that_was_not_up_is_not_waited_for(tmp_path: Path) -> None:
    host = make_networkmanager(tmp_path, "70 (connecting (getting IP configuration))")
    steps = steps_of(host, (ETH1,), make_facts(make_eni("eth1")))
    assert f"nmcli --wait 0 connection up uuid {OLD} ifname eth1" in undos_of(steps)


@pytest.mark.parametrize("state", ["10 (unmanaged)", "10 (nicht verwaltet)"])
def test_an_eni_that_is_unmanaged_needs_no_command(tmp_path: Path, state: str) -> None:
    steps = steps_of(make_networkmanager(tmp_path, state, "--"), (ETH1,), make_facts(make_eni("eth1")))
    assert not any("nmcli device" in line for line in commands_of(steps) + undos_of(steps))


@pytest.mark.parametrize(
    ("kind", "others", "selector"),
    [
        ("0", (), f"mac:{ETH1.mac}"),
        ("3", (), "interface-name:=eth1"),
        ("0", (make_eni("br0", mac=ETH1.mac),), "interface-name:=eth1"),
    ],
)
def test_an_eni_is_known_by_what_is_its_own(
    tmp_path: Path, kind: str, others: tuple[object, ...], selector: str
) -> None:
    write_file(tmp_path, "/sys/class/net/eth1/addr_assign_type", f"{kind}\n")
    found = make_facts(make_eni("eth1", mac=ETH1.mac), *others)  # type: ignore[arg-type]
    text = texts_of(steps_of(make_networkmanager(tmp_path, "10 (unmanaged)"), (ETH1,), found))[NETWORKMANAGER]
    assert f"unmanaged-devices+={selector}\n" in text


def test_what_networkmanager_makes_can_not_be_taken_from_it(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="eth1 is a vlan of NetworkManager") as caught:
        steps_of(
            make_networkmanager(tmp_path, "100 (connected)"),
            (ETH1,),
            make_facts(make_eni("eth1", kind="vlan")),
        )
    assert "--no-network" in caught.value.hint
    steps = steps_of(
        make_networkmanager(tmp_path, "10 (unmanaged)"), (ETH1,), make_facts(make_eni("eth1", kind="vlan"))
    )
    assert NETWORKMANAGER not in texts_of(steps)


# ---- network-scripts and ifupdown ----


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("ifcfg-eth1", "ONBOOT=yes\nBOOTPROTO=dhcp", "ONBOOT=no\nBOOTPROTO=dhcp\nNM_CONTROLLED=no\n"),
        ("ifcfg-x", 'DEVICE="eth1"\n NM_CONTROLLED=yes\n', 'DEVICE="eth1"\nNM_CONTROLLED=no\nONBOOT=no\n'),
        (
            "ifcfg-y",
            f"HWADDR={ETH1.mac.upper()}\n",
            f"HWADDR={ETH1.mac.upper()}\nONBOOT=no\nNM_CONTROLLED=no\n",
        ),
        ("ifcfg-eth0", "DEVICE=eth0\n", None),
        ("ifcfg-eth1.bak", "DEVICE=eth1\n", None),
        ("ifcfg-eth1", "DEVICE=eth7\n", None),
    ],
)
def test_ifcfg_files_of_enis_are_not_started(tmp_path: Path, file: str, text: str, expected: str | None) -> None:
    write_file(tmp_path, "/etc/rc.d/init.d/network")
    path = f"/etc/sysconfig/network-scripts/{file}"
    write_file(tmp_path, path, text)
    assert texts_of(steps_of(Host(tmp_path), (ETH1,))).get(path) == expected


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, 'EXCLUDE_INTERFACES="eth1"\n'),
        ("A=1", 'A=1\nEXCLUDE_INTERFACES="eth1"\n'),
        ("EXCLUDE_INTERFACES=eth9\nA=1\n", 'A=1\nEXCLUDE_INTERFACES="eth9 eth1"\n'),
        ("EXCLUDE_INTERFACES='a b eth1'\n", 'EXCLUDE_INTERFACES="a b eth1"\n'),
        ("#EXCLUDE_INTERFACES=\n", '#EXCLUDE_INTERFACES=\nEXCLUDE_INTERFACES="eth1"\n'),
    ],
)
def test_ifupdown_excludes_the_enis_too(tmp_path: Path, before: str | None, after: str) -> None:
    write_file(tmp_path, "/usr/sbin/ifup", mode=0o755)
    write_file(tmp_path, "/etc/network/interfaces", "iface eth0 inet dhcp\n")
    if before is not None:
        write_file(tmp_path, IFUPDOWN, before)
    assert texts_of(steps_of(Host(tmp_path), (ETH1,)))[IFUPDOWN] == after


def test_a_units_instance_is_escaped(tmp_path: Path) -> None:
    write_file(tmp_path, "/usr/sbin/ifup", mode=0o755)
    write_file(tmp_path, "/etc/network/interfaces", "")
    plan = msgspec.structs.replace(ETH1, name="a-b@7")
    assert "/etc/systemd/system/ifup@a\\x2db\\x407.service" in paths_of(steps_of(Host(tmp_path), (plan,)))


# ---- what may not be ----


@pytest.fixture
def build_tree() -> Callable[[Path], Host]:
    return lambda folder: Host(build_machine(folder, "ubuntu-22.04", "gpu2"))


@pytest.mark.parametrize("fields", [{"is_default_route": True}, {"carries_ssh": True}])
def test_the_way_in_gets_no_address(
    tmp_path: Path, fields: dict[str, bool], build_tree: Callable[[Path], Host]
) -> None:
    host, found = build_tree(tmp_path), make_facts(make_eni("eth1", **fields))
    with pytest.raises(HarpError, match="could cut this host off") as caught:
        steps_of(host, (ETH1,), found)
    assert caught.value.exit_code is ExitCode.REFUSED
    managed = EniPlan(number=0, name="eth1", mtu=9000)
    assert paths_of(steps_of(host, (managed,), found)) == {RECORD}


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
        steps_of(build_tree(tmp_path), (plan,))


def test_one_address_twice_is_refused(tmp_path: Path, build_tree: Callable[[Path], Host]) -> None:
    twin = msgspec.structs.replace(ETH3, address=ETH1.address, gateway="")
    with pytest.raises(HarpError, match=r"eth1 and eth3\.100 would both have"):
        steps_of(build_tree(tmp_path), (ETH1, twin))
