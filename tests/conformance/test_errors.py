# SPDX-License-Identifier: Apache-2.0
"""Every way to fail: one code, one WARN that names who and what, no hang, and the same answer ever after."""

from __future__ import annotations

import os

import pytest

from tests.conformance import abi
from tests.conformance.driver import Buffer, Net, ffi, pattern_bytes, poll_until

COPY_MAX = 32_768  # the largest send that is copied, and done at once
GONE_S = 10.0  # promised is 1 s; a loaded machine gets ten times that before a test calls it a hang


@pytest.mark.parametrize("size", [1001, 20_000, 300_000])
def test_send_larger_than_the_receive(net: Net, size: int) -> None:
    """Both sides get InvalidUsage, each with one WARN that names the peer and both sizes."""
    with net.pair() as pair:
        place, source = Buffer(1000 + 4096), Buffer(size, pattern_bytes(size, 1))
        place.fill(0xEE)
        incoming = pair.post_receive(place, 1000)
        outgoing = pair.post_send(source)
        net.finish(incoming, wait_s=GONE_S)
        assert (incoming.result, incoming.done) == (abi.USAGE, False)
        if not outgoing.done:
            net.finish(outgoing, wait_s=GONE_S)

        def later_fails() -> bool:  # a small send is done before the peer has judged it
            later = net.send(pair.sender, source.address, 10)
            if later.result == abi.SUCCESS and later.pointer != ffi.NULL:
                net.test(later)
            return later.result == abi.USAGE

        assert outgoing.result == abi.USAGE or size <= COPY_MAX
        poll_until("the sender has the error", later_fails, GONE_S)
        warns = net.warns()
        assert len(warns) == 2, warns
        for warn in warns:
            assert f"process {os.getpid()}" in warn
            assert "127.0.0.1" in warn
            assert str(size) in warn
            assert "1000" in warn
        assert place.read(4096, 1000) == b"\xee" * 4096, "written behind the posted size"


def test_errors_are_sticky(net: Net) -> None:
    with net.pair() as pair:
        place, source = Buffer(100), Buffer(50_000, pattern_bytes(50_000, 1))
        incoming, outgoing = pair.post_receive(place), pair.post_send(source)
        net.finish(incoming, outgoing, wait_s=GONE_S)
        assert len(net.warns()) == 2
        for _ in range(3):
            for request in (incoming, outgoing):
                assert net.test(request)
                assert request.result == abi.USAGE
            for later in (
                net.receive(pair.receiver, place.address, 100),
                net.send(pair.sender, source.address, 100),
            ):
                assert (later.result, later.pointer) == (abi.USAGE, ffi.NULL)
        assert net.warns() == [], "said once"


def test_other_comms_live_on(net: Net) -> None:
    with net.pair() as broken, net.pair() as whole:
        place, source = Buffer(10), Buffer(50_000, pattern_bytes(50_000, 1))
        net.finish(broken.post_receive(place), broken.post_send(source), wait_s=GONE_S)
        assert len(net.warns()) == 2
        whole.transfer([pattern_bytes(100_000, 5)])


def test_receiver_closes(net: Net) -> None:
    """A send that the peer will never take ends with a remote error."""
    with net.pair() as pair:
        source = Buffer(1 << 20, pattern_bytes(1 << 20, 1))
        outgoing = pair.post_send(source)
        for _ in range(50):
            assert not net.test(outgoing)
        pair.close_receive()
        net.finish(outgoing, wait_s=GONE_S)
        assert outgoing.result == abi.remote_error(net.version)
        (warn,) = net.warns()
        assert f"process {os.getpid()}" in warn


def test_sender_closes(net: Net) -> None:
    """A receive that nobody will fill ends with a remote error."""
    with net.pair() as pair:
        incoming = pair.post_receive(Buffer(1000))
        for _ in range(50):
            assert not net.test(incoming)
        pair.close_send()
        net.finish(incoming, wait_s=GONE_S)
        assert incoming.result == abi.remote_error(net.version)
        (warn,) = net.warns()
        assert f"process {os.getpid()}" in warn


@pytest.mark.parametrize("end", ["sender", "receiver"])
def test_buffer_taken_away_in_use(net: Net, end: str) -> None:
    """The other end of the connection has an error at once that says what happened, as in an abort."""
    with net.pair() as pair:
        buffer = Buffer(1 << 20, pattern_bytes(1 << 20, 1))
        ours, theirs = (pair.sender, pair.receiver) if end == "sender" else (pair.receiver, pair.sender)
        result, mr = net.register(ours, buffer)
        assert result == abi.SUCCESS
        request = pair.post_send(buffer) if end == "sender" else pair.post_receive(buffer)
        assert net.deregister(ours, mr) == abi.SUCCESS
        net.finish(request, wait_s=GONE_S)
        assert request.result == abi.INTERNAL
        (warn,) = net.warns()
        assert "deregistered" in warn
        other = Buffer(1000)

        def fails() -> bool:
            if end == "sender":
                later = net.receive(theirs, other.address, other.size)
            else:
                later = net.send(theirs, other.address, other.size)
            if not later.result and later.pointer != ffi.NULL:
                net.test(later)
            return later.result == abi.remote_error(net.version)

        poll_until("the other end has failed", fails, GONE_S)
        (warn,) = net.warns()
        assert "deregistered a buffer that was in use" in warn
        assert f"process {os.getpid()}" in warn


@pytest.mark.parametrize("late", [False, True])
def test_what_was_sent_before_the_close_arrives(net: Net, late: bool) -> None:
    """A sender that saw all its sends done may close; the receiver still gets every byte, though the word of
    the close be there before its receives are.
    """
    payloads = [pattern_bytes(size, size) for size in (5, 0, 16_384, 100)]
    with net.pair() as pair:
        outgoing = [pair.post_send(Buffer(len(data), data)) for data in payloads]
        net.finish(*outgoing)
        pair.close_send()
        if late:
            with net.pair() as other:
                other.transfer([b"the close goes before this one's opening"])
        places = [Buffer(len(data)) for data in payloads]
        for place, data in zip(places, payloads, strict=True):
            incoming = pair.post_receive(place)
            net.finish(incoming)
            assert (incoming.result, incoming.size) == (abi.SUCCESS, len(data))
            assert place.read() == data


def test_a_quiet_peer_that_left_is_no_error_until_needed(net: Net) -> None:
    with net.pair() as pair:
        pair.transfer([b"all done"])
        pair.close_send()
        assert net.warns() == []


def test_grouped_receive_is_refused(net: Net) -> None:
    if net.version == 4:
        pytest.skip("no groups in v4")
    with net.pair() as pair:
        for n in (0, 2, 8):
            request = net.receive(pair.receiver, Buffer(64).address, 64, n=n)
            assert (request.result, request.pointer) == (abi.INTERNAL, ffi.NULL)
            assert len(net.warns()) == 1
        pair.transfer([b"the comm lives on"])


def test_negative_sizes(net: Net) -> None:
    if net.version >= 9:
        pytest.skip("sizes are unsigned")
    with net.pair() as pair:
        buffer = Buffer(64)
        for request in (
            net.send(pair.sender, buffer.address, -1),
            net.receive(pair.receiver, buffer.address, -(2**31)),
        ):
            assert (request.result, request.pointer) == (abi.ARGUMENT, ffi.NULL)
        assert len(net.warns()) == 2
        if net.version < 8:
            assert net.register(pair.sender, buffer, -5) == (abi.ARGUMENT, ffi.NULL)
            assert len(net.warns()) == 1
        pair.transfer([b"the comm lives on"])


def test_wrong_end(net: Net) -> None:
    with net.pair() as pair:
        buffer = Buffer(64)
        for request in (
            net.send(pair.receiver, buffer.address, 8),
            net.receive(pair.sender, buffer.address, 8),
        ):
            assert (request.result, request.pointer) == (abi.INTERNAL, ffi.NULL)
        assert len(net.warns()) == 2
        pair.transfer([b"the comm lives on"])


def test_only_host_memory(net: Net) -> None:
    with net.pair() as pair:
        buffer = Buffer(4096)
        for kind in (0, abi.PTR_CUDA, 4, 3):
            assert net.register(pair.sender, buffer, kind=kind) == (abi.INTERNAL, ffi.NULL)
            assert len(net.warns()) == 1
        if net.version >= 6:
            slot = ffi.new("void **", ffi.cast("void *", 1))
            assert (
                net.table.regMrDmaBuf(pair.sender, buffer.address, 64, abi.PTR_CUDA, 0, -1, slot) == abi.INTERNAL
            )
            assert slot[0] == ffi.NULL
            assert len(net.warns()) == 1


def test_host_only_extras(net: Net) -> None:
    with net.pair() as pair:
        buffer = Buffer(64)
        flush = net.flush(pair.receiver, buffer.address, 64)
        assert flush.result == abi.SUCCESS
        assert net.test(flush, want_sizes=False)
        assert flush.done
        if net.version >= 7:
            slot = ffi.new("void **", ffi.cast("void *", 1))
            assert net.table.getDeviceMr(pair.sender, ffi.NULL, slot) == abi.INTERNAL
            assert slot[0] == ffi.NULL
            assert len(net.warns()) == 1
            assert net.table.irecvConsumed(pair.receiver, 1, ffi.NULL) == abi.SUCCESS


def test_null_arguments_are_misuse(net: Net) -> None:
    buffer, done = Buffer(8), ffi.new("int *", 5)
    assert net.send(ffi.NULL, buffer.address, 8).result == abi.INTERNAL
    assert net.receive(ffi.NULL, buffer.address, 8).result == abi.INTERNAL
    assert net.accept(ffi.NULL) == (abi.INTERNAL, ffi.NULL)
    assert net.connect(ffi.NULL) == (abi.INTERNAL, ffi.NULL)
    assert net.table.test(ffi.NULL, done, ffi.NULL) == abi.INTERNAL
    assert done[0] == 0
    assert len(net.warns()) == 5
