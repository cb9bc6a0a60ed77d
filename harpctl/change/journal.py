# SPDX-License-Identifier: Apache-2.0
"""The journal: what was changed on a host and what undoes it, one file per transaction.

A file is JSON lines. The first names the format; a record is on the disk before the change it announces is
made, so that whoever is killed at any point leaves a journal that knows at least all that was done. The
bytes of what was replaced are kept beside it under their SHA-256. Fields may be added to format 1, and are
ignored by a version that does not know them; whatever an older version must not ignore needs a new number.
"""

from __future__ import annotations

import enum
from datetime import datetime, timezone

import msgspec

from harpctl import __version__
from harpctl.change import store
from harpctl.change.state import State, digest_of
from harpctl.change.undo import Undo
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

FORMAT = 1
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="begin"):
    """The first record: who made this transaction, when, and for what."""

    format: int
    version: str
    id: str
    what: str
    time: str  # UTC, ISO 8601


class Before(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="before"):
    """A step is about to be done; `undo` undoes it, in this order."""

    step: int
    title: str
    undo: tuple[Undo, ...]
    boot: str = ""  # the boot id: what lives in memory is gone in another boot
    at: float = 0.0  # seconds since the epoch


class After(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="after"):
    """A step was done whose outcome could not be predicted: a command's output, what a control reads."""

    step: int
    output: dict[str, State] = {}
    reads: str = ""


class Done(msgspec.Struct, frozen=True, tag_field="record", tag="done"):
    """All steps were done. Without it the transaction was interrupted."""


class Undoing(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="undoing"):
    """A step is being undone; `foreign` are the outputs that somebody else changed, seen before."""

    step: int
    foreign: tuple[str, ...] = ()


class Undone(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="undone"):
    """A step was undone."""

    step: int


class Left(msgspec.Struct, frozen=True, kw_only=True, tag_field="record", tag="left"):
    """A step could not be undone, or only in part, and why."""

    step: int
    reason: str


class Ended(msgspec.Struct, frozen=True, tag_field="record", tag="ended"):
    """A rollback went through all steps; those not undone stay."""


Record = Begin | Before | After | Done | Undoing | Undone | Left | Ended


class Status(enum.Enum):
    """The states of a transaction."""

    INTERRUPTED = "interrupted"
    DONE = "done"
    PARTLY_UNDONE = "partly undone"
    UNDOING = "undoing"  # a rollback was interrupted


class Transaction:
    """One transaction: its records, and the file they are added to."""

    def __init__(self, host: Host, path: str, records: list[Record]) -> None:
        begin = records[0]
        if not isinstance(begin, Begin):
            raise _damage_error(path, "its first record does not begin a transaction")
        self._host = host
        self.path = path
        self.begin = begin
        self.records = records

    @property
    def id(self) -> str:
        """Return its name, which sorts by age."""
        return self.begin.id

    @property
    def status(self) -> Status:
        """Return how far it is."""
        status = Status.INTERRUPTED
        for record in self.records:
            if isinstance(record, Done):
                status = Status.DONE
            elif isinstance(record, Undoing | Undone | Left):
                status = Status.UNDOING
            elif isinstance(record, Ended):
                status = Status.PARTLY_UNDONE
        return status

    @property
    def is_open(self) -> bool:
        """Return whether it was interrupted, while it was done or while it was undone."""
        return self.status in {Status.INTERRUPTED, Status.UNDOING}

    def to_undo(self) -> list[Before]:
        """Return the steps that are not undone yet, the last one first."""
        undone = {record.step for record in self.records if isinstance(record, Undone)}
        return [r for r in reversed(self.records) if isinstance(r, Before) and r.step not in undone]

    def after(self, step: int) -> After | None:
        """Return what is known of the outcome of a step; None when its end was not seen."""
        return next((r for r in self.records if isinstance(r, After) and r.step == step), None)

    def undo_begun(self, step: int) -> Undoing | None:
        """Return the record of an undoing that was interrupted; None when there was none."""
        for record in reversed(self.records):
            if isinstance(record, Undoing | Undone | Left) and record.step == step:
                return record if isinstance(record, Undoing) else None
        return None

    def add(self, record: Record) -> None:
        """Add a record; it is on the disk on return. Raises OSError."""
        self._host.append(self.path, _record_line(record))
        self.records.append(record)

    def saved_names(self) -> set[str]:
        """Return the names of all bytes that undoing it may need."""
        text = self._host.read_text(self.path) or ""
        return {name for name in self._host.list_dir(store.BLOBS) if name in text}


class Journal:
    """All transactions of a host that are not undone."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def transactions(self) -> list[Transaction]:
        """Read all transactions, the oldest first. Raises HarpError for one that can't be read."""
        return [self._read_transaction(path) for path in store.transaction_files(self._host)]

    def refuse_interrupted(self) -> None:
        """Raise HarpError where a transaction was interrupted, and is to be undone before another begins."""
        for transaction in self.transactions():
            if transaction.is_open:
                raise HarpError(
                    f"The transaction {transaction.id} ({transaction.begin.what}) was interrupted.",
                    f"Undo it first: harpctl rollback {transaction.id}",
                    ExitCode.REFUSED,
                )

    def begin(self, what: str) -> Transaction:
        """Begin a transaction. Raises OSError."""
        now = datetime.now(timezone.utc)
        names = [path.rpartition("/")[2] for path in store.transaction_files(self._host)]
        number = max((int(name[:4]) for name in names if name[:4].isdigit()), default=0) + 1
        name = f"{number:04d}-{now:%Y%m%dT%H%M%SZ}"
        begin = Begin(format=FORMAT, version=__version__, id=name, what=what, time=f"{now:%Y-%m-%dT%H:%M:%SZ}")
        path = f"{store.JOURNAL}/{name}.jsonl"
        self._host.write_file(path, _record_line(begin), 0o644)
        return Transaction(self._host, path, [begin])

    def save(self, data: bytes) -> str:
        """Keep bytes that are about to be replaced; return their name. Raises OSError."""
        name = digest_of(data)
        path = f"{store.BLOBS}/{name}"
        if self._host.stat(path) is None:
            self._host.write_file(path, data, 0o600)
        return name

    def saved(self, name: str) -> bytes:
        """Return kept bytes. Raises HarpError when they are gone or damaged."""
        path = f"{store.BLOBS}/{name}"
        data = self._host.read_bytes(path)
        if data is None or digest_of(data) != name:
            raise HarpError(
                f"The saved copy {path} is missing or damaged.",
                "Restore the file it was made of from a backup.",
                ExitCode.MISSING,
            )
        return data

    def repair(self, transaction: Transaction) -> None:
        """Cut off a last line that was written in part, so that records can be added. Raises OSError."""
        data = self._host.read_bytes(transaction.path) or b""
        if not data.endswith(b"\n"):
            self._host.write_file(transaction.path, data[: data.rfind(b"\n") + 1], 0o644)

    def forget(self, transaction: Transaction) -> None:
        """Remove an undone transaction. Raises OSError."""
        self._host.remove(transaction.path)

    def drop_unused(self) -> None:
        """Remove kept bytes that no transaction needs, and what a crash left half-written. Raises OSError."""
        used = set[str]().union(*(transaction.saved_names() for transaction in self.transactions()))
        for path in [store.RESERVE, *store.find_leftovers(self._host)]:
            self._host.remove(path)
        for name in self._host.list_dir(store.BLOBS):
            if name not in used:
                self._host.remove(f"{store.BLOBS}/{name}")

    def _read_transaction(self, path: str) -> Transaction:
        data = self._host.read_bytes(path)
        if data is None:
            raise HarpError(f"The journal {path} can't be read.", "Run harpctl as root.", ExitCode.MISSING)
        lines = data.split(b"\n")[:-1]  # what follows the last line end was written in part
        if not lines:
            raise _damage_error(path, "it is empty")
        version = _check_format(path, lines[0])
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(_DECODER.decode(line))
            except msgspec.ValidationError:
                raise _unknown_error(path, f"a record in line {number}", version) from None
            except msgspec.MsgspecError as error:
                raise _damage_error(path, f"line {number}: {error}") from None
        return Transaction(self._host, path, records)


class _Header(msgspec.Struct):
    format: int
    version: str = "a newer one"


_DECODER: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)


def boot_id(host: Host) -> str:
    """Return the id of the running boot; "" where it is not known."""
    return host.read_word(BOOT_ID)


def _record_line(record: Record) -> bytes:
    return msgspec.json.encode(record) + b"\n"


def _check_format(path: str, line: bytes) -> str:
    """Return the version that wrote a journal whose format is known."""
    try:
        header = msgspec.json.decode(line, type=_Header)
    except msgspec.MsgspecError as error:
        raise _damage_error(path, str(error)) from None
    if header.format != FORMAT:
        raise _unknown_error(path, f"format {header.format}", header.version)
    return header.version


def _unknown_error(path: str, what: str, version: str) -> HarpError:
    return HarpError(
        f"The journal {path} has {what}, which this harpctl {__version__} does not know.",
        f"Undo it with the harpctl that wrote it, version {version}.",
        ExitCode.WRONG_DATA,
    )


def _damage_error(path: str, how: str) -> HarpError:
    return HarpError(
        f"The journal {path} is damaged: {how}.",
        "Nothing was undone. Restore the file from a backup, or undo by hand what its readable lines name.",
        ExitCode.WRONG_DATA,
    )
