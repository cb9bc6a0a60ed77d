# SPDX-License-Identifier: Apache-2.0
"""Host: a root directory and a runner. Whatever harpctl reads, writes or runs passes through here.

Paths are absolute paths *of that host*: `/etc/default/grub` is the file below the root, and a symbolic link
is followed as the host would follow it, so that an absolute link in an image leads into the image and `..`
never leads out of it. Reading never raises for what is missing: facts are "unknown" then. Writing does.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import itertools
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from harpctl.errors import ExitCode, HarpError
from harpctl.host.link_sizes import KernelLinks, Sizes
from harpctl.host.runner import (
    PROGRAM_MISSING,
    SEARCH_PATH,
    TIMEOUT_S,
    Completed,
    LiveRunner,
    NoRunner,
    Runner,
)

LINK_COUNT_MAX = 40  # as the kernel's MAXSYMLINKS
PATH_BYTES_MAX = 4095  # as the kernel's PATH_MAX, which counts the zero byte at the end too
READ_BYTES_MAX = 64 << 20
READ_PART_BYTES = 1 << 20  # the kernel refuses to read 4 MiB at once from a file of /proc/sys
XATTRS_OF_CONTENT = ("security.evm", "security.ima")  # would be wrong for other bytes; never copied
TEMPORARY = ".harp-new"  # how the name of a half-written file ends


class Host:
    """The machine we are on (root `/`), or a directory tree that stands for one."""

    def __init__(
        self, root: str | Path = "/", runner: Runner | None = None, links: KernelLinks | None = None
    ) -> None:
        self.root = Path(root).absolute()
        self.is_real = self.root == Path("/")
        if runner is None:
            runner = LiveRunner() if self.is_real else NoRunner()
        self._runner = runner
        self._links = links or (KernelLinks() if isinstance(runner, LiveRunner) else None)

    # ---- paths: these raise OSError for a loop of links; only change/ calls them ----

    def real(self, path: str, *, follow: bool = True) -> Path:
        """Return where a path of the host lies on this machine, its links resolved below the root.

        `follow=False` leaves the last component as it is, even if it is a link. The path need not exist.
        Raises OSError for a loop of links, and for what the kernel would not take for a path.
        """
        _require_possible(path)
        top = str(self.root).rstrip("/")
        left = _split_path(path)[::-1]  # the next one is the last
        done: list[str] = []
        links = 0
        while left:
            part = left.pop()
            if part == "..":
                done = done[:-1]
                continue
            here = "/".join((top, *done, part))  # whole paths as text: facts ask for thousands of them
            if (follow or left) and _is_link(here):
                links += 1
                if links > LINK_COUNT_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                target = str(Path(here).readlink())
                if target.startswith("/"):
                    done = []
                left += _split_path(target)[::-1]
                continue
            done.append(part)
        return Path("/".join((top, *done)) or "/")

    def resolve_links(self, path: str) -> str:
        """Return the path on the host that all links in `path` lead to. Raises OSError as `real`."""
        return self._of_host(self.real(path))

    def resolve_folders(self, path: str) -> str:
        """Return the path on the host with its folders' links resolved, but not itself. Raises OSError."""
        return self._of_host(self.real(path, follow=False))

    def _of_host(self, real: Path) -> str:
        return "/" + "/".join(real.relative_to(self.root).parts)

    @staticmethod
    def temporary(path: str) -> str:
        """Return the path where a new version of `path` is written before it takes its place."""
        folder, _, name = path.rpartition("/")
        return f"{folder}/.{name}{TEMPORARY}"

    # ---- looking: nothing here raises for what is missing, unreadable or a loop of links ----

    def leads_to(self, path: str) -> str | None:
        """Return the path on the host that all links in `path` lead to; None when they can't be followed."""
        try:
            return self.resolve_links(path)
        except OSError:
            return None

    def is_loop(self, path: str) -> bool:
        """Return whether links in the path lead back to themselves."""
        try:
            self.real(path)
        except OSError as error:
            return error.errno == errno.ELOOP
        return False

    def read_bytes(self, path: str) -> bytes | None:
        """Return a file's bytes; None when it cannot be read, whatever the reason."""
        try:
            fd = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe can't hang us
            with os.fdopen(fd, "rb") as file:
                parts = iter(lambda: file.read(READ_PART_BYTES), b"")
                return b"".join(itertools.islice(parts, READ_BYTES_MAX // READ_PART_BYTES))
        except OSError:
            return None

    def open_file(self, path: str) -> BinaryIO | None:
        """Open a regular file for reading, for what is too large to read whole; None when it cannot be."""
        with contextlib.suppress(OSError):
            fd = os.open(self.real(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe can't hang us
            if stat.S_ISREG(os.fstat(fd).st_mode):
                return os.fdopen(fd, "rb")
            os.close(fd)
        return None

    def read_text(self, path: str) -> str | None:
        """Return a file's text (UTF-8, undecodable bytes kept as surrogates); None when it cannot be read."""
        data = self.read_bytes(path)
        return None if data is None else data.decode("utf-8", "surrogateescape")

    def read_word(self, path: str, default: str = "") -> str:
        """Return the text of a one-line control file without its line end; the default when unreadable."""
        text = self.read_text(path)
        return default if text is None else text.strip()

    def read_int(self, path: str, default: int = -1) -> int:
        """Return the number that a control file holds; the default when unreadable or no number."""
        try:
            return int(self.read_word(path), 0)
        except ValueError:
            return default

    def exists(self, path: str) -> bool:
        """Return whether the path leads to something."""
        with contextlib.suppress(OSError):
            return self.real(path).exists()
        return False

    def is_file(self, path: str) -> bool:
        """Return whether the path leads to a regular file."""
        with contextlib.suppress(OSError):
            return self.real(path).is_file()
        return False

    def is_dir(self, path: str) -> bool:
        """Return whether the path leads to a directory."""
        with contextlib.suppress(OSError):
            return self.real(path).is_dir()
        return False

    def is_link(self, path: str) -> bool:
        """Return whether the path itself is a symbolic link."""
        with contextlib.suppress(OSError):
            return self.real(path, follow=False).is_symlink()
        return False

    def read_link(self, path: str) -> str | None:
        """Return a symbolic link's target as it is written; None when it is none."""
        try:
            return str(self.real(path, follow=False).readlink())
        except OSError:
            return None

    def stat(self, path: str) -> os.stat_result | None:
        """Return the status of the path itself, links not followed; None when it is not there."""
        try:
            return self.real(path, follow=False).lstat()
        except OSError:
            return None

    def xattrs(self, path: str) -> dict[str, bytes]:
        """Return the extended attributes of the path itself that belong to it whatever its bytes are."""
        found = {}
        with contextlib.suppress(OSError):
            here = self.real(path, follow=False)
            for name in os.listxattr(here, follow_symlinks=False):
                if name not in XATTRS_OF_CONTENT:
                    with contextlib.suppress(OSError):
                        found[name] = os.getxattr(here, name, follow_symlinks=False)
        return found

    def file_system(self, path: str) -> tuple[int, os.statvfs_result] | None:
        """Return the device number and the state of the file system that holds the path, or would hold it."""
        with contextlib.suppress(OSError):
            here = self.real(path)
            while not here.exists() and here != self.root:
                here = here.parent
            return here.stat().st_dev, os.statvfs(here)
        return None

    def list_dir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; none when it is not there."""
        try:
            return sorted(entry.name for entry in self.real(path).iterdir())
        except OSError:
            return []

    def glob(self, pattern: str) -> list[str]:
        """Return the host's paths that fit a pattern with * and ? within components, sorted."""
        found = [""]
        for part in filter(None, pattern.split("/")):
            if any(mark in part for mark in "*?["):
                found = [f"{base}/{name}" for base in found for name in self._matching_paths(base or "/", part)]
            else:
                found = [f"{base}/{part}" for base in found]
        return sorted(path or "/" for path in found if self.stat(path or "/") is not None)

    def _matching_paths(self, folder: str, pattern: str) -> Iterator[str]:
        for name in self.list_dir(folder):
            if fnmatch.fnmatchcase(name, pattern) and not (name.startswith(".") and pattern[0] != "."):
                yield name

    def environment(self, pid: int | str) -> dict[str, str] | None:
        """Return the environment with which a process was started; None where it cannot be read."""
        text = self.read_text(f"/proc/{pid}/environ")
        return None if text is None else dict(line.split("=", 1) for line in text.split("\0") if "=" in line)

    def which(self, name: str) -> str | None:
        """Return the path of a program of the host; it is looked up, not run."""
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
        """Return whether commands can be run; False for a directory tree."""
        return self._runner.runs

    def run(self, argv: Sequence[str], timeout_s: float = TIMEOUT_S) -> Completed:
        """Run a command to its end and return its result, whatever it is."""
        return self._runner.run(argv, timeout_s)

    def query(self, argv: Sequence[str], timeout_s: float = 10.0) -> str | None:
        """Run a read-only command; return its output, None when it failed or none can be run."""
        if not self.runs_commands:
            return None
        done = self.run(argv, timeout_s)
        return done.stdout if done.code == 0 else None

    def shell_error(self, path: str) -> str:
        """Return what a shell of this machine says of a file that it can't parse; it runs nothing of it."""
        file = str(self.real(path))
        checked = (LiveRunner().run((shell, "-n", file)) for shell in ("bash", "sh"))
        done = next((one for one in checked if one.code != PROGRAM_MISSING), None)
        lines = done.stderr.splitlines() if done and done.code else []
        return lines[0].removeprefix(f"{file}: ") if lines else ""

    # ---- interfaces ----

    def link_sizes(self, name: str) -> Sizes:
        """Return the sizes of TCP's largest packets on an interface, in bytes; none where unknown."""
        return self._links.sizes(name) if self._links else {}

    # ---- writing: only change/ calls these ----

    def set_link_sizes(self, name: str, sizes: Mapping[str, int]) -> None:
        """Set sizes of an interface until the next boot. Raises OSError; some may be set then."""
        if self._links is None:
            raise OSError(0, "the sizes of a directory tree's interfaces can't be set", name)
        self._links.set_sizes(name, sizes)

    def write_file(
        self,
        path: str,
        data: bytes,
        mode: int,
        owner: tuple[int, int] | None = None,
        *,
        follow: bool = True,
        xattrs: dict[str, bytes] | None = None,
    ) -> None:
        """Replace a file in one step: readers and a crash see the old bytes or the new ones, never a part.

        A link at the path is followed, as an editor would, unless `follow` is False: then it is replaced.
        `xattrs` None keeps those of an existing file. Raises OSError; nothing is left behind then.
        """
        target = self.real(path, follow=follow)
        if xattrs is None:
            xattrs = self.xattrs(self._of_host(target))
        temporary = self._fresh_temporary(target)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(temporary, flags, 0o600)
        try:
            try:
                _write_all(fd, data)
                if owner is not None and owner != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
                    os.fchown(fd, *owner)
                os.fchmod(fd, mode)  # after fchown, which takes the set-user-ID bit away
                for name, value in xattrs.items():
                    with contextlib.suppress(OSError):
                        os.setxattr(fd, name, value)
                os.fsync(fd)
            finally:
                os.close(fd)
            temporary.rename(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder(target.parent)

    def append(self, path: str, data: bytes) -> None:
        """Add to a file that is there; it is on the disk on return. Raises OSError; nothing is added then."""
        fd = os.open(self.real(path), os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            size = os.fstat(fd).st_size
            try:
                _write_all(fd, data)
                os.fsync(fd)
            except OSError:
                os.ftruncate(fd, size)
                raise
        finally:
            os.close(fd)

    def write_control(self, path: str, text: str) -> None:
        """Write a value into a control file of sysfs or procfs, in one write. Raises OSError."""
        fd = os.open(self.real(path), os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def make_dir(self, path: str, mode: int = 0o755, owner: tuple[int, int] | None = None) -> None:
        """Make one directory; its parent must be there. Raises OSError, also when it exists."""
        target = self.real(path, follow=False)
        target.mkdir()
        self.set_dir_mode(path, mode, owner)
        self._sync_folder(target.parent)

    def set_dir_mode(self, path: str, mode: int, owner: tuple[int, int] | None = None) -> None:
        """Set mode and owner of a directory. Raises OSError."""
        fd = os.open(self.real(path, follow=False), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if owner is not None and owner != (os.fstat(fd).st_uid, os.fstat(fd).st_gid):
                os.fchown(fd, *owner)
            os.fchmod(fd, mode)
        finally:
            os.close(fd)

    def make_link(self, path: str, target: str) -> None:
        """Make or replace a symbolic link in one step. Raises OSError; nothing is left behind then."""
        here = self.real(path, follow=False)
        temporary = self._fresh_temporary(here)
        temporary.symlink_to(target)
        try:
            temporary.rename(here)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
        self._sync_folder(here.parent)

    def remove(self, path: str) -> None:
        """Remove a file, a link or an empty directory; what is gone already is no error. Raises OSError."""
        target = self.real(path, follow=False)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
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

    @contextlib.contextmanager
    def lock(self, path: str) -> Iterator[bool]:
        """Hold the lock file while the context lasts; yields False at once when another process holds it.

        The file is made if need be and holds the pid of its holder. It may be removed by its holder: who
        opened it before and locks it after finds that it is no longer the one at its path, and tries again.
        """
        here = self.real(path)
        fd = _open_locked(here)
        if fd is None:
            yield False
            return
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
            yield True
        finally:
            os.close(fd)

    @staticmethod
    def _fresh_temporary(target: Path) -> Path:
        temporary = Path(Host.temporary(str(target)))
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            temporary.unlink()
        return temporary

    @staticmethod
    def _sync_folder(folder: Path) -> None:
        with contextlib.suppress(OSError):
            fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)


def _split_path(path: str) -> list[str]:
    return [piece for piece in path.split("/") if piece not in {"", "."}]


def _is_link(path: str) -> bool:
    """Return whether a path is a link; what is missing is none."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except OSError as error:
        if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.EBADF, errno.ELOOP}:
            return False
        raise


def _require_possible(path: str) -> None:
    """Refuse what the kernel would not take for a path: OSError where Python's calls raise ValueError."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        raise OSError(errno.EILSEQ, os.strerror(errno.EILSEQ), path) from None
    if b"\0" in name:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
    if len(name) > PATH_BYTES_MAX:
        raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)


def _open_locked(path: Path) -> int | None:
    """Open and lock a file, and make sure that it is still the one at its path; None when it is locked."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), path.lstat()):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except FileNotFoundError:
            pass  # its holder removed it
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def open_host(root: str | Path | None) -> Host:
    """Return the host that --root names: this machine without it. Refuses what is no directory."""
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
