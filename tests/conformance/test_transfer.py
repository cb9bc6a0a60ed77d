# SPDX-License-Identifier: Apache-2.0
"""Messages of all kinds arrive whole, in order, in the right place, and nowhere else."""

from __future__ import annotations

import pytest

from tests.conformance import abi
from tests.conformance.driver import Buffer, Net, Pair, ffi, in_threads, pattern_bytes, poll_until

SIZES = (0, 1, 2, 15, 127, 128, 129, 1000, 4096, 16383, 16384, 16385, 65536, 100_001, 1 << 20)


def test_every_size(net: Net) -> None:
    with net.pair() as pair:
        for number, size in enumerate(SIZES):
            pair.transfer([pattern_bytes(size, number)])


def test_receive_larger_than_the_message(net: Net) -> None:
    with net.pair() as pair:
        for size in (0, 1, 100, 4096, 70_000):
            pair.transfer([pattern_bytes(size, size)], spare=65_536)


def test_zero_bytes_are_a_message(net: Net) -> None:
    with net.pair() as pair:
        pair.transfer([b"", b"between", b"", b"", b"end", b""], spare=64)


def test_order_is_kept(net: Net) -> None:
    with net.pair() as pair:
        pair.transfer(
            [pattern_bytes(size, seed) for seed, size in enumerate([70_000, 3, 0, 20_000, 1, 16_385, 5, 128])]
        )


def test_32_requests_per_comm(net: Net) -> None:
    """32 receives and 32 sends are taken before any is tested."""
    payloads = [pattern_bytes(1 + 977 * number, number) for number in range(abi.REQUESTS)]
    with net.pair() as pair:
        places = [Buffer(len(data)) for data in payloads]
        receives = [net.receive(pair.receiver, place.address, place.size) for place in places]
        sources = [Buffer(len(data), data) for data in payloads]
        sends = [net.send(pair.sender, source.address, source.size) for source in sources]
        for request in receives + sends:
            assert request.result == abi.SUCCESS
            assert request.pointer != ffi.NULL
        net.finish(*sends, *receives)
        assert [place.read() for place in places] == payloads


def test_requests_come_back(net: Net) -> None:
    """However many go through one comm, none is used up."""
    source, place = Buffer(64, pattern_bytes(64, 1)), Buffer(64)
    with net.pair() as pair:
        for _ in range(500):
            incoming, outgoing = pair.post_receive(place), pair.post_send(source)
            net.finish(incoming, outgoing)
            assert incoming.size == 64
    assert place.read() == source.read()


def test_too_many_requests_means_not_now(net: Net) -> None:
    """A full comm returns a NULL request, and takes more later."""
    with net.pair() as pair:
        places = [Buffer(256) for _ in range(200)]
        taken = []
        for place in places:
            request = net.receive(pair.receiver, place.address, place.size)
            assert request.result == abi.SUCCESS
            if request.pointer == ffi.NULL:
                break
            taken.append(request)
        assert abi.REQUESTS <= len(taken) < len(places)
        source = Buffer(256, pattern_bytes(256, 9))
        sent = [pair.post_send(source) for _ in range(abi.REQUESTS)]
        net.finish(*sent, *taken[: abi.REQUESTS])
        more = net.receive(pair.receiver, places[-1].address, 256)
        assert more.result == abi.SUCCESS
        assert more.pointer != ffi.NULL


def test_send_before_receive(net: Net) -> None:
    """Small messages may wait at the receiver, large ones at the sender; both arrive in the end."""
    with net.pair() as pair:
        for size in (0, 10, 16_384, 300_000):
            source, place = Buffer(size, pattern_bytes(size, size)), Buffer(size)
            outgoing = pair.post_send(source)
            for _ in range(200):
                net.test(outgoing) if not outgoing.done else None
            assert outgoing.result == abi.SUCCESS
            incoming = pair.post_receive(place)
            net.finish(outgoing, incoming)
            assert (incoming.result, incoming.size, place.read()) == (abi.SUCCESS, size, source.read())


def test_sizes_may_be_null(net: Net) -> None:
    with net.pair() as pair:
        source, place = Buffer(1000, pattern_bytes(1000, 4)), Buffer(1000)
        incoming, outgoing = pair.post_receive(place), pair.post_send(source)
        for request in (outgoing, incoming):
            poll_until("done", lambda request=request: net.test(request, want_sizes=False))  # type: ignore[misc]
            assert request.done
            assert request.result == abi.SUCCESS
        assert place.read() == source.read()


def test_both_directions_at_once(net: Net) -> None:
    with net.pair() as there, net.pair() as back:
        data = [pattern_bytes(200_000, seed) for seed in range(8)]
        places = [Buffer(200_000) for _ in range(16)]
        sources = [Buffer(len(d), d) for d in data]
        requests = [there.post_receive(place) for place in places[:8]]
        requests += [back.post_receive(place) for place in places[8:]]
        requests += [pair.post_send(source) for source in sources for pair in (there, back)]
        net.finish(*requests)
        assert [place.read() for place in places] == data * 2


def test_registered_memory(net: Net) -> None:
    """One buffer, registered on both comms as NCCL does, used slot by slot, deregistered in the end."""
    slot = 65_536
    with net.pair() as pair:
        source, place = Buffer(8 * slot, pattern_bytes(8 * slot, 3)), Buffer(8 * slot)
        send_result, send_mr = net.register(pair.sender, source)
        receive_result, receive_mr = net.register(pair.receiver, place)
        assert (send_result, receive_result) == (abi.SUCCESS, abi.SUCCESS)
        requests = []
        for number in range(8):
            requests.append(net.receive(pair.receiver, place.address + number * slot, slot, receive_mr))
            requests.append(net.send(pair.sender, source.address + number * slot, slot, send_mr))
        net.finish(*requests)
        assert place.read() == source.read()
        assert net.deregister(pair.sender, send_mr) == abi.SUCCESS
        assert net.deregister(pair.receiver, receive_mr) == abi.SUCCESS
        assert net.deregister(pair.receiver, ffi.NULL) == abi.SUCCESS


def test_threads_on_different_comms(net: Net) -> None:
    """Progress threads move data on their own comms while a Service thread connects and closes others."""

    def progress(pair: Pair, seed: int) -> None:
        for round_ in range(12):
            pair.transfer([pattern_bytes(size, seed + round_) for size in (8, 70_000, 0, 300_000)])

    def service() -> None:
        for _ in range(12):
            with net.pair() as pair:
                pair.transfer([b"hello"])

    with net.pair() as one, net.pair() as two, net.pair() as three:
        in_threads(
            lambda: progress(one, 1),
            lambda: progress(two, 2),
            lambda: progress(three, 3),
            service,
            wait_s=60,
        )


def test_one_gibibyte_is_the_limit(net: Net) -> None:
    if net.version < 9:
        pytest.skip("sizes are ints: NCCL itself keeps them below")
    with net.pair() as pair:
        small = Buffer(64, pattern_bytes(64, 1))
        request = net.send(pair.sender, small.address, (1 << 30) + 1)
        assert request.result == abi.USAGE
        assert request.pointer == ffi.NULL
        (warn,) = net.warns()
        assert str((1 << 30) + 1) in warn
        pair.transfer([b"the comm lives on"])
