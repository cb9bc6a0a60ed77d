# SPDX-License-Identifier: Apache-2.0
"""Scenarios of one end of a connection, which does what the lines from the test request."""

from __future__ import annotations

import os

from tests.conformance.children.lines import init_net, read_line, send_line
from tests.conformance.driver import Buffer, Net, handle_of, pattern_bytes, text_of


def receiver(version: int) -> None:
    """Listen, send the handle, then receive `n` messages of up to `size` bytes for each line."""
    net = init_net(Net(version))
    _, handle, listen = net.listen()
    send_line(handle=text_of(handle), pid=os.getpid())
    comm = net.accepted(listen)
    send_line(accepted=True)
    while (order := read_line()) is not None:
        places = [Buffer(order["size"]) for _ in range(order["n"])]
        requests = [net.receive(comm, place.address, place.size) for place in places]
        send_line(posted=True)
        net.finish(*requests)
        send_line(
            results=[request.result for request in requests],
            sizes=[request.size for request in requests],
            sums=[sum(place.read()[: max(r.size, 0)]) for place, r in zip(places, requests, strict=True)],
            warns=net.warns(),
        )
    net.close_receive(comm)
    net.close_listen(listen)
    net.finalize()


def sender(version: int) -> None:
    """Connect to the handle that comes in, then send a message for each line that comes in."""
    net = init_net(Net(version))
    handle = handle_of(read_line()["handle"])
    comm = net.connected(handle)
    send_line(connected=True, pid=os.getpid())
    while (order := read_line()) is not None:
        source = Buffer(order["size"], pattern_bytes(order["size"], 1))
        request = net.started(lambda source=source: net.send(comm, source.address, source.size))  # type: ignore[misc]
        net.finish(request)
        send_line(result=request.result)
    net.close_send(comm)
    net.finalize()


def hesitant(version: int) -> None:
    """Listen, and accept after the next line that comes in."""
    net = init_net(Net(version, None))
    _, handle, listen = net.listen()
    send_line(handle=text_of(handle))
    if read_line() is None:
        return
    net.accepted(listen)
    send_line(accepted=True)
    read_line()


def sender_to_each(version: int) -> None:
    """Connect to the handles that come in, one after the other, then leave."""
    net = init_net(Net(version, None))
    for text in read_line()["handles"]:
        handle = handle_of(text)
        net.connected(handle)
        send_line(connected=True)
    read_line()
