# SPDX-License-Identifier: Apache-2.0
"""The command's two forms."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.facts.collect import collect_facts
from harpctl.facts.model import Facts
from harpctl.host.host import Host
from tests.harpctl.machine import build_machine


def run_facts(root: Path, *words: str) -> str:
    return CliRunner().invoke(app, ["facts", "--root", str(root), *words]).output


def test_json_is_the_facts(tmp_path: Path) -> None:
    build_machine(tmp_path, "tencentos-3.1", "prepared")
    text = run_facts(tmp_path, "--json")
    assert msgspec.json.decode(text, type=Facts) == collect_facts(Host(tmp_path))
    summary = "TencentOS Server 3.1 (Final); Linux 5.4.119-19-0009.11; 8 GPUs; ENIs: eth0, eth1, eth2"
    assert json.loads(text)["summary"].startswith(summary)


def test_the_table_is_whole_in_a_pipe(tmp_path: Path) -> None:
    build_machine(tmp_path, "tencentos-3.1", "prepared")
    out = run_facts(tmp_path)
    for text in (
        *("TencentOS Server 3.1 (Final) (rhel family)", "5.4.119-19-0009.11 x86_64", "948 GiB"),
        *("50 x 1 GiB (50 free)", "/dev/hugepages (1 GiB)", "96 threads of 48 cores", "not installed"),
        *("missing programs", "update-grub, update-grub2, grub-mkconfig, rpm-ostree, netplan, ping"),
        *("10.0.8.18/24", "52:54:00:00:00:18", "0000:a6:00.0", "default route", "10de:20b0"),
    ):
        assert text in out
    assert "Unknown" not in out


def test_what_is_unknown_is_reported(tmp_path: Path) -> None:
    assert "Unknown: The distribution is unknown" in run_facts(tmp_path)


def test_a_root_that_is_not_there(tmp_path: Path) -> None:
    assert "no such directory" in run_facts(tmp_path / "none")


def test_what_a_bare_tree_lacks_is_unknown(tmp_path: Path) -> None:
    rows = dict(line.split("  ", 1) for line in run_facts(tmp_path).splitlines() if "  " in line)
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
    found = json.loads(run_facts(tmp_path, "--json"))
    assert (found["limits"]["memlock"], found["limits"]["capabilities"]) == (None, None)
    assert found["memory"]["has_1g"] is None
