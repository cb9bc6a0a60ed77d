# SPDX-License-Identifier: Apache-2.0
"""Repairs that the doctor prints for a tree are pasted into a shell: what they were printed for is gone."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from harpctl.cli import app
from harpctl.confs.conf import CONF_DIR
from harpctl.doctor.advice import one_command
from harpctl.doctor.model import Finding
from harpctl.doctor.repair import adapt_repair
from harpctl.facts.model import BootEntry
from harpctl.facts.sources import RECORD
from harpctl.network.model import EniPlan, Interfaces, encode_record
from tests.harpctl.doctor.world import World
from tests.harpctl.machine import build_machine
from tests.harpctl.network.example import write_file

UNIT = "etc/systemd/system/harp.service"


def run_harpctl(root: Path, *words: str) -> str:
    return CliRunner().invoke(app, [words[0], "--root", str(root), *words[1:]]).stdout


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = build_machine(tmp_path_factory.mktemp("prepared") / "a host", "ubuntu-22.04", "gpu2")
    assert "Set up HARP successfully" in run_harpctl(root, "setup", "--page-size", "2M", "--enis", "eth2,eth1")
    return root


@pytest.fixture
def root(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "a host", symlinks=True))


def edit_conf(root: Path, number: int, key: str, line: str) -> None:
    path = root / f"{CONF_DIR[1:]}/ztcp{number}.conf"
    text = path.read_text()
    changed = re.sub(rf"^{key} = .*$", line, text, flags=re.MULTILINE)
    path.write_text(changed if changed != text else text.replace("[eni]\n", f"[eni]\n{line}\n"))


def share_cores(root: Path) -> None:
    for number in (0, 1):
        edit_conf(root, number, "cores", "cores = 0")
        with (root / f"{CONF_DIR[1:]}/ztcp{number}.conf").open("a") as file:
            file.write("[transport]\ndevices = enis\n")


def rename_conf(root: Path, name: str, to: str) -> None:
    (root / CONF_DIR[1:] / name).rename(root / CONF_DIR[1:] / to)


def copy_conf(root: Path, name: str, to: str) -> None:
    shutil.copy(root / CONF_DIR[1:] / name, root / CONF_DIR[1:] / to)


SPOILT: dict[str, tuple[str, Callable[[Path], object]]] = {
    "mtu": ("confs.mtu", lambda root: edit_conf(root, 0, "mtu", "mtu  =  9000")),
    "address": ("confs.address", lambda root: edit_conf(root, 0, "address", "address=10.7.7.7")),
    "pci": ("confs.pci", lambda root: edit_conf(root, 0, "pci", "  pci = 0000:99:00.0")),
    "numa": ("confs.numa", lambda root: edit_conf(root, 0, "numa", "numa = 5")),
    "mac": ("confs.mac", lambda root: edit_conf(root, 0, "mac", "mac = 02:00:00:00:00:01")),
    "cores": ("confs.cores", lambda root: edit_conf(root, 0, "cores", "cores = 900")),
    "cores_shared": (
        "confs.cores_shared",
        share_cores,
    ),
    "gpu": ("confs.gpu", lambda root: edit_conf(root, 0, "gpu", "gpu = 7")),
    "moved": ("confs.interface", lambda root: edit_conf(root, 0, "interface", "interface = ens9")),
    "name": ("confs.names", lambda root: rename_conf(root, "ztcp1.conf", "ztcp_1.conf")),
    "alien": ("confs.names", lambda root: (root / CONF_DIR[1:] / "ztcp-x.conf").write_text("eal: -l 1\n")),
    "twice": ("confs.distinct", lambda root: copy_conf(root, "ztcp0.conf", "ztcp5.conf")),
    "mode": ("confs.mode", lambda root: (root / CONF_DIR[1:] / "ztcp0.conf").chmod(0o666)),
    "none": ("confs.present", lambda root: shutil.rmtree(root / CONF_DIR[1:])),
    "unit": ("system.unit", lambda root: (root / UNIT).unlink()),
    "nccl": ("nccl.net", lambda root: (root / "etc/nccl.conf").write_text("NCCL_NET=IB\n")),
}


def paste_command(command: str, folder: Path) -> None:
    """Run a command in a shell that finds harpctl."""
    harpctl = folder / "harpctl"
    harpctl.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m harpctl "$@"\n')
    harpctl.chmod(0o755)
    env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", command], env=env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, (command, done.stdout, done.stderr)


@pytest.mark.parametrize("what", SPOILT)
def test_a_repair_that_is_pasted(root: Path, tmp_path: Path, what: str) -> None:
    id_, spoil = SPOILT[what]
    spoil(root)
    found = [one for one in json.loads(run_harpctl(root, "doctor", "--json"))["findings"] if one["id"] == id_]
    commands = [command for one in found for command in one["repair"]]
    assert [one["level"] for one in found] != ["ok"]
    assert commands
    for command in commands:
        assert str(root) in command
        paste_command(command, tmp_path)
    after = json.loads(run_harpctl(root, "doctor", "--json"))["findings"]
    assert [one["level"] for one in after if one["id"] == id_] == ["ok"], commands


def test_setup_as_a_repair_keeps_the_size_of_pages(world: World) -> None:
    world.conf(1, page_size="2M")
    world.conf(2, page_size="2M")
    assert adapt_repair("harpctl setup", world.context()) == "harpctl setup --page-size 2M"


def test_setup_as_a_repair_keeps_the_choice_of_enis(world: World) -> None:
    del world.confs[1]
    context = world.context()
    assert adapt_repair("harpctl setup --now", context) == "harpctl setup --now --enis eth2"
    assert adapt_repair("harpctl setup --enis eth1", context) == "harpctl setup --enis eth1"


def test_setup_as_a_repair_of_a_host_without_gpus(world: World) -> None:
    world.facts = replace(world.facts, gpus=())
    args = "default_hugepagesz=1GB hugepagesz=1GB hugepages=12"
    world.change("boot", entries=(BootEntry(title="Ubuntu", source="grub.cfg", args=args),))
    assert adapt_repair("harpctl setup", world.context()) == "harpctl setup --enis eth1,eth2 --hugepages 12"


def test_repairs_of_a_running_host_are_as_they_are(world: World) -> None:
    repair = "harpctl edit /etc/nccl.conf --unset NCCL_NET"
    assert adapt_repair(repair, world.context()) == repair


@pytest.mark.parametrize(
    ("repair", "mtu", "queues", "expected"),
    [
        ("ip link set dev eth1 mtu 1500  # on both", 9000, None, "harpctl setup --mtu 1500  # on both"),
        ("ip link set dev eth1 mtu 1500", None, 8, "ip link set dev eth1 mtu 1500"),
        ("ip link set dev eth3 mtu 1500", 9000, 8, "ip link set dev eth3 mtu 1500"),
        ("ethtool -L eth1 combined 4", 9000, 8, "harpctl setup --channels 4"),
        ("ethtool -L eth1 rx 4 tx 4", 9000, 8, "harpctl setup --channels 4"),
        ("ethtool -L eth1 combined 4", 9000, None, "ethtool -L eth1 combined 4"),
    ],
)
def test_what_is_recorded_is_changed_by_setup(
    world: World, repair: str, mtu: int | None, queues: int | None, expected: str
) -> None:
    context = world.context()
    record = Interfaces(enis=(EniPlan(number=0, name="eth1", mtu=mtu, queues=queues),))
    write_file(context.host.root, RECORD, encode_record(record).decode())
    assert adapt_repair(repair, context) == expected


@pytest.mark.parametrize(
    "spoilt", [("none",), ("mtu", "pci"), ("none", "nccl"), ("alien",), ("moved", "mode"), ("twice",)]
)
def test_after_the_first_command_the_host_validates(root: Path, tmp_path: Path, spoilt: tuple[str, ...]) -> None:
    for what in spoilt:
        SPOILT[what][1](root)
    assert CliRunner().invoke(app, ["validate", "--root", str(root)]).exit_code == 1
    first = run_harpctl(root, "doctor").splitlines()[0]
    assert first.startswith("First: "), first
    paste_command(first.removeprefix("First: "), tmp_path)
    done = CliRunner().invoke(app, ["validate", "--root", str(root)])
    assert done.exit_code == 0, (first, done.output)


def test_the_setups_of_several_findings_are_one() -> None:
    def failed(id_: str, *repair: str) -> Finding:
        return Finding(id=id_, title="", group=id_.partition(".")[0], level="fail", repair=repair)

    setups = [
        failed("hugepages.present", "harpctl setup --now --enis eth1  # on the host"),
        failed("confs.present", "harpctl setup --enis eth1 --page-size 2M"),
    ]
    assert one_command(setups) == "harpctl setup --now --enis eth1 --page-size 2M"
    more = failed("confs.names", "harpctl edit /a.conf --move-to /b.conf")
    moved = "harpctl edit /a.conf --move-to /b.conf"
    assert one_command([more, *setups]) == f"harpctl setup --now --enis eth1 --page-size 2M && {moved}"
    assert one_command([*setups, failed("confs.count", "bind one more ENI")]) == ""
    assert one_command([*setups, failed("confs.names", "harpctl setup --enis NAME")]) == ""
    assert one_command([]) == ""
