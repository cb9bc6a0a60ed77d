# SPDX-License-Identifier: Apache-2.0
"""Whole plans on the distributions' trees: by files alone, and by the distributions' own commands."""

from __future__ import annotations

import difflib
import shlex
import shutil
from pathlib import Path

import msgspec
import pytest

from harpctl.change.steps import Group, Run, WriteFile
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.boot_loader import collect_boot
from harpctl.facts.model import Boot, BootEntry, Facts, Memory, Mount, System
from harpctl.facts.sources import collect_sources
from harpctl.host.host import Host
from harpctl.kargs.cmdline import HugepageArgs, split_words
from harpctl.kargs.defaults import with_code
from harpctl.kargs.plan import lacking_entries, plan_kernel_args
from harpctl.units import GIB, MIB
from tests.harpctl import golden
from tests.harpctl.kargs.distro import Distro, carry_out
from tests.harpctl.machine import DISTROS, build_machine

GOLDEN = Path(__file__).parent / "golden"
G50 = HugepageArgs(page_size=GIB, count=50)
M999 = HugepageArgs(page_size=2 * MIB, count=999)
BLS = ("rocky-8", "rocky-9", "tencentos-3.1", "tencentos-4")

CODE = "".join(f"+{line}\n" for line in with_code("", G50).splitlines())

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")


def make_facts(host: Host) -> Facts:
    return Facts(system=System(), boot=collect_boot(host), memory=Memory())


def make_group(host: Host, wanted: HugepageArgs = G50) -> Group:
    return plan_kernel_args(make_facts(host), collect_sources(host, (), program="harpctl"), wanted)


def read_files(root: Path) -> dict[str, bytes]:
    found = [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def other_words(entry: BootEntry) -> list[str]:
    return [word.text for word in split_words(entry.args) if "hugepages" not in word.text]


def render_group(group: Group, host: Host) -> str:
    """Write a plan as one reads it: a diff of every file, then the commands."""
    text = ""
    for step in group.steps:
        if isinstance(step, WriteFile):
            old = (host.read_text(step.path) or "").splitlines()
            new = step.data.decode().splitlines()
            text += "\n".join(difflib.unified_diff(old, new, step.path, step.path, n=0, lineterm="")) + "\n"
        elif isinstance(step, Run):
            text += f"$ {shlex.join(step.argv)}\n"
            text += "".join(f"  rewrites {path}\n" for path in step.rewrites)
            text += f"  again {shlex.join(step.again)}\n" if step.again else ""
    return text


def test_the_code_in_defaults() -> None:
    assert with_code("", G50) == (GOLDEN / "code.txt").read_text()


@pytest.mark.parametrize("distro", golden.ORDER)
def test_golden_plans(tmp_path: Path, distro: str, update_golden: bool) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    tree, live = Host(root), Host(root, Distro(root))
    text = f"# {distro}: as a directory tree\n{render_group(make_group(tree), tree)}"
    text += f"\n# {distro}: running\n{render_group(make_group(live), live)}"
    golden.check_golden(
        GOLDEN, distro, ".txt", text.replace(CODE, "+the lines of code.txt\n"), update=update_golden
    )


def carry_out_and_check(host: Host, wanted: HugepageArgs) -> Boot:
    """Return what boots then: it has the arguments, its others are as before, and nothing is left to do."""
    before = collect_boot(host)
    carry_out(make_group(host, wanted), host)
    after = collect_boot(host)
    assert lacking_entries(after, wanted) == []
    assert make_group(host, wanted).steps == ()
    assert [other_words(entry) for entry in after.entries] == [other_words(entry) for entry in before.entries]
    return after


@pytest.mark.parametrize("distro", DISTROS)
def test_tree_boots_with_the_arguments(tmp_path: Path, distro: str) -> None:
    host = Host(build_machine(tmp_path / "root", distro, "gpu1"))
    before = collect_boot(host)
    assert len(lacking_entries(before, G50)) == len(before.entries)
    for wanted in (G50, M999, G50):
        after = carry_out_and_check(host, wanted)
    assert all(entry.args.endswith(str(G50)) for entry in after.entries)


@needs_bash
@pytest.mark.parametrize("knows_flag", [True, False])
@pytest.mark.parametrize("distro", DISTROS)
def test_commands_lead_to_entries_that_hold(tmp_path: Path, distro: str, knows_flag: bool) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    runner = Distro(root, knows_flag=knows_flag)
    host = Host(root, runner)
    for wanted in (G50, M999, G50):
        assert carry_out_and_check(host, wanted).harp_args == str(wanted)
    assert len(runner.ran) == 3
    assert all(("grubby" in line) is (distro in BLS) for line in runner.ran)


def test_defaults_that_hold_do_not_hide_a_stale_menu(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "ubuntu-22.04", "gpu1")
    host = Host(root, Distro(root))
    carry_out(Group(name="", steps=tuple(s for s in make_group(host).steps if isinstance(s, WriteFile))), host)
    (step,) = make_group(host).steps
    assert isinstance(step, Run)
    assert step.argv == ("update-grub2",)
    assert step.always


def test_a_menu_that_holds_still_gets_its_defaults_mended(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "ubuntu-22.04", "gpu1")
    carry_out(make_group(Host(root)), Host(root))
    (root / "etc/default/grub.d/zz-harp.cfg").unlink()
    (step,) = make_group(Host(root, Distro(root))).steps
    assert isinstance(step, WriteFile)
    assert step.path == "/etc/default/grub.d/zz-harp.cfg"


def test_the_operators_own_lines_are_enough(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "ubuntu-22.04", "gpu1")
    path = root / "etc/default/grub.d/50-cloudimg-settings.cfg"
    path.write_text(path.read_text() + f'GRUB_CMDLINE_LINUX="{G50}"\n')
    host = Host(root, Distro(root))
    host.run(("update-grub2",))
    assert make_group(host).steps == ()


def test_grubby_keeps_pairs_of_other_sizes(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "rocky-9", "gpu1")
    for path in (*root.glob("boot/loader/entries/*.conf"), root / "etc/kernel/cmdline"):
        path.write_text(path.read_text().replace("net.ifnames=0", "hugepagesz=16M hugepages=7 net.ifnames=0"))
    host = Host(root, Distro(root))
    (run,) = (step for step in make_group(host).steps if isinstance(step, Run))
    assert f"--args=hugepagesz=16M hugepages=7 {G50}" in run.argv
    assert "--args=hugepagesz=16M hugepages=7" in run.again
    carry_out(make_group(host), host)
    boot = collect_boot(host)
    assert lacking_entries(boot, G50) == []
    assert all("hugepagesz=16M hugepages=7" in entry.args for entry in boot.entries)


def test_entries_are_edited_where_grubby_cannot_do_it(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "rocky-9", "gpu1")
    path = next(root.glob("boot/loader/entries/*427*.conf"))
    path.write_text(path.read_text().replace("net.ifnames=0", "net.ifnames=0 hugepagesz=16M hugepages=7"))
    host = Host(root, Distro(root))
    carry_out(make_group(host), host)
    boot = collect_boot(host)
    assert lacking_entries(boot, G50) == []
    assert ["hugepagesz=16M" in entry.args for entry in boot.entries] == [False, True, False]


@pytest.mark.parametrize("distro", BLS)
def test_entries_are_edited_without_grubby(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    (root / "usr/sbin/grubby").unlink()
    runner = Distro(root)
    host = Host(root, runner)
    carry_out(make_group(host), host)
    assert runner.ran == []
    assert lacking_entries(collect_boot(host), G50) == []


@pytest.mark.parametrize("runs", [False, True])
def test_literal_options_of_el_8_1(tmp_path: Path, runs: bool) -> None:
    """Hold to entries whose options an early grubby wrote out: kernelopts has no effect on them."""
    root = build_machine(tmp_path / "root", "rocky-8", "gpu1")
    for path in root.glob("boot/loader/entries/*.conf"):
        path.write_text(path.read_text().replace("$kernelopts", "root=/dev/vda1 ro quiet"))
    host = Host(root, Distro(root, knows_flag=False) if runs else None)
    carry_out(make_group(host), host)
    assert {entry.args for entry in collect_boot(host).entries} == {f"root=/dev/vda1 ro quiet {G50}"}


@pytest.mark.parametrize("distro", ["rocky-8", "rocky-9"])
def test_a_tuned_profile_that_sets_other_pages_is_refused(tmp_path: Path, distro: str) -> None:
    root = build_machine(tmp_path / "root", distro, "gpu1")
    config = root / "boot/grub2/grub.cfg"
    config.write_text(config.read_text().replace("insmod blscfg", 'set tuned_params="hugepages=9"\ninsmod blscfg'))
    before = read_files(root)
    with pytest.raises(HarpError, match="tuned") as caught:
        make_group(Host(root))
    assert str(G50) in caught.value.hint
    assert read_files(root) == before


def test_entries_that_a_new_menu_will_read(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "rocky-9", "gpu1")
    config = root / "boot/grub2/grub.cfg"
    config.write_text(config.read_text().replace("\nblscfg\n", "\nmenuentry x {\n linux /v root=a ro \n}\n"))
    host = Host(root, Distro(root))
    assert collect_boot(host).loader == "grub"
    assert [step.argv[0] for step in make_group(host).steps if isinstance(step, Run)] == [
        "grubby",
        "grub2-mkconfig",
    ]
    carry_out(make_group(host), host)
    config.write_text(config.read_text() + "blscfg\n")
    boot = collect_boot(host)
    assert len(boot.entries) == 4
    assert lacking_entries(boot, G50) == []


def test_grub_without_generator(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "centos-7", "gpu1")
    (root / "usr/sbin/grub2-mkconfig").unlink()
    with pytest.raises(HarpError, match="no grub2-mkconfig") as caught:
        make_group(Host(root, Distro(root)))
    assert "--no-kernel-args" in caught.value.hint


def test_unknown_loader_names_the_arguments_to_add(tmp_path: Path) -> None:
    with pytest.raises(HarpError, match="container is prepared on its host") as caught:
        make_group(Host(tmp_path))
    assert str(G50) in caught.value.hint
    assert caught.value.exit_code is ExitCode.MISSING


def test_read_only_boot_is_refused(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "ubuntu-22.04", "gpu1")
    host = Host(root, Distro(root))
    known, sources = make_facts(host), collect_sources(host, ())
    mounts = (
        Mount(source="/dev/vda1", path="/", kind="ext4", options="rw"),
        Mount(source="/dev/vda2", path="/boot", kind="ext4", options="ro,relatime"),
    )
    with pytest.raises(HarpError, match="/boot is mounted read-only") as caught:
        plan_kernel_args(msgspec.structs.replace(known, mounts=mounts), sources, G50)
    assert "mount -o remount,rw /boot" in caught.value.hint
    plan_kernel_args(msgspec.structs.replace(known, mounts=mounts[:1]), sources, G50)


class Blind(Host):
    """A host whose user may not read /etc/default/grub."""

    def read_bytes(self, path: str) -> bytes | None:
        return None if path == "/etc/default/grub" else super().read_bytes(path)


def test_defaults_that_cannot_be_read_are_not_overwritten(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "centos-7", "gpu1")
    with pytest.raises(HarpError, match="/etc/default/grub cannot be read"):
        make_group(Blind(root, Distro(root)))


@pytest.mark.parametrize("runs", [pytest.param(True, marks=needs_bash), False])
def test_a_menu_with_entries_of_both_kinds(tmp_path: Path, runs: bool) -> None:
    root = build_machine(tmp_path / "root", "rocky-8", "gpu1")
    config = root / "boot/grub2/grub.cfg"
    config.write_text(config.read_text() + "menuentry x {\n linux /vmlinuz root=a ro \n}\n")
    host = Host(root, Distro(root) if runs else None)
    carry_out(make_group(host), host)
    boot = collect_boot(host)
    assert len(boot.entries) == 4
    assert lacking_entries(boot, G50) == []
    assert runs or f'{G50} "\nfi' in config.read_text()  # what is set where grubenv does not contain it


def test_missing_defaults_are_made(tmp_path: Path) -> None:
    root = build_machine(tmp_path / "root", "centos-7", "gpu1")
    (root / "etc/default/grub").unlink()
    step = make_group(Host(root, Distro(root))).steps[0]
    assert isinstance(step, WriteFile)
    assert step.path == "/etc/default/grub"
    assert f"harp_args='{G50}'" in step.data.decode()


# ---- ostree ----

OSTREE = "title Fedora CoreOS\nversion {}\noptions {} ostree=/ostree/boot.1/x\nlinux /ostree/x/vmlinuz\n"


def make_ostree(root: Path, args: str = "ro quiet") -> Path:
    entries = root / "boot/loader/entries"
    entries.mkdir(parents=True)
    (entries / "ostree-1.conf").write_text(OSTREE.format(1, "ro old"))
    (entries / "ostree-2.conf").write_text(OSTREE.format(2, args))
    (root / "usr/bin").mkdir(parents=True)
    (root / "usr/bin/rpm-ostree").touch(0o755)
    return root


def test_ostree_by_rpm_ostree(tmp_path: Path) -> None:
    root = make_ostree(tmp_path, "ro default_hugepagesz=2M hugepagesz=2M hugepages=4 hugepagesz=16M hugepages=1")
    (run,) = make_group(Host(root, Distro(root))).steps
    assert isinstance(run, Run)
    deletes = [f"--delete={word}" for word in ("default_hugepagesz=2M", "hugepagesz=2M", "hugepages=4")]
    deletes += ["--delete=hugepagesz=16M", "--delete=hugepages=1"]
    appends = [f"--append={word}" for word in ("hugepagesz=16M", "hugepages=1", *G50.words())]
    assert run.argv == ("rpm-ostree", "kargs", *deletes, *appends)
    assert len(run.undo) == len(run.argv)
    assert "--append=hugepages=4" in run.undo


def test_ostree_tree(tmp_path: Path) -> None:
    host = Host(make_ostree(tmp_path))
    assert [entry.source for entry in collect_boot(host).entries] == ["/boot/loader/entries/ostree-2.conf"]
    carry_out(make_group(host), host)
    assert lacking_entries(collect_boot(host), G50) == []
    assert "ro old ostree" in (host.read_text("/boot/loader/entries/ostree-1.conf") or "")
    assert make_group(host).steps == ()
    assert not host.exists("/etc/default/grub")
