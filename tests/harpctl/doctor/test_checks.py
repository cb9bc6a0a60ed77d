# SPDX-License-Identifier: Apache-2.0
"""Every check in both directions: silent on a healthy host, and right about each way to spoil one."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from msgspec.structs import replace

from harpctl.change.apply import apply_plan
from harpctl.change.rollback import roll_back
from harpctl.change.steps import Plan, Run
from harpctl.console import NoProgress
from harpctl.doctor.context import DoctorOptions, selected_names
from harpctl.doctor.drivers import LOCKED_BYTES, ONE_BUFFER_MTU
from harpctl.doctor.examine import run_checks, safe_repairs
from harpctl.doctor.limits import SOCKET_BUFFER
from harpctl.doctor.model import CHECKS, HEADINGS, worst_level
from harpctl.facts.model import HugeMount, Pages
from harpctl.units import MIB
from tests.harpctl.doctor.cases import CASES, Case
from tests.harpctl.doctor.cases.hugepages import no_pages, pages_after_reboot
from tests.harpctl.doctor.cases.nccl_itself import can_not_encrypt, no_gdrcopy
from tests.harpctl.doctor.cases.system import undisciplined_clock
from tests.harpctl.doctor.world import LIBRARY, World, make_copy


def test_healthy_host(world: World) -> None:
    world.options = DoctorOptions(peers=("10.0.1.99",))
    not_ok = [finding for finding in world.findings() if finding.level != "ok"]
    assert {finding.cause for finding in not_ok} == {"This is no container."}
    assert {finding.level for finding in not_ok} == {"skip"}
    assert world.machine
    assert {(probe[0], probe[2], probe[3], probe[4]) for probe in world.machine.probed} == {
        ("10.0.1.11", 17700, 9000, (32768, 60999)),
        ("10.0.2.12", 17700, 9000, (32768, 60999)),
    }


def test_healthy_container(world: World) -> None:
    world.in_container()
    found = {finding.id: finding.level for finding in world.findings()}
    assert {id_ for id_, level in found.items() if level == "fail"} == set()
    assert {id_ for id_ in found if id_.startswith("namespace.")} == {
        id_ for id_, level in found.items() if id_.startswith("namespace.") and level == "ok"
    }


@pytest.mark.parametrize("one", CASES, ids=lambda one: f"{one.id}-{one.spoil.__name__}")
def test_case(world: World, one: Case) -> None:
    one.spoil(world)
    found = world.findings(one.id)
    matching = [finding for finding in found if one.cause in finding.cause]
    assert matching, [finding.cause for finding in found]
    assert matching[0].level == one.level
    assert matching[0].repair == one.repair
    assert matching[0].is_safe == one.is_safe
    assert matching[0].title == CHECKS[one.id].title
    assert one.level == "ok" or all(finding.level != "ok" for finding in found)
    assert matching[0].cause.endswith(".") or one.id == "confs.parse"  # the latter is the plugin's own sentence


def test_each_check_has_a_case() -> None:
    assert {one.id for one in CASES} == set(CHECKS)
    assert {check.group for check in CHECKS.values()} == set(HEADINGS)
    assert len(CHECKS) >= 40


# ---- what must not be reported ----


def test_nccl_that_cannot_encrypt(world: World) -> None:
    can_not_encrypt(world)
    assert worst_level(world.findings("nccl.encryption")) == "ok"


def test_gdrcopy_is_there_or_nccl_is_older(world: World) -> None:
    assert [finding.cause for finding in world.findings("nccl.gdrcopy")] == [""]
    no_gdrcopy(world)
    world.write("/dev/gdrdrv", "")
    assert [finding.cause for finding in world.findings("nccl.gdrcopy")] == [""]


def test_what_the_next_boot_brings(world: World) -> None:
    pages_after_reboot(world)
    assert worst_level(world.findings("hugepages.present")) == "fail"
    world.options = DoctorOptions(after_boot=True)
    assert worst_level(world.findings("hugepages.present")) == "ok"
    assert worst_level(world.findings("system.reboot")) == "ok"


def test_operator_vouches_for_the_clock(world: World) -> None:
    undisciplined_clock(world)
    world.conf(1, shared_clock="off")
    world.environment["HARP_SHARED_CLOCK"] = "on"
    assert worst_level(world.findings("system.clock")) == "ok"


def test_udp_needs_no_capabilities(world: World) -> None:
    world.conf(1, driver="udp")
    world.change("limits", capabilities=())
    assert worst_level(world.findings("drivers.asked")) == "ok"


def test_ifname_needs_no_conf_files(world: World) -> None:
    world.confs.clear()
    world.environment["HARP_IFNAME"] = "=eth1"
    assert worst_level(world.findings("confs.present")) == "ok"
    assert worst_level(world.findings("nccl.harp_ifname")) == "ok"


@pytest.mark.parametrize(
    ("environment", "names"),
    [
        ({"NCCL_NET": "harp"}, ["eth0", "eth1", "eth2"]),
        ({"NCCL_NET": "HARP", "NCCL_SOCKET_IFNAME": "eth2"}, ["eth2"]),
        ({"NCCL_NET": "HARP", "HARP_CONF_DIR": "/none"}, []),
        ({"NCCL_NET": "Socket"}, []),
    ],
)
def test_asked_for_by_name_needs_no_conf_files(
    world: World, environment: dict[str, str], names: list[str]
) -> None:
    world.confs.clear()
    world.environment.update(environment)
    assert worst_level(world.findings("confs.present")) == ("ok" if names else "fail")
    assert [eni.name for eni in world.context().enis] == names


def test_other_directory(world: World) -> None:
    world.environment["HARP_CONF_DIR"] = "/srv/harp/"
    world.write("/srv/harp/ztcp0.conf", "[eni]\ninterface = eth7\n")
    assert "/srv/harp/ztcp0.conf: there is no interface eth7" in world.findings("confs.interface")[0].cause


@pytest.mark.parametrize("name", ["NCCL_NET", "NCCL_NET_PLUGIN"])
def test_environment_goes_before_files(world: World, name: str) -> None:
    world.write("/etc/nccl.conf", f"{name}=other\n")
    world.environment[name] = "harp" if name == "NCCL_NET" else "libnccl-net.so"
    assert worst_level(world.findings("nccl.net")) == "ok"
    assert worst_level(world.findings("nccl.net_plugin")) == "ok"


def test_ordinary_pages_need_nothing(world: World) -> None:
    no_pages(world)
    for number in world.confs:
        world.conf(number, page_size="4K")
    assert worst_level(finding for finding in world.findings() if finding.group == "hugepages") == "skip"


def test_small_hugepages(world: World) -> None:
    for number in world.confs:
        world.conf(number, page_size="2M")
    world.change(
        "memory",
        hugepages=(Pages(size=2 * MIB, total=10, free=10),),
        mounts=(HugeMount(path="/dev/hugepages", page_size=2 * MIB, options="rw"),),
    )
    assert "10 pages of 2 MiB for 2 GPUs, whose ranks take" in world.findings("hugepages.enough")[0].cause
    assert worst_level(world.findings("hugepages.mount_size")) == "ok"
    [arguments] = world.findings("system.arguments")  # they request 1 GiB pages
    assert arguments.cause.startswith("No boot entry asks for hugepages of 2 MiB")


def test_tree_reports_what_it_cannot_know(world: World) -> None:
    world.as_tree()
    found = world.findings()
    assert worst_level(found) == "skip"
    skipped = {finding.id for finding in found if finding.cause == "A directory tree does not run."}
    assert {"hugepages.usable", "plugin.loads", "enis.egress", "drivers.asked"} <= skipped
    world.change("memory", hugepages=(), mounts=())
    assert worst_level(world.findings("hugepages.present")) == "ok"  # its boot entries bring them


def test_validation_leaves_advice_out(world: World) -> None:
    validated = {finding.id for finding in run_checks(world.context(), only_validating=True)}
    assert validated == {id_ for id_, check in CHECKS.items() if check.validates and check.group != "peer"}


def test_a_damaged_journal_is_a_finding(world: World) -> None:
    world.write("/var/lib/harp/journal/0001-x.jsonl", "rubbish\n")
    [finding] = world.findings("system.journal")
    assert finding.level == "fail"
    assert "0001-x.jsonl is damaged" in finding.cause


def test_repairs_are_plans_of_their_own(world: World) -> None:
    world.change_eni("eth1", is_up=False)
    world.remove("/etc/systemd/system/multi-user.target.wants/harp.service")
    plans = safe_repairs(world.findings())
    assert all(isinstance(plan, Plan) and len(plan.groups) == 1 for plan in plans)
    assert [plan.groups[0].name for plan in plans] == [
        "enis.up: ip link set dev eth1 up",
        "system.unit: systemctl enable harp.service",
    ]


def test_no_name_ends_a_command(world: World) -> None:
    """What is pasted runs what was printed, whatever files and interfaces are called."""
    name, evil = "e;id>x", "/usr/local/tfabric/tools/config/ztcp;touch PWN;.conf"
    for number, eni in ((1, "eth1"), (2, "eth2")):
        world.conf(number, interface=name if number == 1 else eni)
    world.change_eni("eth1", is_up=False, mtu=500, addresses=(), xdp_attached=True)
    enis = tuple(replace(eni, name=name) if eni.name == "eth1" else eni for eni in world.facts.enis)
    world.facts = replace(world.facts, enis=enis)
    world.write(evil, f"[eni]\ninterface = {name}\n")
    (world.root / evil[1:]).chmod(0o666)
    world.copies = (make_copy(LIBRARY.replace("libnccl", "lib;touch PWN;nccl")),)
    commands = [command for finding in world.findings() for command in finding.repair]
    concerned = [command for command in commands if "PWN" in command or name in command]
    assert len(concerned) > 5
    for command in concerned:
        words = shlex.shlex(command.partition("  # ")[0], posix=True, punctuation_chars=";&>")
        words.whitespace_split = True
        assert not {";", ">", "&"} & set(words), command


SAFE = [one for one in CASES if one.is_safe]


@pytest.mark.parametrize("one", SAFE, ids=lambda one: one.spoil.__name__)
def test_safe_repairs_can_be_applied(world: World, one: Case) -> None:
    one.spoil(world)
    [plan, *_more] = safe_repairs(world.findings(one.id))
    host = world.context().host
    world.runner.answers[""] = ""  # every command succeeds
    assert apply_plan(plan, host, what="test", progress=NoProgress())
    in_files = not any(isinstance(step, Run) and step.always for step in plan.groups[0].steps)
    assert worst_level(world.findings(one.id)) == ("ok" if in_files else one.level)
    commands = [step.argv for step in plan.groups[0].steps if isinstance(step, Run)]
    assert [tuple(argv) for argv in world.runner.ran if argv in commands] == commands
    roll_back(host, progress=NoProgress())
    assert worst_level(world.findings(one.id)) == one.level


def test_missing_permission_is_reported(world: World) -> None:
    world.write("/var/lib/harp/journal/0001-x.jsonl", "")
    (world.root / "var/lib/harp/journal/0001-x.jsonl").unlink()
    (world.root / "var/lib/harp/journal/0001-x.jsonl").mkdir()  # what can't be read, for root either
    world.change("system", is_root=False)
    [finding] = world.findings("system.journal")
    assert (finding.level, finding.repair) == ("skip", ())
    assert "can't be read" in finding.cause
    world.change("system", is_root=True)
    assert worst_level(world.findings("system.journal")) == "fail"


def test_numbers_are_those_of_the_plugin(root: Path) -> None:
    xdp = (root / "plugin/src/io/xdp/modes.c").read_text()
    assert "HARP_XDP_FRAME_BYTES - HARP_XDP_PACKET_HEADROOM - HARP_CACHE_LINE" in xdp
    assert ONE_BUFFER_MTU == 4096 - 256 - 64 - 14
    assert re.findall(r"\bFRAMES_BYTES = (\d+) << 20", xdp) == [str(LOCKED_BYTES >> 20)]
    udp = (root / "plugin/src/io/udp_socket.c").read_text()
    assert re.findall(r"\bBUFFER_BYTES = (\d+) << 20", udp) == [str(SOCKET_BUFFER >> 20)]


def test_a_container_leaves_the_host_alone(world: World) -> None:
    world.change("limits", capabilities=())
    world.in_container()
    [finding] = world.findings("limits.rmem")
    assert finding.repair == ("sysctl -w net.core.rmem_max=8388608  # on the host",)
    assert not finding.is_safe


def test_new_kernels_take_jumbo_frames(world: World) -> None:
    world.conf(1, driver="xdp")
    world.change("system", kernel="6.6.0-tlinux4")
    assert worst_level(world.findings("drivers.mtu")) == "ok"


def test_address_without_a_subnet(world: World) -> None:
    """Some clouds give /32 addresses: only the gateway can be looked up."""
    world.change_eni("eth1", addresses=("10.0.1.11/32",))
    assert world.machine
    world.machine.ways = {("10.0.1.11", "10.0.1.10"): "eth0", ("10.0.1.11", "10.0.1.12"): "eth0"}
    assert worst_level(world.findings("enis.egress")) == "ok"


def test_parked_copy_is_not_another_plugin(world: World) -> None:
    world.copies = (make_copy("/root/libnccl-net.so", "moved"),)
    assert worst_level(world.findings("plugin.first")) == "ok"
    assert world.findings("plugin.loads")[0].level == "skip"


def test_the_other_eni_of_a_subnet_is_no_other_host(world: World) -> None:
    """The kernel sends to each address of its own through lo: such an address shows no way out."""
    world.change_eni("eth1", addresses=("10.0.1.2/24",))
    world.change_eni("eth2", addresses=("10.0.1.3/24",), gateway="10.0.1.1")
    assert world.machine
    for source, name in (("10.0.1.2", "eth1"), ("10.0.1.3", "eth2")):
        world.machine.ways |= {(source, f"10.0.1.{n}"): name for n in (1, 4)}
        world.machine.ways |= {(source, f"10.0.1.{n}"): "lo" for n in (2, 3)}
    assert [finding.level for finding in world.findings("enis.egress")] == ["ok"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("=eth1,eth2", ["eth1", "eth2"]),
        ("eth", ["eth0", "eth1", "eth2"]),
        ("eth2,eth1", ["eth2", "eth1"]),
        ("=eth1 , eth9", ["eth1"]),
        ("enp3s1", ["eth1"]),
        ("=eth2,enp3s1", ["eth2", "eth1"]),
        ("enp3", []),
        ("^enp3s1", ["eth0", "eth1"]),
        ("^eth0", ["eth1"]),
        ("^=eth", ["eth0", "eth1"]),
        ("", []),
    ],
)
def test_the_interfaces_that_the_variable_selects(world: World, text: str, names: list[str]) -> None:
    enis = [replace(eni, is_up=eni.name != "eth2") for eni in world.facts.enis]
    enis = [replace(eni, altnames=("enp3s1",)) if eni.name == "eth1" else eni for eni in enis]
    enis.append(replace(enis[0], name="eth8", addresses=()))
    assert selected_names(text, enis) == names


def test_a_conf_file_may_have_an_alternative_name(world: World) -> None:
    world.change_eni("eth1", altnames=("enp3s1",))
    world.conf(1, interface="enp3s1")
    assert [finding.level for finding in world.findings("confs.interface")] == ["ok"]
    assert [eni.name for eni in world.context().enis] == ["eth1", "eth2"]
