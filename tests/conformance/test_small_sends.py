# SPDX-License-Identifier: Apache-2.0
"""Sends of small messages: done at once, out of a copy, and delivered all the same or an error."""

from __future__ import annotations

import time

import pytest

from tests.conformance import abi
from tests.conformance.child import NEW_AND_OLD
from tests.conformance.driver import Buffer, Net, Pair, Request, ffi, pattern_bytes, poll_until

pytestmark = pytest.mark.parametrize("version", NEW_AND_OLD)

COPY_MAX = 32_768  # the largest message that is copied; the peer takes it without a receive
EARLY = 4  # messages that the peer takes before their receives are posted
GONE_S = 10.0
MESSAGES = 200


def send_copied(pair: Pair, data: bytes) -> Request:
    """Send, expect that the first test returns done, and write over the buffer."""
    source = Buffer(len(data), data)
    request = pair.post_send(source)
    assert pair.net.test(request), "done at once"
    assert (request.result, request.size) == (abi.SUCCESS, len(data))
    source.fill(0xEE)
    return request


def receive_checked(pair: Pair, data: bytes) -> None:
    place = Buffer(len(data))
    request = pair.post_receive(place)
    pair.net.finish(request, wait_s=GONE_S)
    assert (request.result, request.size, place.read()) == (abi.SUCCESS, len(data), data)


@pytest.mark.parametrize("size", [0, 1, 8, 128, 4096, COPY_MAX])
def test_done_at_once(net: Net, size: int) -> None:
    """Before the peer has anything, and the buffer is the caller's again."""
    with net.pair() as pair:
        send_copied(pair, pattern_bytes(size, 3))
        receive_checked(pair, pattern_bytes(size, 3))


def test_larger_ones_wait_for_the_peer(net: Net) -> None:
    with net.pair() as pair:
        data = pattern_bytes(COPY_MAX + 1, 3)
        outgoing = pair.post_send(Buffer(len(data), data))
        for _ in range(200):
            assert not net.test(outgoing)
        receive_checked(pair, data)
        net.finish(outgoing)
        assert outgoing.result == abi.SUCCESS


def test_closed_at_once(net: Net) -> None:
    """What test reported as sent arrives, though the sender closes at once and receives are posted later."""
    payloads = [pattern_bytes(size, size) for size in (COPY_MAX, 0, COPY_MAX, 5000)]
    with net.pair() as pair:
        for data in payloads:
            send_copied(pair, data)
        pair.close_send()
        for data in payloads:
            receive_checked(pair, data)


def test_without_receives_sends_wait(net: Net) -> None:
    """The sends that the peer takes by itself are done at once, the others when their receives are posted."""
    payloads = [pattern_bytes(100, number) for number in range(EARLY + 10)]
    with net.pair() as pair:
        for data in payloads[:EARLY]:
            send_copied(pair, data)
        late = [pair.post_send(Buffer(len(data), data)) for data in payloads[EARLY:]]
        for _ in range(200):
            assert not any(net.test(request) for request in late)
        for data in payloads:
            receive_checked(pair, data)
        net.finish(*late)
        assert [request.result for request in late] == [abi.SUCCESS] * len(late)


@pytest.mark.parametrize("size", [8, COPY_MAX])
def test_full_buffer(net: Net, size: int) -> None:
    """More than is copied at a time, nothing tested before the end: sends wait where there is no room."""
    with net.pair() as pair:
        places = [Buffer(size) for _ in range(abi.REQUESTS)]
        incoming = [pair.post_receive(place) for place in places]
        sources = [Buffer(size, pattern_bytes(size, number)) for number in range(abi.REQUESTS)]
        outgoing = [pair.post_send(source) for source in sources]
        net.finish(*outgoing, *incoming)
        for number, place in enumerate(places):
            assert place.read() == pattern_bytes(size, number)
        assert all(request.size == size for request in outgoing)


def test_requests_tested_late_come_back(net: Net) -> None:
    """Copies that are delivered before anybody tests them, and many rounds of them, use nothing up."""
    with net.pair() as pair:
        source, place = Buffer(64, pattern_bytes(64, 1)), Buffer(64)
        for _ in range(MESSAGES):
            incoming, outgoing = pair.post_receive(place), pair.post_send(source)
            net.finish(incoming)
            net.finish(outgoing)
            assert (outgoing.result, outgoing.size) == (abi.SUCCESS, 64)


def test_a_large_one_comes_after_small_ones(net: Net) -> None:
    """Order is kept, and the large one is done when all of it was taken."""
    large = pattern_bytes(300_000, 5)
    with net.pair() as pair:
        for number in range(4):
            send_copied(pair, pattern_bytes(1000, number))
        outgoing = pair.post_send(Buffer(len(large), large))
        assert not net.test(outgoing)
        for number in range(4):
            receive_checked(pair, pattern_bytes(1000, number))
        receive_checked(pair, large)
        net.finish(outgoing)
        assert outgoing.result == abi.SUCCESS


def test_buffer_may_be_deregistered(net: Net) -> None:
    """A small send that is done borrows nothing of its buffer."""
    with net.pair() as pair:
        source = Buffer(8, pattern_bytes(8, 1))
        result, mr = net.register(pair.sender, source)
        assert result == abi.SUCCESS
        request = net.send(pair.sender, source.address, 8)
        assert net.test(request)
        assert net.deregister(pair.sender, mr) == abi.SUCCESS
        source.unmap()
        receive_checked(pair, pattern_bytes(8, 1))


def test_error_after_done(net: Net) -> None:
    """What was done and could not be delivered is the error of a later call, and stays it."""
    with net.pair() as pair:
        send_copied(pair, pattern_bytes(1000, 1))
        incoming = pair.post_receive(Buffer(10))
        net.finish(incoming, wait_s=GONE_S)
        assert incoming.result == abi.USAGE
        source = Buffer(8)

        def fails() -> bool:
            later = net.send(pair.sender, source.address, 8)
            if later.result == abi.SUCCESS and later.pointer != ffi.NULL:
                net.test(later)
            assert later.result in (abi.SUCCESS, abi.USAGE)
            return later.result == abi.USAGE

        poll_until("the sender has the error", fails, GONE_S)
        assert net.send(pair.sender, source.address, 8).result == abi.USAGE
        assert len(net.warns()) == 2


def test_close_reports_what_no_call_has_reported(net: Net) -> None:
    """The link failed after its last send was done: the log reports it, close does not wait."""
    with net.pair() as pair:
        incoming = pair.post_receive(Buffer(10))
        outgoing = pair.post_send(Buffer(1000, pattern_bytes(1000, 1)))
        net.test(outgoing)  # done, or refused already
        net.finish(incoming, wait_s=GONE_S)
        start = time.monotonic()
        pair.close_send()
        assert time.monotonic() - start < GONE_S / 2
        pair.close_receive()
    warns: list[str] = []

    def is_reported() -> bool:
        warns.extend(net.warns())
        return any("a message of 1000 bytes was sent to" in line for line in warns)

    poll_until("the error of the message is in the log", is_reported, GONE_S)


def test_error_before_the_first_test(net: Net) -> None:
    """The peer's refusal may be known by then: the send is done, or it is the error."""
    with net.pair() as pair:
        incoming = pair.post_receive(Buffer(10))
        outgoing = pair.post_send(Buffer(1000))
        net.finish(outgoing, incoming, wait_s=GONE_S)
        assert outgoing.result in (abi.SUCCESS, abi.USAGE)
        assert incoming.result == abi.USAGE
        if outgoing.result == abi.USAGE:
            assert len(net.warns()) == 2
    net.warns()  # whether the sender knew of it before it closed is a matter of time


def test_receiver_is_closed_first(net: Net) -> None:
    """A sender whose copies nobody wants any more closes at once."""
    with net.pair() as pair:
        send_copied(pair, pattern_bytes(1000, 1))
        pair.close_receive()
        start = time.monotonic()
        pair.close_send()
        assert time.monotonic() - start < GONE_S / 2
    net.warns()  # whether it had arrived by then is a matter of time
