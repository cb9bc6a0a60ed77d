# SPDX-License-Identifier: Apache-2.0
"""The mount, the conf files and the boot unit, planned on trees made here."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from harpctl.change.steps import MakeLink, RemoveFile, Run, WriteFile
from harpctl.cli import app
from harpctl.confs.conf import CONF_DIR, parse_conf
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Boot, Eni, Facts, HugeMount, Memory, Overrides, System
from harpctl.facts.sources import RECORD, Sources, collect_sources
from harpctl.host.host import Host
from harpctl.network.model import Interfaces
from harpctl.setup.choose import Choice
from harpctl.setup.confs import plan_confs
from harpctl.setup.mount import fstab_with_mount, plan_mount
from harpctl.setup.options import SetupOptions
from harpctl.setup.plan import chosen_big_tcp, eni_plan, with_record
from harpctl.setup.unit import NAME, PATH, plan_units, reason_against
from harpctl.units import GIB, MIB
from tests.harpctl.machine import build_machine
from tests.harpctl.setup.test_trees import Silent

MOUNTED = Memory(mounts=(HugeMount(path="/dev/hugepages", page_size=GIB, options="rw,pagesize=1024M"),))
UNIT = "usr/lib/systemd/system/dev-hugepages.mount"
LINE = "hugetlbfs /dev/hugepages hugetlbfs pagesize=1024M,nofail 0 0\n"


def make_facts(memory: Memory = MOUNTED, init: str = "systemd") -> Facts:
    return Facts(system=System(init=init), boot=Boot(), memory=memory)


def look_at_host(host: Host, options: SetupOptions = SetupOptions()) -> Sources:  # noqa: B008
    return collect_sources(host, (), program=options.program)


def write_file(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, newline="")


# ---- the mount ----


def test_systemds_unit_is_enough(tmp_path: Path) -> None:
    write_file(tmp_path, UNIT, "[Mount]\nWhat=hugetlbfs\n")
    assert plan_mount(make_facts(), look_at_host(Host(tmp_path)), SetupOptions()).steps == ()


def test_without_the_kernel_arguments_fstab_names_the_size(tmp_path: Path) -> None:
    write_file(tmp_path, UNIT, "[Mount]\nWhat=hugetlbfs\n")
    (step,) = plan_mount(make_facts(), look_at_host(Host(tmp_path)), SetupOptions(kernel_args=False)).steps
    assert isinstance(step, WriteFile)
    assert step.data == LINE.encode()


def test_a_masked_unit_is_replaced_by_fstab(tmp_path: Path) -> None:
    write_file(tmp_path, UNIT, "[Mount]\nWhat=hugetlbfs\n")
    mask = tmp_path / "etc/systemd/system/dev-hugepages.mount"
    mask.parent.mkdir(parents=True)
    mask.symlink_to("/dev/null")
    write_file(tmp_path, "etc/fstab", "LABEL=root / ext4 defaults 0 1")
    (step,) = plan_mount(make_facts(), look_at_host(Host(tmp_path)), SetupOptions()).steps
    assert isinstance(step, WriteFile)
    assert step.data == b"LABEL=root / ext4 defaults 0 1\n" + LINE.encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", LINE),
        (LINE, LINE),
        (
            "none /dev/hugepages/ hugetlbfs pagesize=1G 0 0\n",
            "none /dev/hugepages/ hugetlbfs pagesize=1G 0 0\n",
        ),
        ("none /dev/hugepages hugetlbfs defaults 0 0\n# end\n", "# end\n" + LINE),
        ("x /dev/hugepages hugetlbfs pagesize=2M 0 0\n" + LINE, LINE),
        ("#x /dev/hugepages ext4\r\n", "#x /dev/hugepages ext4\r\n" + LINE.replace("\n", "\r\n")),
    ],
)
def test_fstab_holds_exactly_one_right_line(before: str, after: str) -> None:
    assert fstab_with_mount(before, GIB) == after
    assert fstab_with_mount(after, GIB) == after


def test_something_else_mounted_there_is_refused() -> None:
    with pytest.raises(HarpError, match=r"/etc/fstab:1: mounts a tmpfs on /dev/hugepages"):
        fstab_with_mount("tmp /dev/hugepages tmpfs defaults 0 0\n", GIB)


# ---- conf files ----


def make_choice(number: int, name: str, **fields: object) -> Choice:
    eni = Eni(
        name=name,
        mac="52:54:00:12:34:56",
        pci="0000:00:06.0",
        node=1,
        speed_mbps=25000,
    )
    return Choice(number=number, eni=eni, address="10.0.1.5/24", gateway="10.0.1.1", cores=(3, 51), **fields)  # type: ignore[arg-type]


def write_step(root: Path, step: object) -> str:
    assert isinstance(step, WriteFile)
    write_file(root, step.path.lstrip("/"), step.data.decode())
    return step.data.decode()


def test_a_conf_file_contains_what_the_host_dictates(tmp_path: Path) -> None:
    (step,) = plan_confs(
        make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()
    ).steps
    conf = parse_conf(write_step(tmp_path, step), "ztcp0.conf")
    assert (conf.interface, conf.mac, conf.address, conf.gateway) == (
        "eth1",
        "52:54:00:12:34:56",
        "10.0.1.5",
        "10.0.1.1",
    )
    assert (conf.pci, conf.numa, conf.speed_mbps, conf.cores) == ("0000:00:06.0", 1, 25000, (3, 51))
    assert conf.page_size == "1G"
    assert (
        plan_confs(make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()).steps
        == ()
    )


def test_what_an_operator_tuned_stays(tmp_path: Path) -> None:
    (step,) = plan_confs(
        make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()
    ).steps
    text = write_step(tmp_path, step) + "\n[transport]\npaths = 3\ncongestion = reno\n"
    write_file(tmp_path, f"{CONF_DIR}/ztcp0.conf".lstrip("/"), text)
    assert (
        plan_confs(make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()).steps
        == ()
    )
    (step,) = plan_confs(
        make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions(page_size=2 * MIB)
    ).steps
    conf = parse_conf(write_step(tmp_path, step), "ztcp0.conf")
    assert (conf.get("paths"), conf.get("congestion"), conf.page_size) == (3, "reno", "2M")


def test_another_interfaces_tuning_does_not_stay(tmp_path: Path) -> None:
    write_file(tmp_path, f"{CONF_DIR}/ztcp0.conf".lstrip("/"), "[eni]\ninterface = eth9\n[transport]\npaths = 3\n")
    (step,) = plan_confs(
        make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()
    ).steps
    assert parse_conf(write_step(tmp_path, step), "ztcp0.conf").get("paths") is None


def test_stale_and_foreign_files_go(tmp_path: Path) -> None:
    for name in ("ztcp1.conf", "ztcp_eth4.conf"):
        write_file(tmp_path, f"{CONF_DIR}/{name}".lstrip("/"), "of some vendor")
    write_file(tmp_path, f"{CONF_DIR}/ztcp0.conf".lstrip("/"), "of some vendor")
    steps = plan_confs(make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions()).steps
    removed = {step.path for step in steps if isinstance(step, RemoveFile)}
    assert removed == {f"{CONF_DIR}/ztcp1.conf", f"{CONF_DIR}/ztcp_eth4.conf"}
    assert [step.path for step in steps if isinstance(step, WriteFile)] == [f"{CONF_DIR}/ztcp0.conf"]


def test_tuning_beside_a_typo_is_not_written_over(tmp_path: Path) -> None:
    write_file(
        tmp_path, f"{CONF_DIR}/ztcp0.conf".lstrip("/"), "[eni]\ninterface = eth1\n[transport]\npathes = 5\n"
    )
    with pytest.raises(HarpError, match=r"ztcp0\.conf:4: unknown key 'pathes'") as caught:
        plan_confs(make_facts(), look_at_host(Host(tmp_path)), [make_choice(0, "eth1")], SetupOptions())
    assert f"mv {CONF_DIR}/ztcp0.conf" in caught.value.hint


def test_the_speed_of_an_eni(tmp_path: Path) -> None:
    def speed(options: SetupOptions, reported_mbps: int) -> int | None:
        one = replace(make_choice(0, "eth1"), eni=replace(make_choice(0, "eth1").eni, speed_mbps=reported_mbps))
        (step,) = plan_confs(make_facts(), look_at_host(Host(tmp_path)), [one], options).steps
        assert isinstance(step, WriteFile)
        return parse_conf(step.data.decode(), "ztcp0.conf").speed_mbps

    assert speed(SetupOptions(speed_mbps=100_000, cloud_mbps=50_000), 25_000) == 100_000
    assert speed(SetupOptions(cloud_mbps=50_000), 25_000) == 25_000
    assert speed(SetupOptions(cloud_mbps=50_000), 0) == 50_000
    assert speed(SetupOptions(), 0) is None


# ---- the units ----


def test_the_units_start_what_runs_now(tmp_path: Path) -> None:
    steps = plan_units(look_at_host(Host(tmp_path)), SetupOptions(program="/opt/my tools/100%/harpctl")).steps
    units = {step.path: step.data.decode() for step in steps if isinstance(step, WriteFile)}
    links = {step.target for step in steps if isinstance(step, MakeLink)}
    assert set(units) == links
    assert 'ExecStart="/opt/my tools/100%%/harpctl" boot --keep\n' in units[PATH]
    assert any('harpctl" validate\n' in text for text in units.values())


def test_the_unit_runs_before_jobs_and_after_the_managers(tmp_path: Path) -> None:
    (unit,) = (
        step
        for step in plan_units(look_at_host(Host(tmp_path)), SetupOptions()).steps
        if getattr(step, "path", "") == PATH
    )
    assert isinstance(unit, WriteFile)
    lines = unit.data.decode().splitlines()
    after = {word for line in lines if line.startswith("After=") for word in line[6:].split()}
    assert {"NetworkManager.service", "systemd-networkd.service", "networking.service"} <= after
    assert "Before=network-online.target shutdown.target" in lines
    assert "DefaultDependencies=no" in lines


def test_a_running_host_starts_it_last_and_stops_it_first(tmp_path: Path) -> None:
    host = Host(tmp_path, Silent())
    write_file(tmp_path, "run/systemd/system/x", "")
    steps = plan_units(look_at_host(host), SetupOptions()).steps
    assert isinstance(steps[-1], Run)
    assert steps[-1].argv == ("systemctl", "--no-block", "restart", NAME)
    assert steps[-1].undo == ("systemctl", "stop", NAME)


def test_the_units_need_their_program(tmp_path: Path) -> None:
    def reason(options: SetupOptions = SetupOptions(), init: str = "systemd") -> str:  # noqa: B008
        return reason_against(make_facts(init=init), look_at_host(Host(tmp_path), options), options)

    assert "/usr/local/bin/harpctl" in reason()
    packed = SetupOptions(tool_folder="/usr/local/tfabric/tools/harpctl/1-abc")
    assert reason(packed) == "", "this setup links it"
    write_file(tmp_path, "usr/local/bin/harpctl", "")
    assert reason() == ""
    assert reason(SetupOptions(program="/usr/bin/harpctl"))
    assert "--no-unit" in reason(SetupOptions(unit=False))
    assert "systemd" in reason(init="")


@pytest.mark.parametrize("path", ["usr/local/bin/harpctl", "usr/bin/harpctl", ""])
def test_an_image_gets_the_unit_with_the_program_that_it_holds(tmp_path: Path, path: str) -> None:
    root = build_machine(tmp_path / "image", "ubuntu-22.04", "gpu2")
    (root / "usr/local/bin/harpctl").unlink()
    if path:
        write_file(root, path, "")
    unit = root / PATH[1:]
    assert run_setup("--root", str(root)) == ((0, True) if path else (ExitCode.REFUSED, False))
    assert run_setup("--root", str(root), "--no-network") == (0, True)
    assert unit.is_file() == bool(path)
    assert not path or f"ExecStart=/{path} boot" in unit.read_text()


def test_a_network_that_no_boot_would_bring_back_is_refused(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "image", "ubuntu-22.04", "gpu2")
    done = CliRunner().invoke(app, ["setup", "--root", str(root), "--no-unit"])
    assert done.exit_code == ExitCode.REFUSED
    assert "Nothing would set the ENIs up at the next boot: --no-unit was given" in done.stderr
    assert run_setup("--root", str(root), "--no-unit", "--no-network") == (0, True)
    assert not (root / RECORD[1:]).exists()
    assert run_setup("--root", str(root), "--no-network", "--channels", "4")[0] == ExitCode.USAGE


@pytest.mark.parametrize(
    ("earlier", "options", "chosen"),
    [
        (None, SetupOptions(), True),
        (None, SetupOptions(network=False), None),
        (None, SetupOptions(network=False, big_tcp=True), True),
        (None, SetupOptions(big_tcp=False), False),
        (False, SetupOptions(), False),
        (False, SetupOptions(big_tcp=True), True),
        (True, SetupOptions(network=False), True),
    ],
)
def test_the_choice_of_big_tcp_is_remembered(
    earlier: bool | None, options: SetupOptions, chosen: bool | None
) -> None:
    assert chosen_big_tcp(options, Interfaces(big_tcp=earlier)) is chosen


def test_the_way_in_keeps_what_its_manager_gives_it() -> None:
    one = make_choice(0, "eth0")
    primary = replace(one, eni=replace(one.eni, is_default_route=True, mtu=1500))
    plan = eni_plan(primary, SetupOptions(force=True), None)
    assert (plan.address, plan.gateway, plan.mtu) == ("", "", None)
    assert eni_plan(one, SetupOptions(), None).address == "10.0.1.5/24"


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ((), "10.0.1.5/24"),
        (("10.0.1.99/24", "10.0.1.5/24"), "10.0.1.5/24"),
        (("10.0.1.99/24",), "10.0.1.99/24"),
    ],
)
def test_the_address_that_an_earlier_setup_chose_stays(own: tuple[str, ...], expected: str) -> None:
    one = make_choice(0, "eth1")
    earlier = eni_plan(one, SetupOptions(), None)
    found = replace(one, eni=replace(one.eni, addresses=own), address=next(iter(own), ""), gateway="")
    assert with_record(found, earlier, SetupOptions()).address == expected
    given = SetupOptions(overrides=Overrides(addresses={"eth1": "10.0.1.7/24"}))
    if expected == earlier.address:
        assert with_record(found, earlier, given).address == "10.0.1.7/24"


def test_what_an_earlier_setup_chose_stays() -> None:
    one = make_choice(0, "eth1")
    eni = replace(one, eni=replace(one.eni, mtu=1500))
    assert eni_plan(eni, SetupOptions(), None).mtu == 1500
    earlier = eni_plan(eni, SetupOptions(mtu=8500, channels=4), None)
    assert eni_plan(eni, SetupOptions(), earlier) == earlier
    assert eni_plan(eni, SetupOptions(mtu=9000), earlier).mtu == 9000


def test_a_container_is_shown_what_setup_would_do(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "image", "ubuntu-22.04", "gpu2")
    (root / ".dockerenv").touch()
    assert run_setup("--root", str(root))[0] == 5
    result = CliRunner().invoke(app, ["setup", "--root", str(root), "--dry-run"])
    assert result.exit_code == 0, result.output
    assert "This is a container (docker), where setup itself is refused" in result.output
    assert "ztcp0.conf" in result.output
    assert "GRUB_CMDLINE_LINUX" not in result.output


def run_setup(*words: str) -> tuple[int, bool]:
    result = CliRunner().invoke(app, ["setup", *words])
    return result.exit_code, "Set up HARP successfully" in result.stdout
