# SPDX-License-Identifier: Apache-2.0
"""Drives any version of the plugin's tables through one set of calls, as NCCL's proxy would.

Whatever NCCL leaves uninitialised is filled with garbage here: properties, requests, `done`. Calls return
NCCL's result code and never raise; the helpers that move a scenario on raise when it does not within a bound.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cffi

from tests.conformance import abi

PLUGIN_FILE = Path(
    os.environ.get(
        "CONFORMANCE_PLUGIN", Path(__file__).resolve().parents[2] / "plugin" / "build" / "libnccl-net.so"
    )
)
WAIT_S = 30.0
SPIN_S, NAP_S = 0.02, 0.0002
MEBIBYTE = 1 << 20
GARBAGE_DONE = 0x5A5A5A5A
STALE = 0x1  # NCCL's own hint, and no request
PF_EXITING = 0x4  # a flag in /proc/PID/stat: linux/sched.h

ffi = cffi.FFI()
ffi.cdef(
    "typedef void (*logger)(int level, unsigned long flags, const char *where, int line, const char *fmt,"
    " const char *text);\n" + "".join(abi.declare_version(version) for version in abi.VERSIONS)
)
ffi.cdef(abi.LIBC)
libc: Any = ffi.dlopen(None)


class Stuck(AssertionError):  # noqa: N818 - it is a failed expectation
    """Something that must happen did not within WAIT_S."""


def poll_until(what: str, poll: Callable[[], bool], wait_s: float = WAIT_S, spin_s: float = SPIN_S) -> None:
    """Poll until it returns true: without a pause at first, as NCCL does, later with short ones."""
    began = time.monotonic()
    while not poll():
        passed_s = time.monotonic() - began
        if passed_s > wait_s:
            raise Stuck(f"not within {wait_s} s: {what}")
        if passed_s > spin_s:
            time.sleep(NAP_S)


@dataclass
class Line:
    level: int
    flags: int
    text: str


class Log:
    """The log of the plugin, through NCCL's own kind of function."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        # NCCL's is variadic. A call with one string behind the format reaches this one the same way on the
        # machines that the plugin is built for; the format is checked.
        self.function = ffi.callback("logger", self._on_line)

    def _on_line(self, level: int, flags: int, _where: Any, _line: int, fmt: Any, text: Any) -> None:
        form = ffi.string(fmt).decode()
        assert form.count("%") == 1
        assert "%s" in form
        self.lines.append(Line(level, flags, form.replace("%s", ffi.string(text).decode())))

    def take_warns(self) -> list[str]:
        """Return the WARN lines so far and forget all lines."""
        lines, self.lines = self.lines, []
        return [line.text for line in lines if line.level == abi.LEVEL_WARN]


class Buffer:
    """Anonymous memory that can be unmapped while somebody might still use it."""

    def __init__(self, size: int, fill: bytes | None = None) -> None:
        self.size = size
        self._mapped = max(size, 1)
        self.address = libc.mmap(ffi.NULL, self._mapped, 3, 0x22, -1, 0)
        assert self.address != ffi.cast("void *", -1)
        if fill is not None:
            self.write(fill)

    def write(self, data: bytes) -> None:
        ffi.memmove(self.address, data, len(data))

    def fill(self, byte: int) -> None:
        libc.memset(self.address, byte, self.size)

    def read(self, size: int | None = None, offset: int = 0) -> bytes:
        end = offset + (self.size if size is None else size)
        return bytes(ffi.buffer(self.address, self._mapped)[offset:end])

    def unmap(self) -> None:
        if self.address is not None:
            assert libc.munmap(self.address, self._mapped) == 0
            self.address = None

    def __del__(self) -> None:
        if libc is not None:
            self.unmap()


@dataclass
class Request:
    """An operation under way; `result` is what starting it or the last test of it returned."""

    result: int
    pointer: Any
    done: bool = False
    size: int = -1


@dataclass
class Net:
    """One version's table. `file` is loaded with the flags that NCCL uses."""

    version: int
    log: Log | None = field(default_factory=Log)
    file: Path = PLUGIN_FILE
    profiler: Any = ffi.NULL  # the callback that init is given
    phandle: Any = ffi.NULL  # the handle of each isend; of irecv with n = 1, where it is not NULL

    def __post_init__(self) -> None:
        self.lib: Any = ffi.dlopen(str(self.file), ffi.RTLD_NOW | ffi.RTLD_LOCAL)
        self.table: Any = getattr(self.lib, f"ncclNetPlugin_v{self.version}")
        self.ctx: Any = ffi.NULL

    # ---- life ----

    def init(self, traffic_class: int | None = None) -> int:
        """Initialise; the context is kept. Without a traffic class the config is NULL where there is one."""
        log = ffi.NULL if self.log is None else ffi.cast("void *", self.log.function)
        if self.version < 10:
            return int(self.table.init(log))
        if self.version == 10:
            return int(self.table.init(log, self.profiler))
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        config = ffi.NULL if traffic_class is None else ffi.new("int *", traffic_class)
        result = int(self.table.init(slot, 0, config, log, self.profiler))
        self.ctx = slot[0]
        return result

    def finalize(self) -> int:
        """Finalize the context, where there is such a thing."""
        if self.version < abi.CONTEXT_VERSION:
            return abi.SUCCESS
        ctx, self.ctx = self.ctx, ffi.NULL
        return int(self.table.finalize(ctx))

    def unload(self) -> None:
        """Close the library as NCCL does after its last communicator."""
        self.table = None
        ffi.dlclose(self.lib)

    def warns(self) -> list[str]:
        """Return the WARN lines since the last time."""
        return [] if self.log is None else self.log.take_warns()

    # ---- calls ----

    def _with_context(self, *arguments: Any) -> tuple[Any, ...]:
        return (self.ctx, *arguments) if self.version >= abi.CONTEXT_VERSION else arguments

    def _with_device(self, *arguments: Any) -> tuple[Any, ...]:
        """A HOST plugin leaves the slot for a device handle alone: NULL would crash one that doesn't."""
        return (*arguments, ffi.NULL) if self.version >= 7 else arguments

    def devices(self) -> tuple[int, int]:
        out = ffi.new("int *", -7)
        return int(self.table.devices(out)), out[0]

    def properties(self, dev: int) -> tuple[int, Any]:
        """Return the result and the struct, which held 0xA5 everywhere before."""
        props = ffi.new(f"struct properties_v{self.version} *")
        ffi.buffer(props)[:] = b"\xa5" * ffi.sizeof(props[0])
        return int(self.table.getProperties(dev, props)), props

    def listen(self, dev: int = 0, handle: Any = None) -> tuple[int, Any, Any]:
        """Return the result, the handle and the listening comm."""
        if handle is None:
            handle = ffi.new("char[]", abi.handle_bytes(self.version))
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        return int(self.table.listen(*self._with_context(dev, handle, slot))), handle, slot[0]

    def connect(self, handle: Any, dev: int = 0, traffic_class: int | None = None) -> tuple[int, Any]:
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        if self.version == 10:
            config = ffi.NULL if traffic_class is None else ffi.new("int *", traffic_class)
            result = self.table.connect(dev, config, handle, slot, ffi.NULL)
        else:
            result = self.table.connect(*self._with_device(*self._with_context(dev, handle, slot)))
        return int(result), slot[0]

    def accept(self, listen: Any) -> tuple[int, Any]:
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        return int(self.table.accept(*self._with_device(listen, slot))), slot[0]

    def register(
        self, comm: Any, buffer: Buffer, size: int | None = None, kind: int = abi.PTR_HOST
    ) -> tuple[int, Any]:
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        bytes_ = buffer.size if size is None else size
        return int(self.table.regMr(comm, buffer.address, bytes_, kind, slot)), slot[0]

    def deregister(self, comm: Any, mhandle: Any) -> int:
        return int(self.table.deregMr(comm, mhandle))

    def send(self, comm: Any, address: Any, size: int, mhandle: Any = ffi.NULL, tag: int = 7) -> Request:
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        middle: tuple[Any, ...] = (mhandle,)
        if self.version >= 5:
            middle = (tag, mhandle)
        if self.version >= 10:
            middle = (tag, mhandle, self.phandle)
        result = int(self.table.isend(comm, address, size, *middle, slot))
        return Request(result, slot[0])

    def receive(
        self, comm: Any, address: Any, size: int, mhandle: Any = ffi.NULL, tag: int = 7, n: int = 1
    ) -> Request:
        """Post a receive. Without a phandle their array is NULL, as NCCL's own bootstrap passes it."""
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        if self.version == 4:
            return Request(int(self.table.irecv(comm, address, size, mhandle, slot)), slot[0])
        kind = "size_t[]" if self.version >= 9 else "int[]"
        data, sizes = ffi.new("void *[]", [address] * n), ffi.new(kind, [size] * n)
        tags, mhandles = ffi.new("int[]", [tag] * n), ffi.new("void *[]", [mhandle] * n)
        phandles = ffi.NULL if self.phandle == ffi.NULL else ffi.new("void *[]", [self.phandle] * n)
        end = (phandles, slot) if self.version >= 10 else (slot,)
        result = int(self.table.irecv(comm, n, data, sizes, tags, mhandles, *end))
        return Request(result, slot[0])

    def flush(self, comm: Any, address: Any, size: int) -> Request:
        slot = ffi.new("void **", ffi.cast("void *", STALE))
        if self.version == 4:
            return Request(int(self.table.iflush(comm, address, size, ffi.NULL, slot)), slot[0])
        data, sizes, mhandles = (
            ffi.new("void *[]", [address]),
            ffi.new("int[]", [size]),
            ffi.new("void *[]", 1),
        )
        return Request(int(self.table.iflush(comm, 1, data, sizes, mhandles, slot)), slot[0])

    def test(self, request: Request, *, want_sizes: bool = True) -> bool:
        """Test once; `done` and the size land in the request. Returns whether it is over, well or not.

        A request that is done is dead: like NCCL, this never tests it again.
        """
        if request.done:
            return True
        done = ffi.new("int *", GARBAGE_DONE)
        sizes = ffi.new("int[]", [-1] * 8)
        request.result = int(self.table.test(request.pointer, done, sizes if want_sizes else ffi.NULL))
        assert done[0] in (0, 1), "test left `done` unwritten"
        assert list(sizes[1:8]) == [-1] * 7, "test wrote behind the sizes of one receive"
        request.done = bool(done[0])
        request.size = sizes[0]
        if request.result:
            assert not request.done
        return request.done or request.result != abi.SUCCESS

    def close_send(self, comm: Any) -> int:
        return int(self.table.closeSend(comm))

    def close_receive(self, comm: Any) -> int:
        return int(self.table.closeRecv(comm))

    def close_listen(self, listen: Any) -> int:
        return int(self.table.closeListen(listen))

    # ---- scenarios ----

    def started(self, start: Callable[[], Request]) -> Request:
        """Call isend or irecv until it takes the request."""
        request = start()
        deadline = time.monotonic() + WAIT_S
        while request.result == abi.SUCCESS and request.pointer == ffi.NULL:
            if time.monotonic() > deadline:
                raise Stuck("no request for so long")
            request = start()
        return request

    def finish(self, *requests: Request, wait_s: float = WAIT_S) -> None:
        """Test the requests until all are over; a request that is over is not tested again."""
        open_ = [request for request in requests if not request.done and not request.result]

        def poll() -> bool:
            open_[:] = [request for request in open_ if not self.test(request)]
            return not open_

        poll_until(f"{len(open_)} requests over", poll, wait_s)

    def meet(self, handle: Any, listen: Any, sender: Any = ffi.NULL, dev: int = 0) -> tuple[Any, Any]:
        """Connect and accept in turns, in one thread, until both have a comm."""
        ends: list[Any] = [sender, ffi.NULL]

        def poll() -> bool:
            if ends[0] == ffi.NULL:
                result, ends[0] = self.connect(handle, dev)
                assert result == abi.SUCCESS
            if ends[1] == ffi.NULL:
                result, ends[1] = self.accept(listen)
                assert result == abi.SUCCESS
            return ffi.NULL not in ends

        poll_until("connected", poll)
        return ends[0], ends[1]

    def connected(self, handle: Any) -> Any:
        """Call connect until it returns a comm."""
        return self._until_comm("connected", lambda: self.connect(handle))

    def accepted(self, listen: Any) -> Any:
        """Call accept until it returns a comm."""
        return self._until_comm("accepted", lambda: self.accept(listen))

    def _until_comm(self, what: str, call: Callable[[], tuple[int, Any]]) -> Any:
        comm = ffi.NULL

        def poll() -> bool:
            nonlocal comm
            result, comm = call()
            assert result == abi.SUCCESS, self.warns()
            return bool(comm != ffi.NULL)

        poll_until(what, poll)
        return comm

    @contextmanager
    def pair(self, dev: int = 0) -> Iterator[Pair]:
        """Provide a connection from this process to itself, closed at the end."""
        result, handle, listen = self.listen(dev)
        assert result == abi.SUCCESS
        try:
            sender, receiver = self.meet(handle, listen, dev=dev)
        finally:
            assert self.close_listen(listen) == abi.SUCCESS
        pair = Pair(self, sender, receiver)
        try:
            yield pair
        finally:
            pair.close()


@dataclass
class Pair:
    """Both ends of one connection. Keeps the buffers of what it posted until it is closed."""

    net: Net
    sender: Any
    receiver: Any
    kept: list[Buffer] = field(default_factory=list)

    def close_send(self) -> None:
        if self.sender is not None:
            sender, self.sender = self.sender, None
            assert self.net.close_send(sender) == abi.SUCCESS

    def close_receive(self) -> None:
        if self.receiver is not None:
            receiver, self.receiver = self.receiver, None
            assert self.net.close_receive(receiver) == abi.SUCCESS

    def close(self) -> None:
        self.close_send()
        self.close_receive()
        self.kept.clear()

    def post_send(self, buffer: Buffer, size: int | None = None) -> Request:
        self.kept.append(buffer)
        bytes_ = buffer.size if size is None else size
        return self.net.started(lambda: self.net.send(self.sender, buffer.address, bytes_))

    def post_receive(self, buffer: Buffer, size: int | None = None) -> Request:
        self.kept.append(buffer)
        bytes_ = buffer.size if size is None else size
        return self.net.started(lambda: self.net.receive(self.receiver, buffer.address, bytes_))

    def transfer(self, payloads: Sequence[bytes], *, spare: int = 0) -> None:
        """Send messages, all posted before any is waited for, into receives that are `spare` bytes larger."""
        receives = [(Buffer(len(data) + spare), data) for data in payloads]
        for buffer, _ in receives:
            buffer.fill(0xEE)
        incoming = [self.post_receive(buffer) for buffer, _ in receives]
        sends = [Buffer(len(data), data) for data in payloads]
        outgoing = [self.post_send(buffer) for buffer in sends]
        self.net.finish(*incoming, *outgoing)
        for request, (buffer, data) in zip(incoming, receives, strict=True):
            assert request.result == abi.SUCCESS
            assert request.size == len(data)
            assert buffer.read(len(data)) == data
            assert buffer.read(spare, len(data)) == b"\xee" * spare, "written behind the message"
        assert all(request.result == abi.SUCCESS for request in outgoing)


def pattern_bytes(size: int, seed: int) -> bytes:
    """Return bytes that differ by place and by seed, quickly."""
    block = bytes((i * 131 + (i >> 8) * 31 + seed * 17) & 0xFF for i in range(4099))
    return (block * (size // len(block) + 1))[:size]


def text_of(handle: Any) -> str:
    """Return a handle as text, for another process."""
    return bytes(ffi.buffer(handle)).hex()


def handle_of(text: str) -> Any:
    """Return the handle that a text holds."""
    return ffi.new("char[]", bytes.fromhex(text))


def resident_bytes() -> int:
    """Return how much memory this process occupies."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _has_exited(thread: str) -> bool:
    try:
        words = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return bool(int(words[6]) & PF_EXITING)


def thread_count() -> int:
    """Count this process's threads, but for those that exit: one that was joined is listed a bit longer."""
    return sum(not _has_exited(name) for name in os.listdir("/proc/self/task"))  # noqa: PTH208


def open_files() -> dict[str, str]:
    """Map this process's descriptors to what they are open on."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")  # noqa: PTH115
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return found


def control_connections() -> set[str]:
    """Return the inodes of this process's TCP connections that are up."""
    ours = {target.removeprefix("socket:[").rstrip("]") for target in open_files().values()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()]
    established = "01"
    return {words[9] for words in lines if words[3] == established and words[9] in ours}


def until_files_back(files: dict[str, str]) -> None:
    """Wait until nothing is open that was not open then; name what remains."""
    try:
        poll_until("files are back", lambda: open_files().items() <= files.items())
    except Stuck as stuck:
        raise Stuck(f"{stuck}: {dict(open_files().items() - files.items())}") from None


def in_threads(*functions: Callable[[], None], wait_s: float = WAIT_S) -> None:
    """Run functions at once, and raise what any of them raises."""
    errors: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - it is raised again below
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(function,), daemon=True) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(wait_s)
    if errors:
        raise errors[0]
    if any(thread.is_alive() for thread in threads):
        raise Stuck("a thread has not ended")
