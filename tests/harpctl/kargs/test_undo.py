# SPDX-License-Identifier: Apache-2.0
"""Applied, booted once, rolled back: every distribution has its own files and entries again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harpctl.change.apply import apply_plan
from harpctl.change.rollback import roll_back
from harpctl.change.steps import Plan
from harpctl.console import NoProgress
from harpctl.facts.boot_loader import collect_boot
from harpctl.facts.model import Facts, Memory, System
from harpctl.facts.sources import collect_sources
from harpctl.host.host import Host
from harpctl.kargs.cmdline import HugepageArgs
from harpctl.kargs.plan import lacking_entries, plan_kernel_args
from harpctl.units import GIB
from tests.harpctl.kargs.distro import Distro
from tests.harpctl.machine import DISTROS, build_machine

G50 = HugepageArgs(page_size=GIB, count=50)

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def set_up(host: Host) -> None:
    facts = Facts(system=System(), boot=collect_boot(host), memory=Memory())
    sources = collect_sources(host, (), program="harpctl")
    apply_plan(Plan(groups=(plan_kernel_args(facts, sources, G50),)), host, what="setup", progress=NoProgress())
    assert lacking_entries(collect_boot(host), G50) == []


def read_texts(root: Path) -> dict[str, bytes]:
    found = [*root.glob("boot/**/*"), *root.glob("etc/**/*")]
    return {
        str(path.relative_to(root)): path.read_bytes().replace(b"boot_success=1", b"boot_success=0")
        for path in found
        if path.is_file() and not path.is_symlink()
    }


@pytest.mark.parametrize("runs", [pytest.param(True, marks=needs_bash), False])
@pytest.mark.parametrize("distro", DISTROS)
def test_rollback_restores_the_bytes(tmp_path: Path, distro: str, runs: bool) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    host = Host(root, Distro(root) if runs else None)
    before = read_texts(root)
    set_up(host)
    assert roll_back(host, progress=NoProgress()).kept == ()
    assert read_texts(root) == before


@needs_bash
@pytest.mark.parametrize("distro", DISTROS)
def test_rollback_after_a_boot_and_a_new_kernel(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    host = Host(root, Distro(root))
    before = collect_boot(host)
    set_up(host)
    for env in root.glob("boot/**/grubenv"):
        env.write_text(env.read_text().replace("boot_success=0", "boot_success=1"))
    for entry in sorted(root.glob("boot/loader/entries/*.conf"))[:1]:
        (entry.parent / "new.conf").write_text(entry.read_text())
    roll_back(host, progress=NoProgress())
    after = collect_boot(host)
    assert not [entry for entry in after.entries if "hugepages" in entry.args]
    assert [entry for entry in after.entries if "new.conf" not in entry.source] == list(before.entries)
    assert "hugepages" not in (host.read_text("/etc/default/grub") or "")
    assert "hugepages" not in (host.read_text("/etc/kernel/cmdline") or "")
