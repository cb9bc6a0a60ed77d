# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the file of a bundle: a tar.gz with one folder, whose first file is manifest.json."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import tarfile
import time
import zlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from harpctl.doctor.model import Finding
from harpctl.errors import ExitCode, HarpError
from harpctl.records import decode_json

FORMAT = 1
MANIFEST, DOCTOR = "manifest.json", "doctor.json"
BYTES_MAX = 512 << 20  # the most that a bundle holds
PART_BYTES = 1 << 20
HINT = "Take the file that `harpctl report` wrote, copied whole."


class Unread(msgspec.Struct, frozen=True, kw_only=True):
    """A file that could not be read on the host."""

    what: str
    why: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The manifest of a bundle."""

    format: int
    host: str
    harpctl: str
    time: str
    is_root: bool
    files: tuple[str, ...]
    unread: tuple[Unread, ...] = ()


def write_archive(path: Path, folder: str, files: Mapping[str, bytes]) -> None:
    """Write the files, which only the user may read; never over a file that is there."""
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _write_error(path, error) from None
    try:
        with os.fdopen(fd, "wb") as out, tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data in files.items():
                member = tarfile.TarInfo(f"{folder}/{name}")
                member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
                tar.addfile(member, io.BytesIO(data))
    except BaseException as error:
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise _write_error(path, error) from None
        raise


def _write_error(path: Path, error: OSError) -> HarpError:
    return HarpError(f"{path}: {error.strerror}.", "Name another file by --output.")


def _archive_error(path: Path, why: str) -> HarpError:
    return HarpError(f"{path} is no bundle that can be read: {why}.", HINT, ExitCode.WRONG_DATA)


def _unpack_archive(path: Path) -> bytes:
    """Return the tar file, all of which its checksum has shown to be whole."""
    parts, total = [], 0
    with path.open("rb") as file, gzip.GzipFile(fileobj=file) as packed:
        while part := packed.read(PART_BYTES):
            total += len(part)
            if total > BYTES_MAX:
                raise _archive_error(path, f"it holds more than {BYTES_MAX >> 20} MiB")
            parts.append(part)
    return b"".join(parts)


def read_archive(path: Path) -> tuple[Manifest, dict[str, bytes]]:
    """Return the manifest of a bundle, and its files by name; nothing of it is written to the disk."""
    try:
        with tarfile.open(fileobj=io.BytesIO(_unpack_archive(path)), mode="r:") as tar:
            files = {}
            for member in tar:
                is_plain = member.isfile() and not member.issparse()  # a sparse one may be of any size
                data = tar.extractfile(member) if is_plain else None
                if data is not None:
                    files[member.name.partition("/")[2]] = data.read()
    except FileNotFoundError:
        raise HarpError(
            f"{path}: there is no such file.", "`harpctl report` writes one.", ExitCode.MISSING
        ) from None
    except gzip.BadGzipFile:
        raise _archive_error(path, "it is no gzip file, or damaged") from None
    except EOFError:
        raise _archive_error(path, "it is cut off") from None
    except (zlib.error, tarfile.TarError, ValueError, RecursionError):
        raise _archive_error(path, "it is damaged") from None
    except OSError as error:
        raise HarpError(f"{path}: {error.strerror}.", "Name a file that you may read.", ExitCode.REFUSED) from None
    if MANIFEST not in files:
        raise _archive_error(path, f"{MANIFEST} is not in it")
    return _read_manifest(path, files[MANIFEST]), files


def _read_manifest(path: Path, data: bytes) -> Manifest:
    found = decode_json(data, Manifest, f"{path}: its {MANIFEST}", HINT)
    if found.format != FORMAT:
        raise _archive_error(path, f"it has format {found.format}, and this harpctl knows {FORMAT}")
    return found


def read_findings(path: Path) -> tuple[Manifest, list[Finding]]:
    """Return the manifest of a bundle, and its findings."""
    manifest, files = read_archive(path)
    if DOCTOR not in files:
        why = next((unread.why for unread in manifest.unread if unread.what == DOCTOR), "it was not written")
        raise HarpError(f"{path} holds no findings of doctor: {why}.", "", ExitCode.WRONG_DATA)
    hint = f"It was written by harpctl {manifest.harpctl}: read it with that."
    findings = decode_json(files[DOCTOR], list[Finding], f"{path}: its {DOCTOR}", hint)
    return manifest, [
        msgspec.structs.replace(one, steps=()) for one in findings
    ]  # nothing of another host is done here
