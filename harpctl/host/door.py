"""Host: a root directory and a runner. Whatever harpctl reads, writes or runs passes through here.

Paths are absolute paths *of that host*: `/etc/default/grub` is the file below the root, and a symbolic link
is followed as the host would follow it, so that an absolute link in an image leads into the image and `..`
never leads out of it. Looking never raises for what is missing: facts say "unknown" then. Writing does.
"""

from __future__ import annotations

import contextlib
import errno
import fnmatch
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from harpctl.errors import ExitCode, HarpError
from harpctl.host.runner import SEARCH_PATH, TIMEOUT_S, Completed, LiveRunner, NoRunner, Runner

LINK_COUNT_MAX = 40  # as the kernel's MAXSYMLINKS
READ_BYTES_MAX = 64 << 20
XATTRS = ("security.selinux", "security.capability")  # what a replaced file keeps beside mode and owner


class Host:
    """The machine we are on (root `/`), or a directory tree that stands for one."""

    def __init__(self, root: str | Path = "/", runner: Runner | None = None) -> None:
        self.root = Path(root).absolute()
        self.is_real = self.root == Path("/")
        if runner is None:
            runner = LiveRunner() if self.is_real else NoRunner()
        self._runner = runner

    # ---- paths ----

    def real(self, path: str, *, follow: bool = True) -> Path:
        """Give where a path of the host lies on this machine, its links resolved below the root.

        `follow=False` leaves the last component as it is, even if it is a link. The path need not exist.
        """
        parts = [part for part in path.split("/") if part not in {"", "."}]
        done: list[str] = []
        links = 0
        while parts:
            part = parts.pop(0)
            if part == "..":
                done = done[:-1]
                continue
            here = self.root.joinpath(*done, part)
            if (follow or parts) and here.is_symlink():
                links += 1
                if links > LINK_COUNT_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = str(here.readlink())
                if target.startswith("/"):
                    done = []
                parts = [piece for piece in target.split("/") if piece not in {"", "."}] + parts
                continue
            done.append(part)
        return self.root.joinpath(*done)

    def resolved(self, path: str) -> str:
        """Give the path on the host that all links in `path` lead to."""
        return "/" + str(self.real(path).relative_to(self.root)).removeprefix(".")

    # ---- looking: nothing here raises for what is missing or unreadable ----

    def read_bytes(self, path: str) -> bytes | None:
        """Give a file's bytes; None when it cannot be read, whatever the reason."""
        try:
            with self.real(path).open("rb") as file:
                return file.read(READ_BYTES_MAX)
        except OSError:
            return None

    def read_text(self, path: str) -> str | None:
        """Give a file's text (UTF-8, undecodable bytes kept as surrogates); None when it cannot be read."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_word(self, path: str, default: str = "") -> str:
        """Give the text of a one-line control file without its line end; the default when unreadable."""
        text = self.read_text(path)
        return default if text is None else text.strip()

    def read_int(self, path: str, default: int = -1) -> int:
        """Give the number that a control file holds; the default when unreadable or no number."""
        try:
            return int(self.read_word(path), 0)
        except ValueError:
            return default

    def exists(self, path: str) -> bool:
        """Say whether the path leads to something."""
        with contextlib.suppress(OSError):
            return self.real(path).exists()
        return False

    def is_file(self, path: str) -> bool:
        """Say whether the path leads to a regular file."""
        with contextlib.suppress(OSError):
            return self.real(path).is_file()
        return False

    def is_dir(self, path: str) -> bool:
        """Say whether the path leads to a directory."""
        with contextlib.suppress(OSError):
            return self.real(path).is_dir()
        return False

    def is_link(self, path: str) -> bool:
        """Say whether the path itself is a symbolic link."""
        with contextlib.suppress(OSError):
            return self.real(path, follow=False).is_symlink()
        return False

    def read_link(self, path: str) -> str | None:
        """Give a symbolic link's target as it is written; None when it is none."""
        try:
            return str(self.real(path, follow=False).readlink())
        except OSError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        """Give the status of the path itself, links not followed; None when it is not there."""
        try:
            return self.real(path, follow=False).lstat()
        except OSError:
            return None

    def list_dir(self, path: str) -> list[str]:
        """Give the names in a directory, sorted; none when it is not there."""
        try:
            return sorted(entry.name for entry in self.real(path).iterdir())
        except OSError:
            return []

    def glob(self, pattern: str) -> list[str]:
        """Give the host's paths that fit a pattern with * and ? within components, sorted."""
        return sorted(self._glob("", [part for part in pattern.split("/") if part]))

    def _glob(self, base: str, parts: list[str]) -> Iterator[str]:
        if not parts:
            if self.stat(base or "/") is not None:
                yield base or "/"
            return
        head, rest = parts[0], parts[1:]
        if not any(mark in head for mark in "*?["):
            yield from self._glob(f"{base}/{head}", rest)
            return
        for name in self.list_dir(base or "/"):
            if fnmatch.fnmatchcase(name, head) and not (name.startswith(".") and head[0] != "."):
                yield from self._glob(f"{base}/{name}", rest)

    def which(self, name: str) -> str | None:
        """Give the path of a program of the host; it is looked up, not run."""
        for folder in SEARCH_PATH:
            path = f"{folder}/{name}"
            with contextlib.suppress(OSError):
                status = self.real(path).stat()
                if stat.S_ISREG(status.st_mode) and status.st_mode & 0o111:
                    return path
        return None

    # ---- commands ----

    @property
    def runs_commands(self) -> bool:
        """Say whether commands can be run; False for a directory tree."""
        return self._runner.runs

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Run a command to its end and give what it returned, whatever that is."""
        return self._runner.run(argv, timeout_s)

    def ask(self, argv: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Run a command that only looks; give its output, None when it failed or none can be run."""
        if not self.runs_commands:
            return None
        done = self.run(argv, timeout_s)
        return done.stdout if done.code == 0 else None

    # ---- writing: only change/ calls these ----

    def write_file(self, path: str, data: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Replace a file in one step: readers and a crash see the old bytes or the new ones, never a part.

        A link at the path is followed, as an editor would. An existing file keeps its SELinux label and file
        capabilities. Raises OSError; nothing is left behind then.
        """
        target = self.real(path)
        temporary = target.with_name(f".{target.name}.harp-new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        fd = os.open(temporary, flags | os.O_EXCL, 0o600)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
                os.fchmod(fd, mode)
                if owner is not None and owner != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
                    os.fchown(fd, *owner)
                self._copy_xattrs(target, fd)
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.rename(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder(target.parent)

    def write_control(self, path: str, text: str) -> None:
        """Write a value into a control file of sysfs or procfs, in one write. Raises OSError."""
        fd = os.open(self.real(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def make_dir(self, path: str, mode: int = 0o755) -> None:
        """Make one directory; its parent must be there. Raises OSError, also when it exists."""
        target = self.real(path, follow=False)
        target.mkdir()
        target.chmod(mode)
        self._sync_folder(target.parent)

    def make_link(self, path: str, target: str) -> None:
        """Make or replace a symbolic link in one step. Raises OSError."""
        here = self.real(path, follow=False)
        temporary = here.with_name(f".{here.name}.harp-new")
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        temporary.symlink_to(target)
        temporary.rename(here)
        self._sync_folder(here.parent)

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory; what is gone already is no error. Raises OSError."""
        target = self.real(path, follow=False)
        with contextlib.suppress(FileNotFoundError):
            if target.is_dir() and not target.is_symlink():
                target.rmdir()
            else:
                target.unlink()
            self._sync_folder(target.parent)

    def rename(self, path: str, to: str) -> None:
        """Rename within one file system, never over something that is there. Raises OSError."""
        source, target = self.real(path, follow=False), self.real(to, follow=False)
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)
        source.rename(target)
        self._sync_folder(source.parent)
        self._sync_folder(target.parent)

    @staticmethod
    def _copy_xattrs(source: Path, fd: int) -> None:
        for name in XATTRS:
            with contextlib.suppress(OSError):
                os.setxattr(fd, name, os.getxattr(source, name))

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def open_host(root: str | Path | None) -> Host:
    """Give the host that --root names: this machine without it. Refuses what is no directory."""
    if root is None:
        return Host()
    folder = Path(root)
    if not folder.is_dir():
        raise HarpError(
            f"--root {root}: there is no such directory.",
            "Give the top directory of an image, the one that holds its etc/.",
            ExitCode.USAGE,
        )
    return Host(folder)
