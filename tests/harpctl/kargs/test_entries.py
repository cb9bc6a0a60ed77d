# SPDX-License-Identifier: Apache-2.0
"""Menus, boot loader entries, the environment block: harpctl finds which of them a host really boots."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harpctl.facts import bls, grub_menu
from harpctl.facts.boot_loader import collect_boot
from harpctl.host.host import Host
from harpctl.kargs import boot_files
from harpctl.kargs.cmdline import HugepageArgs
from harpctl.kargs.plan import lacking_entries
from harpctl.units import GIB

G50 = HugepageArgs(page_size=GIB, count=50)
OURS = str(G50)
ENV_SIZE = 1024  # bytes of GRUB's environment block
ENV_HEAD = "# GRUB Environment Block\n"

MENU = """\
set default="0"
### BEGIN /etc/grub.d/10_linux ###
menuentry 'Linux, one' --class x {
\tlinux\t/boot/vmlinuz-1 root=UUID=1 ro  quiet $vt_handoff
}
submenu "More" {
\tmenuentry "Linux two" {
\t\tlinuxefi /vmlinuz-2 root=UUID=1 ro single 'dyndbg="file a b"'
\t}
}
### END /etc/grub.d/10_linux ###
### BEGIN /etc/grub.d/20_memtest86+ ###
menuentry 'Memory test' {
\tlinux16 /boot/memtest86+.bin
}
### END /etc/grub.d/20_memtest86+ ###
### BEGIN /etc/grub.d/30_os-prober ###
menuentry 'Another Linux' {
\tlinux /boot/vmlinuz root=/dev/sdb1
}
### END /etc/grub.d/30_os-prober ###
"""
STUB = "search --fs-uuid --set=dev 1\nset prefix=($dev)/grub2\nexport $prefix\nconfigfile $prefix/grub.cfg\n"


def write_file(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


# ---- grub.cfg ----


def test_menu_entries() -> None:
    found = grub_menu.parse_entries(MENU)
    assert [entry.title for entry in found] == ["Linux, one", "Linux two"]
    assert [grub_menu.passed_arguments(entry.raw, {}) for entry in found] == [
        "root=UUID=1 ro quiet",
        'root=UUID=1 ro single dyndbg="file a b"',
    ]
    assert grub_menu.passed_arguments(found[0].raw, {"vt_handoff": "vt.handoff=7"}).endswith("quiet vt.handoff=7")


def test_menu_written_by_hand_counts_where_there_is_no_other() -> None:
    text = "### BEGIN /etc/grub.d/40_custom ###\nmenuentry x {\nlinux /v a=1\n}\n### END - ###\n"
    assert [entry.title for entry in grub_menu.parse_entries(text)] == ["x"]
    assert [entry.title for entry in grub_menu.parse_entries(MENU + text)] == ["Linux, one", "Linux two"]


def test_edited_menu_changes_nothing_but_arguments() -> None:
    new = boot_files.edited_menu(MENU, {}, G50)
    assert new == MENU.replace("$vt_handoff\n", f"$vt_handoff {OURS}\n").replace("b\"'\n", f"b\"' {OURS}\n")
    assert boot_files.edited_menu(new, {}, G50) == new


def test_edited_menu_of_a_kernel_without_arguments() -> None:
    assert boot_files.edited_menu("menuentry x {\n  linux /vmlinuz\n}\n", {}, G50) == (
        f"menuentry x {{\n  linux /vmlinuz {OURS}\n}}\n"
    )


def test_variables() -> None:
    text = "set a=\"1 2\"\nset b=3\nset b=\nif true; then\n  set c='d'\nfi\n"
    assert grub_menu.parse_variables(text) == {"a": "1 2", "b": "", "c": "d"}
    assert grub_menu.expand_variables("$a ${c}x '$a' $none.", grub_menu.parse_variables(text)) == "1 2 dx '$a' ."


def test_stub_and_blscfg() -> None:
    assert grub_menu.is_stub(STUB)
    assert not grub_menu.is_stub(MENU)
    assert not grub_menu.runs_blscfg("insmod blscfg\n# blscfg\n")
    assert grub_menu.runs_blscfg("insmod blscfg\n  blscfg\n")


# ---- boot loader entries ----


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("title a\noptions ro quiet\nlinux /v\n", f"title a\noptions ro quiet {OURS}\nlinux /v\n"),
        ("options\tro  hugepagesz=1G hugepages=3  $tuned_params \n", f"options\tro  $tuned_params {OURS}\n"),
        ("title a\n", f"title a\noptions {OURS}\n"),
        ("title a", f"title a\noptions {OURS}\n"),
        ("options\n", f"options {OURS}\n"),
        (
            "options ro hugepagesz=1G\nlinux /v\noptions hugepages=3 quiet\n",
            f"options ro quiet {OURS}\nlinux /v\n",
        ),
        ("title a\r\noptions ro\r\n", f"title a\r\noptions ro {OURS}\r\n"),
    ],
)
def test_edited_entry(old: str, new: str) -> None:
    assert boot_files.edited_entry(old, G50) == new
    assert boot_files.edited_entry(new, G50) == new


def test_value_of_a_key() -> None:
    text = "title  A b\noptions ro\n# options no\noptions\tquiet\nlinuxfoo x\n"
    assert bls.value_of(text, "title") == "A b"
    assert bls.value_of(text, "options") == "ro quiet"
    assert bls.value_of(text, "linux") == ""


# ---- the environment block ----


def make_block(*lines: str) -> bytes:
    return (ENV_HEAD + "".join(f"{line}\n" for line in lines)).ljust(ENV_SIZE, "#").encode()


def test_environment_block_keeps_its_length() -> None:
    data = make_block("saved_entry=a#b", "kernelopts=ro quiet", "boot_success=1")
    assert bls.read_env(data) == {"saved_entry": "a#b", "kernelopts": "ro quiet", "boot_success": "1"}
    new = boot_files.edited_env("/e", data, "kernelopts", f"ro {OURS}")
    assert new == make_block("saved_entry=a#b", f"kernelopts=ro {OURS}", "boot_success=1")
    assert boot_files.edited_env("/e", new, "kernelopts", "ro quiet") == data
    assert boot_files.edited_env("/e", make_block("a=1"), "b", "c\\d") == make_block("a=1", "b=c\\\\d")
    assert bls.read_env(make_block("b=c\\\\d")) == {"b": "c\\d"}


def test_environment_block_that_is_full() -> None:
    data = make_block(f"kernelopts={'x' * 900}")
    with pytest.raises(HarpError, match=r"^/boot/grub2/grubenv: .* 1024 bytes"):
        boot_files.edited_env("/boot/grub2/grubenv", data, "kernelopts", "x" * 1000)


# ---- which files a host reads ----


@pytest.mark.parametrize(
    ("files", "firmware", "config"),
    [
        (["boot/grub/grub.cfg"], "", "/boot/grub/grub.cfg"),
        (["boot/grub2/grub.cfg"], "acpi", "/boot/grub2/grub.cfg"),
        (["boot/grub2/grub.cfg", "boot/efi/EFI/centos/grub.cfg"], "efi", "/boot/efi/EFI/centos/grub.cfg"),
        (["boot/grub2/grub.cfg", "boot/efi/EFI/centos/grub.cfg"], "acpi", "/boot/grub2/grub.cfg"),
        (["boot/grub2/grub.cfg"], "efi", "/boot/grub2/grub.cfg"),
        (["boot/efi/EFI/rocky/grub.cfg"], "", "/boot/efi/EFI/rocky/grub.cfg"),
    ],
)
def test_the_config_that_is_read(tmp_path: Path, files: list[str], firmware: str, config: str) -> None:
    for path in files:
        write_file(tmp_path, path, MENU)
    if firmware:
        (tmp_path / "sys/firmware" / firmware).mkdir(parents=True)
    boot = collect_boot(Host(tmp_path))
    assert (boot.loader, boot.config) == ("grub", config)
    assert {entry.source for entry in boot.entries} == {config}


def test_a_stub_is_not_the_config(tmp_path: Path) -> None:
    write_file(tmp_path, "boot/grub2/grub.cfg", MENU)
    write_file(tmp_path, "boot/efi/EFI/rocky/grub.cfg", STUB)
    (tmp_path / "sys/firmware/efi").mkdir(parents=True)
    boot = collect_boot(Host(tmp_path))
    assert boot.config == "/boot/grub2/grub.cfg"
    assert boot.is_efi


def test_a_tree_with_two_menus_has_the_entries_of_both(tmp_path: Path) -> None:
    write_file(tmp_path, "boot/grub2/grub.cfg", MENU)
    write_file(tmp_path, "boot/efi/EFI/centos/grub.cfg", MENU)
    boot = collect_boot(Host(tmp_path))
    assert len(boot.entries) == 4
    assert boot.config == "/boot/grub2/grub.cfg"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("boot/loader/loader.conf", "systemd-boot without GRUB"),
        ("boot/efi/loader/loader.conf", "systemd-boot without GRUB"),
        ("boot/loader/entries/a.conf", "systemd-boot without GRUB"),
        ("boot/extlinux/extlinux.conf", "extlinux"),
        ("boot/grub2/themes/x", "/boot/grub2 holds no grub.cfg"),
        ("etc/hostname", "container"),
    ],
)
def test_loaders_that_are_not_edited(tmp_path: Path, path: str, reason: str) -> None:
    write_file(tmp_path, path, "title a\nlinux /v\noptions ro\n")
    boot = collect_boot(Host(tmp_path))
    assert boot.loader == ""
    assert reason in boot.reason
    assert lacking_entries(boot, G50)


def test_kernelopts_of_the_environment_go_before_those_of_the_menu(tmp_path: Path) -> None:
    text = 'if [ -z "${kernelopts}" ]; then\n  set kernelopts="ro menu"\nfi\nset tuned_params="t=1"\nblscfg\n'
    write_file(tmp_path, "boot/grub2/grub.cfg", text)
    write_file(tmp_path, "boot/loader/entries/a.conf", "title a\nlinux /v\noptions $kernelopts $tuned_params\n")
    host = Host(tmp_path)
    assert collect_boot(host).entries[0].args == "ro menu t=1"
    (tmp_path / "boot/grub2/grubenv").write_bytes(make_block("kernelopts=ro env"))
    assert collect_boot(host).entries[0].args == "ro env t=1"
    assert collect_boot(host).loader == "bls"


def test_drop_ins_are_debians(tmp_path: Path) -> None:
    write_file(tmp_path, "etc/default/grub.d/b.cfg", "")
    write_file(tmp_path, "etc/default/grub.d/a.cfg", "")
    write_file(tmp_path, "etc/default/grub.d/a.cfg.dpkg-old", "")
    write_file(tmp_path, "boot/grub/grub.cfg", MENU)
    drop_ins = ("/etc/default/grub.d/a.cfg", "/etc/default/grub.d/b.cfg")
    assert collect_boot(Host(tmp_path)).dropins == drop_ins
    (tmp_path / "boot/grub").rename(tmp_path / "boot/grub2")
    assert collect_boot(Host(tmp_path)).dropins == ()


def test_a_menu_that_cannot_be_read_verifies_nothing(tmp_path: Path) -> None:
    (tmp_path / "boot/grub/grub.cfg").mkdir(parents=True)
    assert collect_boot(Host(tmp_path)).loader == ""

    class Blind(Host):
        def read_bytes(self, path: str) -> bytes | None:
            return None if path.endswith("grub.cfg") else super().read_bytes(path)

    (tmp_path / "boot/grub/grub.cfg").rmdir()
    write_file(tmp_path, "boot/grub/grub.cfg", MENU)
    boot = collect_boot(Blind(tmp_path))
    assert boot.loader == "grub"
    assert "root can" in boot.reason
    assert len(lacking_entries(boot, G50)) == 1
