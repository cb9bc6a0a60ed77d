# SPDX-License-Identifier: Apache-2.0
"""The place of all that undoing needs: /var/lib/harp with its lock, the journal and saved bytes.

The folder appears and disappears in one rename each, so that a crash leaves it whole or not at all, and the
host without it is byte for byte the host from before: `made` names the directories that were made for it.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import TEMPORARY, Host

HOME = "/var/lib/harp"
LOCK = f"{HOME}/lock"
JOURNAL = f"{HOME}/journal"
BLOBS = f"{JOURNAL}/blobs"
MADE = f"{JOURNAL}/made"  # what was made for the journal, outermost first
RESERVE = f"{JOURNAL}/reserve"  # room on the disk for undoing
CHAIN = ("/var", "/var/lib", HOME, JOURNAL)
OURS = {"/var": {"lib"}, "/var/lib": {"harp"}, HOME: {"lock", "journal"}, JOURNAL: {"blobs", "made"}}


@contextlib.contextmanager
def hold_lock(host: Host) -> Iterator[None]:
    """Be the only harpctl that changes this host while the context lasts. The folder must be there."""
    with host.lock(LOCK) as held:
        if not held:
            pid = host.read_word(LOCK) or "unknown"
            raise HarpError(
                f"Another harpctl, process {pid}, is changing this host.",
                f"Wait until it has ended: `ps -fp {pid}` shows it.",
                ExitCode.REFUSED,
            )
        yield


def make_folder(host: Host) -> None:
    """Make the folder if it is not there. Raises OSError; nothing is left behind then."""
    if host.is_dir(JOURNAL):
        return
    missing = [path for path in CHAIN if not host.is_dir(path)]
    top = missing[0]
    stage = host.temporary(top)
    _remove_stage(host, top)
    try:
        for path in missing:
            host.make_dir(stage + path.removeprefix(top))
        staged = stage + JOURNAL.removeprefix(top)
        host.make_dir(f"{staged}/blobs", 0o700)
        host.write_file(f"{staged}/made", msgspec.json.encode(missing), 0o644)
        host.rename(stage, top)
    except OSError:
        with contextlib.suppress(OSError):
            _remove_stage(host, top)
        if not host.is_dir(JOURNAL):  # else another harpctl was faster
            raise


def remove_folder(host: Host) -> None:
    """Remove the folder unless it holds transactions, and what a crash left of it. Raises OSError.

    What was made for it goes too, as far as nothing else is in it. To be called under the lock, except where
    /var/lib/harp is not there.
    """
    for path in CHAIN:
        _remove_stage(host, path)
    if host.list_dir(JOURNAL) and not transaction_files(host):
        for path in [RESERVE, *find_leftovers(host), *(f"{BLOBS}/{name}" for name in host.list_dir(BLOBS))]:
            host.remove(path)
        made = _read_made_folders(host)
        top = next((path for path in CHAIN if path in made and _holds_only_ours(host, path)), None)
        if top is not None:
            host.rename(top, host.temporary(top))
            _remove_stage(host, top)
    if not host.is_dir(JOURNAL) and host.is_dir(HOME):
        host.remove(LOCK)


def is_there(host: Host) -> bool:
    """Return whether anything of the folder is there, be it a leftover."""
    return any(host.stat(path) for path in (JOURNAL, LOCK, *map(host.temporary, CHAIN)))


def transaction_files(host: Host) -> list[str]:
    """Return the paths of the journal's transactions, the oldest first."""
    return host.glob(f"{JOURNAL}/*.jsonl")


def find_leftovers(host: Host) -> list[str]:
    """Return the half-written files in the journal."""
    return host.glob(f"{JOURNAL}/.*{TEMPORARY}") + host.glob(f"{BLOBS}/.*{TEMPORARY}")


def _read_made_folders(host: Host) -> list[str]:
    with contextlib.suppress(msgspec.MsgspecError):
        return msgspec.json.decode(host.read_bytes(MADE) or b"[]", type=list[str])
    return []


def _holds_only_ours(host: Host, path: str) -> bool:
    return all(set(host.list_dir(folder)) <= OURS[folder] for folder in CHAIN[CHAIN.index(path) :])


def _remove_stage(host: Host, top: str) -> None:
    """Remove what a rename to or from `top` left: only directories, and files that we know."""
    stage = host.temporary(top)
    if host.stat(stage) is None:
        return
    inside = [stage + path.removeprefix(top) for path in CHAIN if path.startswith(top)]
    home = stage + HOME.removeprefix(top) if HOME.startswith(top) else ""
    files = [f"{inside[-1]}/made", host.temporary(f"{inside[-1]}/made")] + ([f"{home}/lock"] if home else [])
    for path in [*files, f"{inside[-1]}/blobs", *reversed(inside)]:
        try:
            host.remove(path)
        except OSError as error:
            if error.errno not in {errno.ENOENT, errno.ENOTDIR}:
                raise
