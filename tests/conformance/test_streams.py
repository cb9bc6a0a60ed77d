# SPDX-License-Identifier: Apache-2.0
"""NCCL's connections between the same two engines are streams of one, and share only what is the wire's."""

from __future__ import annotations

import contextlib

import pytest

from tests.conformance import abi
from tests.conformance.child import NEW_AND_OLD
from tests.conformance.driver import Buffer, Net, control_connections, ffi, pattern_bytes, poll_until

pytestmark = pytest.mark.parametrize("version", NEW_AND_OLD)

MANY = 40
GONE_S = 10.0  # as in test_errors


def test_many_share_one_connection(net: Net) -> None:
    """Only the first needs a control connection of its own; each moves its own data."""
    with contextlib.ExitStack() as stack:
        pairs = [stack.enter_context(net.pair())]
        connections = control_connections()
        assert connections
        pairs += [stack.enter_context(net.pair()) for _ in range(MANY - 1)]
        assert control_connections() == connections
        places = [Buffer(100_000) for _ in pairs]
        data = [pattern_bytes(100_000 - i, i) for i in range(len(pairs))]
        requests = []
        for pair, place, content in zip(pairs, places, data, strict=True):
            requests.append(pair.post_receive(place))
            requests.append(pair.post_send(Buffer(len(content), content)))
        net.finish(*requests)
        for place, content in zip(places, data, strict=True):
            assert place.read(len(content)) == content


def test_one_kept_for_the_next(net: Net) -> None:
    """Communicators are torn down and made again: the connection below outlives them for a moment."""
    with net.pair(), net.pair() as last:
        last.transfer([b"first"])
    with net.pair() as kept:
        connections = control_connections()
        assert connections
        kept.transfer([b"second"])
        with net.pair() as other:
            other.transfer([b"third"])
            assert control_connections() == connections


def test_closed_in_any_order(net: Net) -> None:
    """Numbers of streams are free again when both ends are closed, and not before."""
    with contextlib.ExitStack() as stack:
        kept = [stack.enter_context(net.pair()) for _ in range(3)]
        half = net.pair().__enter__()
        half.close_send()
        for i in range(20):
            with net.pair() as passing:
                passing.transfer([pattern_bytes(5000 + i, i)])
        half.close_receive()
        for pair in kept:
            pair.transfer([pattern_bytes(50_000, 3)])
    assert net.warns() == []


def test_misused_stream_fails_alone(net: Net) -> None:
    """Transfers of other streams are under way on the same connection."""
    with contextlib.ExitStack() as stack:
        whole = [stack.enter_context(net.pair()) for _ in range(4)]
        broken = stack.enter_context(net.pair())
        places = [Buffer(1 << 20) for _ in whole]
        data = [pattern_bytes(1 << 20, i) for i in range(len(whole))]
        requests = [pair.post_receive(place) for pair, place in zip(whole, places, strict=True)]
        requests += [pair.post_send(Buffer(1 << 20, content)) for pair, content in zip(whole, data, strict=True)]
        bad = [broken.post_receive(Buffer(10)), broken.post_send(Buffer(50_000, pattern_bytes(50_000, 1)))]
        net.finish(*bad, wait_s=GONE_S)
        assert len(net.warns()) == 2
        net.finish(*requests)
        assert [request.result for request in requests] == [abi.SUCCESS] * len(requests)
        assert [place.read(1 << 20) for place in places] == data
    assert net.warns() == []


def test_wrong_secret_of_a_listener(net: Net) -> None:
    """Who has a connection still has to prove each listener's own secret."""
    with net.pair() as pair:
        result, handle, listen = net.listen()
        assert result == abi.SUCCESS
        secret_at = 16
        ffi.buffer(handle)[secret_at : secret_at + 1] = bytes([ffi.buffer(handle)[secret_at][0] ^ 1])
        outcome: list[int] = []

        def refused() -> bool:
            outcome[:] = [net.connect(handle)[0]]
            assert net.accept(listen) == (abi.SUCCESS, ffi.NULL)
            return outcome[0] != abi.SUCCESS

        if net.version != 4:  # there connect waits by itself
            poll_until("refused", refused, GONE_S)
            assert outcome == [abi.remote_error(net.version)]
            (warn,) = net.warns()
            assert "does not know the secret" in warn
        assert net.close_listen(listen) == abi.SUCCESS
        pair.transfer([b"unharmed"])


@pytest.mark.parametrize("count", [2, 9])
def test_late_accept(net: Net, count: int) -> None:
    """Connects that nobody accepts yet are done all the same, up to a bound; the others wait for room."""
    if net.version == 4:
        pytest.skip("connect waits for the peer there")
    with net.pair():
        result, handle, listen = net.listen()
        assert result == abi.SUCCESS
        handles = [ffi.new("char[]", bytes(ffi.buffer(handle))) for _ in range(count)]
        senders = [ffi.NULL] * count

        def connected() -> int:
            for i, own in enumerate(handles):
                if senders[i] == ffi.NULL:
                    status, senders[i] = net.connect(own)
                    assert status == abi.SUCCESS
            return sum(sender != ffi.NULL for sender in senders)

        bound = min(count, 8)
        poll_until("as many as may", lambda: connected() == bound)
        receivers = []
        for _ in range(count):

            def accepted() -> bool:
                connected()
                status, comm = net.accept(listen)
                assert status == abi.SUCCESS
                if comm != ffi.NULL:
                    receivers.append(comm)
                return bool(comm != ffi.NULL)

            poll_until("accepted", accepted)
        poll_until("all connected", lambda: connected() == count)
        for sender in senders:
            assert net.close_send(sender) == abi.SUCCESS
        for receiver in receivers:
            assert net.close_receive(receiver) == abi.SUCCESS
        assert net.close_listen(listen) == abi.SUCCESS
    assert net.warns() == []
