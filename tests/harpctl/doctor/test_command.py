# SPDX-License-Identifier: Apache-2.0
"""validate, doctor and topo as an operator runs them, on trees of whole machines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harpctl.change import store
from harpctl.change.journal import Journal
from harpctl.cli import app
from harpctl.confs.conf import conf_path
from harpctl.doctor.model import CHECKS
from harpctl.doctor.topo import make_topo
from harpctl.errors import HarpError
from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Boot, Eni, Facts, Gpu, Memory, System
from harpctl.host.host import Host
from tests.harpctl.machine import DISTROS, build_machine


def run_harpctl(*argv: str) -> Result:
    return CliRunner().invoke(app, list(argv), catch_exceptions=False)


def run_for_json(*argv: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run_harpctl(*argv, "--json").stdout)
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return build_machine(tmp_path / "tree", "rocky-9", "prepared")


@pytest.fixture
def ready(tree: Path) -> Path:
    done = run_harpctl("setup", "--root", str(tree), "--yes")
    assert done.exit_code == 0, done.output
    return tree


# ---- validate ----


@pytest.mark.parametrize("distro", DISTROS)
def test_what_setup_leaves_is_right(distro: str, tmp_path: Path) -> None:
    tree = build_machine(tmp_path, distro, "prepared")
    before = run_harpctl("validate", "--root", str(tree))
    assert before.exit_code == 1
    assert "There is no ztcp*.conf in /usr/local/tfabric/tools/config" in before.stdout
    assert "HARP is not set up correctly" in before.stdout.splitlines()[-1]
    assert run_harpctl("setup", "--root", str(tree), "--yes").exit_code == 0
    after = run_harpctl("validate", "--root", str(tree))
    assert after.exit_code == 0
    assert after.stdout.startswith("HARP is set up correctly")


def test_validate_prints_failures_alone(ready: Path) -> None:
    (ready / conf_path(0).lstrip("/")).write_text("[eni]\ninterface = eth1\nmtu = big\n")
    done = run_harpctl("validate", "--root", str(ready))
    assert done.exit_code == 1
    assert [line.split(maxsplit=1)[0] for line in done.stdout.splitlines() if line.startswith("  f")] == ["fail"]
    assert "warn" not in done.stdout
    assert f"{conf_path(0)}:3: key 'mtu' = 'big': expected a number from 576 to 65536" in done.stdout


def test_json_of_validate(ready: Path) -> None:
    found = run_for_json("validate", "--root", str(ready))
    assert set(found) == {"ok", "worst", "findings", "transactions"}
    assert found["ok"] is True
    for finding in found["findings"]:
        assert set(finding) == {"id", "title", "group", "level", "cause", "repair", "is_safe"}
        assert CHECKS[finding["id"]].validates


# ---- doctor ----


def test_doctor_shows_every_group(ready: Path) -> None:
    done = run_harpctl("doctor", "--root", str(ready))
    assert done.exit_code == 0
    for name in ("Hugepages", "Conf files", "ENIs", "Plugin", "Limits", "System"):
        assert re.search(rf"^{name}: |^Without findings.*[ ,]{name} \d", done.stdout, re.MULTILINE), name
    assert "Peer: " not in done.stdout
    assert done.stdout.splitlines()[-1].startswith("0 failed, ")
    assert len(run_harpctl("doctor", "-v", "--root", str(ready)).stdout) > 2 * len(done.stdout)


def test_doctor_fails_and_repairs_what_is_safe(ready: Path) -> None:
    file = ready / conf_path(1).lstrip("/")
    wanted = ready / "etc/systemd/system/multi-user.target.wants/harp.service"
    file.chmod(0o666)
    wanted.unlink()
    shown = run_harpctl("doctor", "--root", str(ready))
    assert f"repair: chmod o-w {ready}{conf_path(1)}" in shown.stdout
    assert "`harpctl doctor --fix` repairs 2 of them" in shown.stdout
    assert file.stat().st_mode & 0o777 == 0o666
    found = run_for_json("doctor", "--fix", "--root", str(ready))
    assert len(found["transactions"]) == 2
    levels = {finding["id"]: finding["level"] for finding in found["findings"]}
    assert (levels["confs.mode"], levels["system.unit"]) == ("ok", "ok")
    assert file.stat().st_mode & 0o777 == 0o664
    assert wanted.is_symlink()
    assert run_for_json("doctor", "--fix", "--root", str(ready))["transactions"] == []
    assert run_harpctl("rollback", "--root", str(ready), found["transactions"][0]).exit_code == 0
    assert file.stat().st_mode & 0o777 == 0o666
    assert not wanted.is_symlink()


def test_fix_undoes_an_interrupted_setup_before_it_looks(tree: Path) -> None:
    host = Host(tree)
    store.make_folder(host)
    Journal(host).begin("setup")
    found = run_for_json("doctor", "--root", str(tree))
    assert [one["repair"] for one in found["findings"] if one["id"] == "system.journal"] == [
        [f"harpctl rollback --root {tree}"]
    ]
    levels = {one["id"]: one["level"] for one in run_for_json("doctor", "--fix", "--root", str(tree))["findings"]}
    assert levels["system.journal"] == "ok"
    assert not (tree / store.HOME[1:]).exists()


def test_a_repair_that_fails_is_reported(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = ready / conf_path(1).lstrip("/")
    file.chmod(0o666)
    monkeypatch.setattr("harpctl.doctor.command.apply_plan", _raise_disk_full)
    done = run_harpctl("doctor", "--fix", "--root", str(ready))
    assert f"confs.mode: chmod o-w {ready}{conf_path(1)}: The disk is full." in done.output
    assert "Anyone may write" in done.stdout


def _raise_disk_full(*_arguments: object, **_named: object) -> str:
    raise HarpError("The disk is full.")


def test_wrong_port(tree: Path) -> None:
    done = run_harpctl("doctor", "--root", str(tree), "--port", "80")
    assert done.exit_code == 2
    assert "1024" in done.output


def test_peer_of_a_tree(ready: Path) -> None:
    found = run_for_json("doctor", "--root", str(ready), "--peer", "10.0.0.1")
    assert {f["level"] for f in found["findings"] if f["group"] == "peer"} == {"skip"}


# ---- topo ----


def test_topo(tree: Path) -> None:
    devices = {device["name"]: device for device in run_for_json("topo", "--root", str(tree))["devices"]}
    assert list(devices) == [*(f"GPU{n}" for n in range(8)), *(f"eth{n}" for n in range(9))]
    first = devices["GPU0"]
    assert first["relations"]["GPU0"] == "X"
    assert first["relations"]["GPU1"] == first["relations"]["eth1"] == "PIX"
    assert first["relations"]["GPU2"] == "NODE"
    assert first["relations"]["GPU7"] == first["relations"]["eth8"] == "SYS"
    assert (first["numa"], first["cpus"], first["partner"]) == (0, "0-23,48-71", "eth1")
    for name, device in devices.items():
        assert all(devices[other]["relations"][name] == word for other, word in device["relations"].items())
        if device["partner"]:
            assert devices[device["partner"]]["partner"] == name
    assert devices["eth0"]["partner"] == ""  # it carries the default route


def test_topo_for_people(tree: Path) -> None:
    lines = run_harpctl("topo", "--root", str(tree)).stdout.splitlines()
    row = next(line.split() for line in lines if line.strip().startswith("GPU4"))
    assert row[-4:] == ["24-47,72-95", "1", "0000:83:00.0", "eth5"]
    assert any(line.split()[:1] == ["SYS"] for line in lines)
    assert not any(line.split()[:1] == ["PHB"] for line in lines)  # no such pair, so it is not explained


def test_topo_agrees_with_setup(ready: Path) -> None:
    topo = make_topo(collect_facts(Host(ready)))
    partners = {device.partner: device.name for device in topo.devices if device.name.startswith("GPU")}
    for number in range(8):
        text = (ready / conf_path(number).lstrip("/")).read_text()
        values = dict(line.split(" = ") for line in text.splitlines() if " = " in line)
        assert partners[values["interface"]] == f"GPU{values['gpu']}"


def test_topo_of_unknown_places() -> None:
    gpu = Gpu(index=0, pci="0000:01:00.0", vendor="10de", device="20b0", node=-1)
    facts = Facts(system=System(), boot=Boot(), memory=Memory(), gpus=(gpu,), enis=(Eni(name="eth1"),))
    [first, second] = make_topo(facts).devices
    assert first.relations == {"GPU0": "X", "eth1": "?"}
    assert (first.cpus, first.numa, first.partner, second.partner) == ("", -1, "eth1", "GPU0")


def test_topo_of_nothing(tmp_path: Path) -> None:
    done = run_harpctl("topo", "--root", str(tmp_path))
    assert done.exit_code == 0
    assert "There are no GPUs and no ENIs." in done.stdout
