# SPDX-License-Identifier: Apache-2.0
"""Explains the operating system's errors to who changes a host, each with what to do about it."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

REMEDIES = {
    errno.ENOSPC: "Free space on its file system (`df -h` shows how much is left), then run this again.",
    errno.EDQUOT: "The disk quota is used up: free some of it, then run this again.",
    errno.EROFS: "Mount its file system writable (`mount -o remount,rw`), then run this again.",
    errno.EACCES: "Run this as root.",
    errno.EPERM: "Run this as root; `lsattr` shows whether the file was made immutable (`chattr -i`).",
    errno.EIO: "The disk reports an error: look at `dmesg`.",
}
REMEDY_UNKNOWN = "Look at the path, and run this again."


def harp_error_of(error: OSError, host: Host) -> HarpError:
    """Return the error that a person is shown for one of the operating system."""
    path = str(error.filename or "")
    if not host.is_real:
        path = path.removeprefix(str(host.root))
    message = f"{path}: {error.strerror or error}." if path else f"{error.strerror or error}."
    return HarpError(message, REMEDIES.get(error.errno or 0, REMEDY_UNKNOWN), ExitCode.FAILED)


@contextlib.contextmanager
def translate_os_errors(host: Host) -> Iterator[None]:
    """Turn an error of the operating system into one with a remedy."""
    try:
        yield
    except OSError as error:
        raise harp_error_of(error, host) from error


def require_root(host: Host, otherwise: str = "") -> None:
    """Refuse to change the real machine without root. Raises HarpError; `otherwise` says what needs none."""
    if host.is_real and os.geteuid() != 0:
        hint = "Run the same command with sudo."
        raise HarpError("Changing this host needs root.", f"{hint} {otherwise}".rstrip(), ExitCode.REFUSED)
