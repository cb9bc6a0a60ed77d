# SPDX-License-Identifier: Apache-2.0
"""`harpctl setup` as a whole on trees of eleven distributions: golden plans, run twice, undone."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.change.diff import render_diff
from harpctl.cli import app
from harpctl.confs.conf import CONF_DIR, parse_conf
from harpctl.console import NoProgress
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Overrides
from harpctl.facts.sources import RECORD
from harpctl.host.host import Host
from harpctl.host.runner import TIMEOUT_S, Completed
from harpctl.network.model import decode_record
from harpctl.setup.command import plan_setup, run_setup
from harpctl.setup.options import SetupOptions
from harpctl.units import GIB, MIB
from tests.harpctl import golden
from tests.harpctl.machine import DISTROS, build_machine, with_shape

GOLDEN = Path(__file__).parent / "golden"
SUCCESS = "Set up HARP successfully"
ADDRESSES = {f"eth{n}": f"10.0.{n}.1{n}/24" for n in range(1, 9)}
GATEWAYS = {f"eth{n}": f"10.0.{n}.1" for n in range(1, 9)}
GIVEN = [word for name, value in ADDRESSES.items() for word in ("--address", f"{name}={value}")] + [
    word for name, value in GATEWAYS.items() for word in ("--gateway", f"{name}={value}")
]


class Silent:
    """A runner that answers every question with nothing, as a host does where nothing is configured."""

    runs = True

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        del timeout_s
        return Completed(tuple(argv), 0)


def run_harpctl(root: Path, command: str, *words: str) -> Result:
    return CliRunner().invoke(app, [command, "--root", str(root), *words])


def take_snapshot(root: Path) -> dict[str, tuple[str, str]]:
    """Return every path of a tree with its kind, mode and content."""
    found = {}
    for folder, names, files in os.walk(root):
        for name in [*names, *files]:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = str(path.readlink())
            elif stat.S_ISREG(mode):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
            else:
                content = ""
            found[str(path.relative_to(root))] = (oct(mode), content)
    return found


@pytest.mark.parametrize("distro", DISTROS)
def test_a_tree_is_set_up_once_and_undone_exactly(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path, distro)
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code == 0, done.output
    assert f"\n{SUCCESS}\n" in f"\n{done.stdout}"
    assert sorted(path.name for path in (root / CONF_DIR[1:]).glob("ztcp*.conf")) == [
        f"ztcp{n}.conf" for n in range(8)
    ]
    after = take_snapshot(root)

    again = run_harpctl(root, "setup", *GIVEN)
    assert again.exit_code == 0
    assert SUCCESS in again.stdout
    assert take_snapshot(root) == after

    undone = run_harpctl(root, "rollback")
    assert undone.exit_code == 0, undone.output
    assert take_snapshot(root) == before


@pytest.mark.parametrize("kind", ["tree", "host"])
@pytest.mark.parametrize("distro", golden.ORDER)
def test_golden_plans(tmp_path: Path, distro: str, kind: str, update_golden: bool) -> None:
    """`tree` is --root; `host` is the same machine where commands run. eth1 is configured, eth5 is not."""
    root = build_machine(tmp_path, distro)
    host = Host(root) if kind == "tree" else Host(root, Silent())
    overrides = Overrides(addresses={"eth5": "10.0.5.15/24"}, gateways=GATEWAYS)
    options = SetupOptions(overrides=overrides, enis=("eth1", "eth5"), now=kind == "host")
    text = render_diff(plan_setup(host, options).plan, host)
    golden.check_golden(GOLDEN, distro, f".{kind}", text, update=update_golden)


def test_a_setup_that_was_killed_is_undone_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, other = (
        build_machine(tmp_path / "killed", "ubuntu-22.04"),
        build_machine(tmp_path / "whole", "ubuntu-22.04"),
    )
    before = take_snapshot(root)
    run_harpctl(other, "setup", *GIVEN)
    run_harpctl(root, "setup", *GIVEN)

    class Killed(BaseException):
        pass

    def remove(_host: Host, path: str) -> None:
        raise Killed(path)

    with monkeypatch.context() as context:
        context.setattr(Host, "remove", remove)
        with pytest.raises(Killed):
            run_harpctl(root, "setup", "--enis", "eth1,eth2", "--page-size", "2M", *GIVEN)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code == 0, done.output
    assert "interrupted; it is undone first" in done.stderr
    assert (root / "etc/default/grub").read_bytes() == (other / "etc/default/grub").read_bytes()
    assert run_harpctl(root, "rollback").exit_code == 0
    assert take_snapshot(root) == before


def test_the_dry_run_changes_nothing_and_reports_by_its_exit_code(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04")
    before = take_snapshot(root)
    shown = run_harpctl(root, "setup", "--dry-run", *GIVEN)
    assert shown.exit_code == 0
    assert "+++ b/etc/default/grub" in shown.stdout
    assert SUCCESS not in shown.stdout
    assert run_harpctl(root, "setup", "--dry-run", "--exit-code", *GIVEN).exit_code == 2
    assert take_snapshot(root) == before
    run_harpctl(root, "setup", *GIVEN)
    last = run_harpctl(root, "setup", "--dry-run", "--exit-code", *GIVEN)
    assert last.exit_code == 0
    assert "Nothing to do" in last.stdout


def test_json_is_complete(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "rocky-9")
    done = run_harpctl(root, "setup", "--json", *GIVEN)
    result = json.loads(done.stdout)
    assert result["ok"]
    assert result["hugepages"] == 50
    assert result["enis"] == [f"eth{n}" for n in range(1, 9)]
    assert result["conf_files"][0] == f"{CONF_DIR}/ztcp0.conf"
    assert result["transaction"]
    assert "50 hugepages of 1 GiB" in result["reboot"]


def test_each_eni_has_its_gpu_and_cores_of_its_node(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "debian-12")
    run_harpctl(root, "setup", *GIVEN)
    confs = [parse_conf((root / f"{CONF_DIR[1:]}/ztcp{n}.conf").read_text(), str(n)) for n in range(8)]
    assert [conf.gpu for conf in confs] == list(range(8))
    cores = [core for conf in confs for core in conf.cores or ()]
    assert len(cores) == len(set(cores)) == 8
    nodes = {cpu.id: cpu.node for cpu in collect_facts(Host(root)).cpus}
    assert all(nodes[core] == conf.numa for conf in confs for core in conf.cores or ())


def test_a_smaller_setup_takes_away_what_the_larger_one_left(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "centos-7")
    before = take_snapshot(root)
    assert run_harpctl(root, "setup", *GIVEN).exit_code == 0
    done = run_harpctl(root, "setup", "--enis", "eth1,eth2", "--hugepages", "20", "--page-size", "1G", *GIVEN)
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (root / CONF_DIR[1:]).iterdir()) == ["ztcp0.conf", "ztcp1.conf"]
    defaults = (root / "etc/default/grub").read_text()
    assert "hugepages=20" in defaults
    assert "hugepages=50" not in defaults
    assert run_harpctl(root, "rollback").exit_code == 0
    assert take_snapshot(root) == before


def test_a_setup_without_options_keeps_mtu_and_channels(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    assert run_harpctl(root, "setup", "--mtu", "8500", "--channels", "4").exit_code == 0
    before = take_snapshot(root)
    assert run_harpctl(root, "setup").exit_code == 0
    assert take_snapshot(root) == before
    lower = root / f"{CONF_DIR[1:]}/ztcp0.conf"
    lower.write_text(lower.read_text().replace("mtu = 8500", "mtu = 1400"))
    assert run_harpctl(root, "setup").exit_code == 0
    assert "mtu = 1400" in lower.read_text()
    assert [(eni.mtu, eni.queues) for eni in decode_record((root / RECORD[1:]).read_bytes()).enis] == [
        (8500, 4)
    ] * 2


@pytest.mark.parametrize(
    ("first", "second", "pages"),
    [
        (["--hugepages", "7"], [], (7, GIB)),
        (["--hugepages", "fit"], [], (2, GIB)),
        (["--page-size", "2M"], [], (20 * 512, 2 * MIB)),
        (["--hugepages", "7"], ["--no-network"], (7, GIB)),
        (["--hugepages", "7"], ["--page-size", "2M"], (7 * 512, 2 * MIB)),
        (["--hugepages", "513", "--page-size", "2M"], ["--page-size", "1G"], (2, GIB)),
        (["--hugepages", "7"], ["--hugepages", "auto"], (20, GIB)),
    ],
)
def test_the_pages_that_were_chosen_stay(
    tmp_path: Path, first: list[str], second: list[str], pages: tuple[int, int]
) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    assert run_harpctl(root, "setup", "--json", *first).exit_code == 0
    done = json.loads(run_harpctl(root, "setup", "--json", *second).stdout)
    assert (done["hugepages"], done["page_size"]) == pages
    assert done["changed"] is (len(second) == 2)
    assert not json.loads(run_harpctl(root, "setup", "--json").stdout)["changed"]


@pytest.mark.parametrize("distro", DISTROS)
def test_the_running_mtu_is_kept(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path, distro, "gpu2")
    (root / "sys/class/net/eth1/mtu").write_text("8500\n")
    assert run_harpctl(root, "setup").exit_code == 0
    assert [eni.mtu for eni in decode_record((root / RECORD[1:]).read_bytes()).enis] == [8500, 1500]


IFCFG = """\
# Created by cloud-init on instance boot automatically, do not edit.
BOOTPROTO=none
DEVICE=eth1
HWADDR=52:54:00:00:00:11
IPADDR=10.0.1.99
PREFIX=24
MTU=1400
ONBOOT=yes
TYPE=Ethernet
"""
KEYFILE = """\
[connection]
id=cloud-init eth2
type=ethernet
autoconnect-priority=999
[ethernet]
mac-address=52:54:00:00:00:12
mtu=1400
[ipv4]
method=auto
"""


def unmanaged_devices(root: Path) -> list[str]:
    """Return what NetworkManager leaves alone by its files, merged as NetworkManager.conf(5) says."""
    words: list[str] = []
    folder = root / "etc/NetworkManager"
    for file in (folder / "NetworkManager.conf", *sorted(folder.glob("conf.d/*.conf"))):
        for line in file.read_text().splitlines():
            key, _equals, value = line.partition("=")
            if key in {"unmanaged-devices", "unmanaged-devices+"}:
                words = [*(words if key.endswith("+") else []), *value.split(";")]
    return words


@pytest.mark.parametrize("has_scripts", [False, True])
@pytest.mark.parametrize("distro", ["rocky-8", "rocky-9"])
def test_rockys_networkmanager_with_ifcfg_and_keyfile(tmp_path: Path, distro: str, has_scripts: bool) -> None:
    """NetworkManager's plugin ifcfg-rh reads eth1's file, also where the service network is there to read it."""
    root = build_machine(tmp_path, distro, "gpu2")
    ifcfg = root / "etc/sysconfig/network-scripts/ifcfg-eth1"
    keyfile = root / "etc/NetworkManager/system-connections/cloud-init-eth2.nmconnection"
    files = {
        ifcfg: IFCFG,
        keyfile: KEYFILE,
        root / "etc/NetworkManager/NetworkManager.conf": (
            "[main]\nplugins=ifcfg-rh,keyfile\n[keyfile]\nunmanaged-devices=interface-name:docker0\n"
        ),
        root / "etc/NetworkManager/conf.d/99-site.conf": (
            "[keyfile]\nunmanaged-devices=interface-name:cni0;interface-name:eth9\n"
        ),
    }
    if has_scripts:
        files[root / "etc/rc.d/init.d/network"] = "#!/bin/bash\n"
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    for name in ("eth1", "eth2"):
        (root / f"sys/class/net/{name}/mtu").write_text("1400\n")
        (root / f"sys/class/net/{name}/addr_assign_type").write_text("0\n")
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code == 0, done.output
    assert SUCCESS in done.stdout
    record = decode_record((root / RECORD[1:]).read_bytes())
    assert [(eni.name, eni.address, eni.gateway, eni.mtu) for eni in record.enis] == [
        ("eth1", "10.0.1.11/24", "10.0.1.1", 1400),
        ("eth2", "10.0.2.12/24", "10.0.2.1", 1400),
    ]
    assert unmanaged_devices(root) == [
        *("interface-name:cni0", "interface-name:eth9"),
        *("mac:52:54:00:00:00:11", "mac:52:54:00:00:00:12"),
    ]
    told = IFCFG.replace("ONBOOT=yes", "ONBOOT=no") + "NM_CONTROLLED=no\n"
    assert ifcfg.read_text() == (told if has_scripts else IFCFG)
    assert keyfile.read_text() == KEYFILE
    after = take_snapshot(root)
    assert run_harpctl(root, "setup").exit_code == 0
    assert take_snapshot(root) == after
    assert run_harpctl(root, "rollback").exit_code == 0
    assert take_snapshot(root) == before


def test_what_was_tuned_follows_its_interface(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    assert run_harpctl(root, "setup").exit_code == 0
    first, second = (root / f"{CONF_DIR[1:]}/ztcp{number}.conf" for number in (0, 1))
    second.write_text(second.read_text() + "\n[transport]\npaths = 7\n")
    assert parse_conf(second.read_text(), "").get("paths") == 7
    assert run_harpctl(root, "setup", "--enis", "eth2").exit_code == 0
    assert not second.exists()
    assert parse_conf(first.read_text(), "").interface == "eth2"
    assert parse_conf(first.read_text(), "").get("paths") == 7


@pytest.mark.parametrize(
    ("shape", "words", "message", "remedy"),
    [
        ("nogpu", [], "No GPU was found", "--gpus 8"),
        ("few-enis", GIVEN, "8 GPUs need 8 secondary ENIs", "Bind 4 more"),
        ("small-memory", GIVEN, "don't fit", "--hugepages"),
        ("gpu8", [], "eth5 has no address", "--address eth5="),
        ("gpu8", [*GIVEN, "--enis", "eth0"], "eth0 carries the default route", "--force"),
        ("gpu8", [*GIVEN, "--enis", "eth9"], "no interface eth9", "harpctl facts"),
        ("gpu8", [*GIVEN, "--mtu", "100000"], "--mtu 100000", "MTU"),
        ("gpu8", [*GIVEN, "--hugepages", "0"], "--hugepages 0", "50"),
        ("gpu8", [*GIVEN, "--now"], "--now asks a running kernel", "Leave it out"),
    ],
)
def test_what_cannot_be_done_changes_nothing(
    tmp_path: Path, shape: str, words: list[str], message: str, remedy: str
) -> None:
    root = build_machine(tmp_path, "ubuntu-20.04", shape)
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *words)
    assert done.exit_code != 0
    assert message in done.stderr
    assert remedy in done.stderr
    assert SUCCESS not in done.output
    assert take_snapshot(root) == before


def test_an_unknown_distribution_is_refused(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "debian-12")
    (root / "etc/os-release").write_text('ID=plan9\nPRETTY_NAME="Plan 9"\n')
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code != 0
    assert "Unknown distribution: Plan 9" in done.stderr
    assert take_snapshot(root) == before
    assert run_harpctl(root, "setup", *GIVEN, "--no-kernel-args").exit_code == 0


@pytest.mark.parametrize("distro", ["ubuntu-18.04", "rocky-9"])
def test_a_grub_file_that_no_shell_can_parse_is_refused(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path, distro)
    (root / "etc/default/grub").write_text('GRUB_CMDLINE_LINUX="quiet\n')
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code != 0
    assert "/etc/default/grub: a shell can't read it: line 1" in done.stderr
    assert take_snapshot(root) == before


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("etc/sysctl.d/60-oracle.conf", "vm.nr_hugepages = 4096"),
        ("usr/lib/sysctl.d/10-x.conf", "-vm/nr_hugepages_mempolicy=0"),
        ("etc/sysctl.conf", "vm.nr_hugepages=49"),
    ],
)
def test_a_count_of_sysctl_is_refused(tmp_path: Path, path: str, line: str) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04")
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(f"# more\n{line}\n")
    before = take_snapshot(root)
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code == ExitCode.REFUSED
    assert f"/{path}:2: vm" in done.stderr
    assert take_snapshot(root) == before
    assert run_harpctl(root, "setup", *GIVEN, "--no-kernel-args").exit_code == 0
    assert run_harpctl(root, "rollback").exit_code == 0
    (root / path).write_text("vm.nr_hugepages = 50\n")
    assert run_harpctl(root, "setup", *GIVEN).exit_code == 0
    (root / path).write_text(f"{line}\n")
    assert "hugepages.sysctl" in run_harpctl(root, "doctor").stdout


def test_a_bare_count_of_somebody_else_stays(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "rocky-9")
    for path in (root / "boot/loader/entries").glob("*.conf"):
        path.write_text(path.read_text().replace("net.ifnames=0", "net.ifnames=0 hugepages=1024"))
    done = run_harpctl(root, "setup", *GIVEN)
    assert done.exit_code == 0, done.output
    assert "hugepages=1024 becomes `hugepagesz=2M hugepages=1024`" in " ".join(done.stdout.split())
    for entry in collect_facts(Host(root)).boot.entries:
        assert "net.ifnames=0 hugepagesz=2M hugepages=1024" in entry.args


def test_without_kernel_arguments_no_page_is_asked_for(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", with_shape("gpu2", memory_gib=24))
    done = run_harpctl(root, "setup", "--no-kernel-args", *GIVEN)
    assert done.exit_code == 0, done.output


def test_the_plan_keeps_tabs(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-24.04", with_shape("gpu2", memory_gib=64))
    shown = run_harpctl(root, "setup", "--dry-run", *GIVEN).stdout
    plan = json.loads(run_harpctl(root, "setup", "--dry-run", "--json", *GIVEN).stdout)["plan"]
    assert "\t" in plan
    assert shown.endswith(f"{plan.rstrip()}\n")


def test_speeds_that_nobody_knows_are_named(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", with_shape("gpu2", memory_gib=64))
    noted = " ".join(run_harpctl(root, "setup", "--dry-run", *GIVEN).stdout.split())
    assert "The speed of eth1, eth2 is not known, and NCCL is told 10000 Mbit/s; --speed MBPS" in noted
    given = run_harpctl(root, "setup", "--dry-run", "--speed", "25000", *GIVEN).stdout
    assert "The speed of" not in given


def test_an_address_without_a_subnet_or_gateway_is_named(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", with_shape("gpu2", memory_gib=64))
    noted = run_harpctl(root, "setup", "--dry-run", "--address", "eth2=10.0.2.11/32").stdout
    noted = " ".join(noted.split())
    assert "eth2 has 10.0.2.11/32 and no gateway known: it reaches no other host; --gateway eth2=ADDRESS" in noted
    words = ("--address", "eth2=10.0.2.11/32", "--gateway", "eth2=10.0.2.1")
    assert "reaches no other host" not in run_harpctl(root, "setup", "--dry-run", *words).stdout


@pytest.mark.parametrize("name", ["arch", "suse"])
def test_another_distribution_without_kernel_arguments(tmp_path: Path, name: str) -> None:
    root = build_machine(tmp_path, "ubuntu-22.04", "gpu2")
    (root / "etc/os-release").write_text(f"ID={name}\nPRETTY_NAME={name}\n")
    refused = run_harpctl(root, "setup", *GIVEN)
    assert refused.exit_code != 0
    assert "--no-kernel-args" in refused.output
    done = run_harpctl(root, "setup", "--no-kernel-args", "--no-network", "--no-unit", *GIVEN)
    assert done.exit_code == 0, done.output
    assert list((root / CONF_DIR[1:]).glob("ztcp*.conf"))


def test_without_root_a_host_is_looked_at_and_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = Host(build_machine(tmp_path, "rocky-8", "gpu1"))
    facts = collect_facts(host)
    host.is_real = True  # as far as this test lets it be
    monkeypatch.setattr("harpctl.setup.command.gather_facts", lambda _host, _options: facts)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    before = take_snapshot(tmp_path)
    options = SetupOptions(network=False)
    assert run_setup(host, options, NoProgress(), dry_run=True, ask=False).changed
    with pytest.raises(HarpError, match="needs root") as caught:
        run_setup(host, options, NoProgress(), dry_run=False, ask=False)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert take_snapshot(tmp_path) == before


def test_a_root_that_is_no_directory_is_refused(tmp_path: Path) -> None:
    done = run_harpctl(tmp_path / "nowhere", "setup")
    assert done.exit_code == 2
    assert "there is no such directory" in done.stderr


def test_nothing_is_read_from_standard_input(tmp_path: Path) -> None:
    root = build_machine(tmp_path, "ubuntu-24.04", "gpu1")
    done = CliRunner().invoke(app, ["setup", "--root", str(root)], input="n\n" * 10)
    assert done.exit_code == 0, done.output
    assert SUCCESS in done.stdout
