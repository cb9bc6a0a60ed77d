# SPDX-License-Identifier: Apache-2.0
"""Access to a host: no path leads out of a tree, and what is written is written whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import random
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from harpctl.host.host import Host, open_host

NAMES = ("a", "b", "c", "d")
TARGETS = ("a", "/a", "../b", "/b/c", "..", "../../../c", "/", ".", "d/../a", "/d/d", "gone", "/../../a/b")
SEEDS = 40
PATHS = 60

# What the kernel makes of paths when the tree is its root: the oracle.
ORACLE = """
import json, os, sys
root, paths = sys.argv[1], json.load(sys.stdin)
os.chroot(root)
os.chdir("/")
found = {}
for path in paths:
    try:
        os.stat(path)
        found[path] = os.path.realpath(path)
    except OSError as error:
        found[path] = error.errno
json.dump(found, sys.stdout)
"""


def random_tree(root: Path, dice: random.Random) -> None:
    """Fill a directory with directories, files and links that lead anywhere."""
    folders = [root]
    for _round in range(14):
        here = dice.choice(folders) / dice.choice(NAMES)
        if os.path.lexists(here):
            continue
        kind = dice.choice(("dir", "file", "link", "link"))
        if kind == "dir":
            here.mkdir()
            folders.append(here)
        elif kind == "file":
            here.write_text(str(here.relative_to(root)))
        else:
            here.symlink_to(dice.choice(TARGETS))


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_paths_resolve_as_in_the_kernel(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).write_text("outside")
    answers = 0
    for seed in range(SEEDS):
        dice = random.Random(seed)
        root = tmp_path / f"root-{seed}"
        root.mkdir()
        random_tree(root, dice)
        pieces = (*NAMES, "..", ".")
        paths = ["/" + "/".join(dice.choices(pieces, k=dice.randrange(1, 5))) for _ in range(PATHS)]
        argv = [sys.executable, "-S", "-c", ORACLE, str(root)]
        oracle = subprocess.run(argv, input=json.dumps(paths), capture_output=True, text=True, check=True)
        host = Host(root)
        for path, expected in json.loads(oracle.stdout).items():
            if isinstance(expected, str):
                assert host.resolve_links(path) == expected, (seed, path)
                assert host.exists(path)
                answers += 1
            elif expected == errno.ELOOP:
                assert not host.exists(path)
            else:
                with contextlib.suppress(OSError):  # a loop after what is not there
                    assert host.real(path).is_relative_to(root)
                    assert not host.real(path).is_symlink()
    assert answers > 300


@pytest.mark.parametrize(
    ("path", "target", "leads_to"),
    [
        ("/etc/x", None, "/etc/x"),
        ("/../../etc//./x", None, "/etc/x"),
        ("/.hidden/.x", None, "/.hidden/.x"),
        ("/", None, "/"),
        ("/link", "/etc/x", "/etc/x"),
        ("/link", "../../../etc/x", "/etc/x"),
        ("/link/y", "/etc/gone", "/etc/gone/y"),
        ("/link/../y", "/etc/default", "/etc/y"),
    ],
)
def test_paths(tmp_path: Path, path: str, target: str | None, leads_to: str) -> None:
    (tmp_path / "etc/default").mkdir(parents=True)
    if target is not None:
        (tmp_path / "link").symlink_to(target)
    host = Host(tmp_path)
    assert host.resolve_links(path) == leads_to
    assert host.real(path) == tmp_path / leads_to[1:]


def test_the_link_itself(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/inner").symlink_to("/nowhere")
    host = Host(tmp_path)
    assert host.resolve_folders("/link/inner") == "/etc/inner"
    assert host.is_link("/link/inner")
    assert host.read_link("/link/inner") == "/nowhere"
    assert host.read_link("/etc") is None
    assert not host.exists("/link/inner")
    status = host.stat("/link/inner")
    assert status is not None
    assert stat.S_ISLNK(status.st_mode)


def test_looking_never_raises(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("no number")
    os.mkfifo(tmp_path / "pipe")
    host = Host(tmp_path)
    long = ("/" + "a" * 300, "/a" * 3000, "/*" * 3000)
    for path in ("/gone", "/loop", "/loop/x", "/file/x", "/", "/a\0b", "/\ud800", *long):
        assert host.read_bytes(path) is None
        assert host.read_text(path) is None
        assert host.read_word(path, "?") == "?"
        assert host.read_int(path) == -1
        assert host.list_dir(path) == (["file", "loop", "pipe"] if path == "/" else [])
        assert not host.is_file(path)
        assert host.is_dir(path) is (path == "/")
        assert host.exists(path) is (path == "/")
        assert host.open_file(path) is None
        assert host.read_link(path) == ("loop" if path == "/loop" else None)
        assert (host.stat(path) is not None) is (path in {"/", "/loop"})
        assert host.is_loop(path) is path.startswith("/loop")
        assert host.leads_to(path) == (path if path in {"/gone", "/file/x", "/"} else None)
        assert host.glob(path) == ([path] if path in {"/", "/loop"} else [])
        assert host.xattrs(path) == {}
        host.file_system(path)
    assert host.read_int("/file") == -1
    assert host.read_bytes("/pipe") == b""


def test_looking_never_raises_for_what_this_user_may_not_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On Red Hat's systems /boot/efi is root's alone, and links of /etc lead there."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/grub2-efi.cfg").symlink_to("../boot/efi/EFI/rocky/grub.cfg")
    lstat = os.lstat

    def refuse(path: Path, **_options: object) -> os.stat_result:
        if "efi/" in str(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return lstat(path)

    monkeypatch.setattr(os, "lstat", refuse)
    monkeypatch.setattr(Path, "lstat", refuse)
    host = Host(tmp_path)
    assert host.leads_to("/etc/grub2-efi.cfg") in {None, "/boot/efi/EFI/rocky/grub.cfg"}  # as Python sees it
    assert not host.is_loop("/etc/grub2-efi.cfg")
    assert not host.exists("/etc/grub2-efi.cfg")


def test_glob(tmp_path: Path) -> None:
    for name in ("etc/a.conf", "etc/b.conf", "etc/.hidden.conf", "etc/sub/c.conf", "etc/d.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "etc/e.conf").symlink_to("/nowhere")
    (tmp_path / "link").symlink_to("/etc/sub")
    host = Host(tmp_path)
    assert host.glob("/etc/*.conf") == ["/etc/a.conf", "/etc/b.conf", "/etc/e.conf"]
    assert host.glob("/etc/.*.conf") == ["/etc/.hidden.conf"]
    assert host.glob("/*/c.conf") == ["/link/c.conf"]
    assert host.glob("/e?c/*/*") == ["/etc/sub/c.conf"]
    assert host.glob("/etc/a.conf") == ["/etc/a.conf"]
    assert host.glob("/gone/*") == []


def test_write_file_replaces_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    host = Host(tmp_path)
    write = os.write

    def seen_half_way(fd: int, data: bytes) -> int:
        assert file.read_text() == "old"
        return write(fd, data[:1])

    monkeypatch.setattr(os, "write", seen_half_way)
    host.write_file("/file", b"new", 0o640)
    assert file.read_text() == "new"
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["file"]  # noqa: PTH208 - names are what is compared


@pytest.mark.parametrize("call", ["write", "fchmod", "fsync"])
def test_write_file_leaves_nothing_when_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    (tmp_path / "file").write_text("old")

    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space left"):
        Host(tmp_path).write_file("/file", b"new", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "old"


def test_write_file_and_links(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "etc").mkdir(parents=True)
    (root / "etc/link").symlink_to("/etc/target")
    host = Host(root)
    host.write_file("/etc/link", b"1", 0o644)
    assert (root / "etc/target").read_bytes() == b"1"
    host.write_file("/etc/link", b"2", 0o644, follow=False)
    assert (root / "etc/target").read_bytes() == b"1"
    assert (root / "etc/link").read_bytes() == b"2"
    assert not (root / "etc/link").is_symlink()


def test_a_temporary_file_that_somebody_put_there_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    root = tmp_path / "root"
    root.mkdir()
    (root / ".file.harp-new").symlink_to(victim)
    Host(root).write_file("/file", b"new", 0o644)
    assert victim.read_text() == "precious"
    assert not (root / "file").is_symlink()
    assert [path.name for path in root.iterdir()] == ["file"]


def test_extended_attributes_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("old")
    try:
        os.setxattr(file, "user.label", b"mine")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    host = Host(tmp_path)
    host.write_file("/file", b"new", 0o644)
    assert os.getxattr(file, "user.label") == b"mine"
    host.write_file("/file", b"newer", 0o644, xattrs={})
    assert "user.label" not in os.listxattr(file)


def test_append(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("1\n")
    host = Host(tmp_path)
    host.append("/file", b"2\n")
    assert file.read_text() == "1\n2\n"
    write = os.write

    def full(fd: int, data: bytes) -> int:
        write(fd, data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        host.append("/file", b"3\n")
    assert file.read_text() == "1\n2\n"
    with pytest.raises(FileNotFoundError):
        host.append("/gone", b"")


def test_rename_goes_over_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").symlink_to("nowhere")
    host = Host(tmp_path)
    with pytest.raises(FileExistsError):
        host.rename("/a", "/b")
    host.remove("/b")
    host.rename("/a", "/b")
    assert (tmp_path / "b").read_text() == "a"


def test_remove(tmp_path: Path) -> None:
    (tmp_path / "folder/inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("folder")
    host = Host(tmp_path)
    for path in ("/gone", "/gone/too", "/file/below", "/link", "/file", "/folder/inner"):
        host.remove(path)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]
    (tmp_path / "folder/file").touch()
    with pytest.raises(OSError, match="not empty"):
        host.remove("/folder")


def test_links_and_directories(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    host = Host(tmp_path)
    host.make_link("/file", "there")
    assert os.readlink(tmp_path / "file") == "there"  # noqa: PTH115 - the text is what is compared
    host.make_dir("/folder", 0o711)
    assert stat.S_IMODE((tmp_path / "folder").stat().st_mode) == 0o711
    with pytest.raises(IsADirectoryError):
        host.make_link("/folder", "there")
    with pytest.raises(FileExistsError):
        host.make_dir("/folder")
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder"}


def test_lock(tmp_path: Path) -> None:
    host = Host(tmp_path)
    with host.lock("/lock") as held, host.lock("/lock") as held_twice:
        assert (held, held_twice) == (True, False)
        assert host.read_int("/lock") == os.getpid()
    with host.lock("/lock") as held:
        assert held
        host.remove("/lock")
        with host.lock("/lock") as of_another:
            assert of_another
    with pytest.raises(ZeroDivisionError), host.lock("/lock"):
        _ = 1 / 0
    with host.lock("/lock") as held:
        assert held


def test_programs(tmp_path: Path) -> None:
    (tmp_path / "usr/sbin").mkdir(parents=True)
    (tmp_path / "usr/bin").mkdir()
    (tmp_path / "sbin").symlink_to("usr/sbin")
    (tmp_path / "usr/sbin/update-grub").touch(mode=0o755)
    (tmp_path / "usr/bin/data").touch(mode=0o644)
    host = Host(tmp_path)
    assert host.which("update-grub") == "/usr/sbin/update-grub"
    assert host.which("data") is None
    assert host.which("gone") is None
    assert not host.runs_commands
    assert host.query(["true"]) is None
    with pytest.raises(HarpError, match="was to run for a directory tree"):
        host.run(["true"])


def test_open_host(tmp_path: Path) -> None:
    assert open_host(None).is_real
    assert open_host("/").is_real
    assert not open_host(tmp_path).is_real
    with pytest.raises(HarpError, match="no such directory"):
        open_host(tmp_path / "gone")
