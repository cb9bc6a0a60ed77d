# SPDX-License-Identifier: Apache-2.0
"""Rolling back: what somebody changed stays and is named, everything else is as it was."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest

from harpctl.change.apply import apply_plan
from harpctl.change.rollback import list_transactions
from harpctl.change.steps import Group, Plan, WriteFile
from harpctl.console import NoProgress
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from tests.harpctl.change.site import (
    CONF,
    ENTRIES,
    GRUB,
    GRUB_CFG,
    HOME,
    PAGES,
    Snapshot,
    commands_of,
    make_host,
    make_tree,
    set_up,
    take_snapshot,
    undo_all,
)


@dataclasses.dataclass
class Site:
    """A host that is set up, and what it was before."""

    root: Path
    host: Host
    before: Snapshot

    def at(self, path: str) -> Path:
        return self.root / path.lstrip("/")

    def differs(self) -> set[str]:
        """Return the paths that are not as they were, the journal left out."""
        now = take_snapshot(self.root, journal=False)
        return {path for path in now.keys() | self.before.keys() if now.get(path) != self.before.get(path)}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    root = tmp_path / "host"
    make_tree(root)
    before = take_snapshot(root)
    host = make_host(root)
    set_up(host)
    commands_of(host).ran.clear()
    return Site(root, host, before)


def apply_write(host: Host, path: str, data: bytes, what: str = "setup") -> str:
    plan = Plan(groups=(Group(name="file", steps=(WriteFile(path=path, data=data),)),))
    return apply_plan(plan, host, what=what, progress=NoProgress())


def test_everything_is_undone(site: Site) -> None:
    report = undo_all(site.host)
    assert len(report.undone) == 1
    assert take_snapshot(site.root) == site.before


def test_nothing_to_undo(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    assert undo_all(make_host(tmp_path)).undone == ()
    assert take_snapshot(tmp_path) == before


def test_a_changed_file_is_kept_and_can_be_forced(site: Site) -> None:
    site.at(GRUB).write_bytes(b"mine\n")
    report = undo_all(site.host)
    (kept,) = report.kept
    assert kept.path == GRUB
    assert site.at(kept.saved).read_bytes() == site.before[GRUB][2]
    assert "+mine" in kept.diff
    assert '-GRUB_CMDLINE_LINUX="quiet"' in kept.diff
    assert report.undone == ()
    assert site.differs() == {GRUB}
    assert list_transactions(site.host)[0].status == "partly undone"

    assert [kept.path for kept in undo_all(site.host).kept] == [GRUB]
    assert site.at(GRUB).read_bytes() == b"mine\n"

    assert undo_all(site.host, force=True).kept == ()
    assert take_snapshot(site.root) == site.before


def test_what_was_put_back_by_hand_is_no_conflict(site: Site) -> None:
    site.at(GRUB).write_bytes(site.before[GRUB][2])
    site.at(CONF).unlink()
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_a_changed_mode_is_no_conflict(site: Site) -> None:
    site.at(GRUB).chmod(0o600)
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_a_file_that_was_deleted_is_named(site: Site) -> None:
    site.at(GRUB).unlink()
    assert [kept.path for kept in undo_all(site.host).kept] == [GRUB]
    assert not site.at(GRUB).exists()


def test_output_that_somebody_rebuilt_is_built_anew_at_the_end(site: Site) -> None:
    site.at(GRUB_CFG).unlink()
    site.at(GRUB_CFG).write_bytes(b"# with a new kernel\n")
    assert undo_all(site.host).kept == ()
    assert commands_of(site.host).ran == ["reload", "del-rule", "update-grub"]
    assert site.at(GRUB_CFG).read_bytes() == b"# generated\n" + site.before[GRUB][2]
    assert site.differs() == {GRUB_CFG}


def test_building_anew_that_fails_is_tried_again(site: Site) -> None:
    site.at(GRUB_CFG).unlink()
    site.at(GRUB_CFG).write_bytes(b"# with a new kernel\n")
    commands_of(site.host).failing = {"update-grub"}
    (kept,) = undo_all(site.host).kept
    assert "it is broken" in kept.reason
    commands_of(site.host).failing = set()
    assert undo_all(site.host).kept == ()
    assert not site.at(HOME).exists()


def test_new_output_is_kept(site: Site) -> None:
    site.at(f"{ENTRIES}/second.conf").write_text("title a new kernel\n")
    (kept,) = undo_all(site.host).kept
    assert kept.path == f"{ENTRIES}/second.conf"
    assert site.differs() == {f"{ENTRIES}/second.conf"}


def test_a_changed_control_is_kept(site: Site) -> None:
    site.at(PAGES).write_text("60\n")
    (kept,) = undo_all(site.host).kept
    assert "it reads 60" in kept.reason
    assert site.differs() == {PAGES}


def test_after_a_reboot(site: Site) -> None:
    """What lived in memory is gone: no control is set, and a rule that is gone is no failure."""
    site.at("/proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    site.at(PAGES).write_text("60\n")
    site.at("/run/rule").unlink()
    assert undo_all(site.host).kept == ()
    assert site.at(PAGES).read_text() == "60\n"
    assert site.differs() == {PAGES, "/proc/sys/kernel/random/boot_id"}


def test_what_each_boot_sets_again_is_set_back(site: Site) -> None:
    """harp.service sets the ENIs' controls at each boot, and kernel arguments reserve pages."""
    assert site.at(PAGES).read_text().strip() == "50"
    site.at("/proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    assert undo_all(site.host).kept == ()
    assert site.differs() == {"/proc/sys/kernel/random/boot_id"}


def test_an_undo_command_that_fails_stops_nothing_else(site: Site) -> None:
    site.at("/run/rule").unlink()
    (kept,) = undo_all(site.host).kept
    assert kept.reason == "`del-rule` failed: RTNETLINK answers: No such file or directory"
    assert site.differs() == set()
    site.at("/run/rule").touch()
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_an_undo_command_whose_effect_lasts_must_succeed_also_after_a_reboot(site: Site) -> None:
    site.at("/proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    commands_of(site.host).failing = {"reload"}
    (kept,) = undo_all(site.host).kept
    assert kept.reason == "`reload` failed: reload: it is broken"
    report = undo_all(site.host, force=True)
    assert report.kept == ()
    assert any("`reload` failed" in note for note in report.notes)


def test_a_changed_file_whose_copy_is_damaged(site: Site) -> None:
    site.at(GRUB).write_bytes(b"mine\n")
    for blob in site.at(f"{HOME}/journal/blobs").iterdir():
        blob.write_bytes(b"rotten")
    assert GRUB in {kept.path for kept in undo_all(site.host).kept}
    assert site.at(GRUB).read_bytes() == b"mine\n"


def test_from_a_rescue_system(site: Site) -> None:
    """The disk of a host that does not come up, as a directory tree: files go back, commands wait."""
    report = undo_all(Host(site.root))
    assert {kept.reason for kept in report.kept} == {
        "`del-rule` can't be run for a directory tree",
        "`reload` can't be run for a directory tree",
    }
    assert site.differs() == {"/run/rule", "/run/loaded"}
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_a_directory_with_other_files_stays(site: Site) -> None:
    other = site.at(CONF).with_name("other.conf")
    other.write_text("not HARP's\n")
    report = undo_all(site.host)
    assert report.kept == ()
    assert any("holds files that are not HARP's" in note for note in report.notes)
    assert other.read_text() == "not HARP's\n"
    assert not site.at(HOME).exists()


def test_a_directory_with_a_kept_file_goes_when_it_is_forced(site: Site) -> None:
    second = site.at(CONF).with_name("ztcp1.conf")
    second.write_text("changed\n")
    assert str(second).endswith(undo_all(site.host).kept[0].path)
    undo_all(site.host, force=True)
    assert take_snapshot(site.root) == site.before


def test_a_renamed_file_is_not_moved_over_another(site: Site) -> None:
    site.at("/mnt/plugin.so").write_text("another\n")
    (kept, *_folders) = undo_all(site.host).kept
    assert kept.path == "/usr/lib/plugins/libnccl-net.so"
    assert "/mnt/plugin.so exists again" in kept.reason
    assert site.at("/mnt/plugin.so").read_text() == "another\n"
    site.at("/mnt/plugin.so").unlink()
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_a_dry_run_reports_what_a_rollback_does(site: Site) -> None:
    now = take_snapshot(site.root)
    planned = undo_all(site.host, dry_run=True)
    assert take_snapshot(site.root) == now
    assert commands_of(site.host).ran == []
    done = undo_all(site.host)
    assert planned.undone == done.undone
    unsure = " if it is empty"
    assert [[action.removesuffix(unsure) for action in reverted.actions] for reverted in planned.reverted] == [
        reverted.actions for reverted in done.reverted
    ]


def test_one_transaction_and_all_later_ones(tmp_path: Path) -> None:
    make_tree(tmp_path)
    host = make_host(tmp_path)
    ids = [apply_write(host, "/etc/script", f"{n}\n".encode()) for n in (1, 2, 3)]
    assert ids == sorted(ids)
    assert undo_all(host, since="2").undone == (ids[2], ids[1])
    assert (tmp_path / "etc/script").read_text() == "1\n"
    assert undo_all(host, since=ids[0]).undone == (ids[0],)
    assert (tmp_path / "etc/script").read_text() == "#!/bin/sh\n"


def test_bytes_that_another_transaction_needs_are_kept(tmp_path: Path) -> None:
    make_tree(tmp_path)
    before = take_snapshot(tmp_path)
    host = make_host(tmp_path)
    apply_write(host, "/etc/script", b"1\n")
    apply_write(host, "/etc/script", b"#!/bin/sh\n")
    apply_write(host, "/etc/script", b"2\n")
    undo_all(host, since="3")
    assert undo_all(host).kept == ()
    assert take_snapshot(tmp_path) == before


def test_an_unknown_transaction(site: Site) -> None:
    with pytest.raises(HarpError, match="There is no transaction 7") as caught:
        undo_all(site.host, since="7")
    assert caught.value.exit_code == ExitCode.USAGE


def test_a_damaged_copy_is_named_and_the_rest_undone(site: Site) -> None:
    for blob in site.at(f"{HOME}/journal/blobs").iterdir():
        if blob.read_bytes() == site.before[GRUB][2]:
            blob.write_bytes(b"rotten")
    (kept,) = undo_all(site.host).kept
    assert "is missing or damaged" in kept.reason
    assert site.differs() == {GRUB}


def test_a_second_harpctl_is_refused(site: Site) -> None:
    code = (
        "import sys; from harpctl.host.host import Host\n"
        f"with Host(sys.argv[1]).lock('{HOME}/lock') as held: print(held, flush=True); sys.stdin.read()"
    )
    argv = [sys.executable, "-c", code, str(site.root)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "True\n"
        with pytest.raises(HarpError, match=f"Another harpctl, process {other.pid}, is changing this host"):
            undo_all(site.host)
        with pytest.raises(HarpError, match=f"process {other.pid}"):
            apply_write(site.host, "/etc/script", b"1\n")
        other.communicate("")
    assert undo_all(site.host).kept == ()
    assert take_snapshot(site.root) == site.before


def test_needs_no_root_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert isinstance(list_transactions(Host()), tuple)
