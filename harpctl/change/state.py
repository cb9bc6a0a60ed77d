# SPDX-License-Identifier: Apache-2.0
"""State: what is at a path of a host, as data that can be compared, kept and put back."""

from __future__ import annotations

import hashlib
import stat

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host


class Absent(msgspec.Struct, frozen=True, tag_field="kind", tag="absent"):
    """Nothing is there."""


class File(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="file"):
    """A regular file; its bytes are named by their SHA-256."""

    sha256: str
    mode: int
    size: int = 0  # bytes
    uid: int = 0
    gid: int = 0
    xattrs: dict[str, bytes] = {}


class Link(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="link"):
    """A symbolic link, its target as it is written."""

    target: str


class Folder(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="dir"):
    """A directory, without what is in it."""

    mode: int
    uid: int = 0
    gid: int = 0


State = Absent | File | Link | Folder


def digest_of(data: bytes) -> str:
    """Return the name of bytes: their SHA-256 in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def read_state(host: Host, path: str) -> tuple[State, bytes]:
    """Return what is at a path, the path itself not followed, and a file's bytes.

    Raises HarpError for what could not be put back: a device, a file that can't be read whole.
    """
    status = host.stat(path)
    if status is None:
        return Absent(), b""
    if stat.S_ISLNK(status.st_mode):
        return Link(target=host.read_link(path) or ""), b""
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISDIR(status.st_mode):
        return Folder(mode=mode, uid=status.st_uid, gid=status.st_gid), b""
    data = host.read_bytes(path) if stat.S_ISREG(status.st_mode) else None
    if data is None or len(data) < status.st_size:
        raise HarpError(
            f"{path} can't be kept for undoing: it is no regular file, can't be read, or is too large.",
            f"Look at it with `ls -l {path}`; move it away if it does not belong there.",
            ExitCode.REFUSED,
        )
    found = File(
        sha256=digest_of(data),
        mode=mode,
        size=len(data),
        uid=status.st_uid,
        gid=status.st_gid,
        xattrs=host.xattrs(path),
    )
    return found, data


def same_content(one: State, other: State) -> bool:
    """Return whether two states differ at most in mode, owner and attributes."""
    if isinstance(one, File) and isinstance(other, File):
        return one.sha256 == other.sha256
    if isinstance(one, Folder) and isinstance(other, Folder):
        return True
    return one == other


def restore_state(host: Host, path: str, state: State, data: bytes) -> None:
    """Make the path hold a state again; `data` are the bytes of a file. Raises OSError.

    A file or link takes the place of what is there in one step, so that a crash leaves one or the other.
    """
    if isinstance(state, Absent):
        host.remove(path)
        return
    if isinstance(state, Link):
        host.make_link(path, state.target)
        return
    owner = (state.uid, state.gid)
    if isinstance(state, File):
        host.write_file(path, data, state.mode, owner, follow=False, xattrs=state.xattrs)
        return
    if host.is_dir(path) and not host.is_link(path):
        host.set_dir_mode(path, state.mode, owner)
    else:
        host.remove(path)
        host.make_dir(path, state.mode, owner)
