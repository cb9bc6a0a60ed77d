# SPDX-License-Identifier: Apache-2.0
"""The command's two forms."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from harpctl.errors import HarpError
from harpctl.facts.collect import collect
from harpctl.facts.command import facts
from harpctl.facts.model import Facts
from harpctl.host.host import Host
from tests.harpctl.cli_app import app
from tests.harpctl.machine import build


def test_json_is_the_facts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, "tencentos-3.1", "prepared")
    facts(root=tmp_path, as_json=True)
    text = capsys.readouterr().out
    assert msgspec.json.decode(text, type=Facts) == collect(Host(tmp_path))
    summary = "TencentOS Server 3.1 (Final); Linux 5.4.119-19-0009.11; 8 GPUs; ENIs: eth0, eth1, eth2"
    assert json.loads(text)["summary"].startswith(summary)


def test_the_table_is_whole_in_a_pipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    build(tmp_path, "tencentos-3.1", "prepared")
    facts(root=tmp_path)
    out = capsys.readouterr().out
    for text in (
        *("TencentOS Server 3.1 (Final) (rhel family)", "5.4.119-19-0009.11 x86_64", "948 GiB"),
        *("50 x 1 GiB (50 free)", "/dev/hugepages (1 GiB)", "96 threads of 48 cores", "not installed"),
        *("missing programs", "update-grub, update-grub2, grub-mkconfig, rpm-ostree, netplan, ping"),
        *("10.0.8.18/24", "52:54:00:00:00:18", "0000:a6:00.0", "default route", "10de:20b0"),
    ):
        assert text in out
    assert "Unknown" not in out


def test_what_is_unknown_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    facts(root=tmp_path)
    assert "Unknown: The distribution is unknown" in capsys.readouterr().out


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="no such directory"):
        facts(root=tmp_path / "none")


def test_what_a_bare_tree_lacks_is_unknown(tmp_path: Path) -> None:
    shown = CliRunner().invoke(app, ["facts", "--root", str(tmp_path)]).stdout
    rows = dict(line.split("  ", 1) for line in shown.splitlines() if "  " in line)
    values = {name: text.strip() for name, text in rows.items()}
    for name in (
        "container",
        "hugepages",
        "hugetlbfs",
        "locked memory",
        "capabilities",
        "memory",
        "processors",
    ):
        assert values[name] == "unknown", name
    found = json.loads(CliRunner().invoke(app, ["facts", "--root", str(tmp_path), "--json"]).stdout)
    assert (found["limits"]["memlock"], found["limits"]["capabilities"]) == (None, None)
    assert found["memory"]["has_1g"] is None
