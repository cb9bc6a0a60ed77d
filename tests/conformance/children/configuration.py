# SPDX-License-Identifier: Apache-2.0
"""Scenarios of settings and devices: no settings, what a device reports, merged devices, all sizes."""

from __future__ import annotations

import contextlib

from tests.conformance.children.lines import init_net, send_line
from tests.conformance.driver import MEBIBYTE, Log, Net, ffi, open_files, pattern_bytes, thread_count

MATRIX_SIZES = (0, 1, 127, 128, 129, 4096, 16_385, 65_536, 1_000_003, 4 * MEBIBYTE, 64 * MEBIBYTE)


def unconfigured(version: int) -> None:
    """Let init fail twice, since NCCL may call it again for the next communicator."""
    net, threads, files = Net(version), thread_count(), open_files()
    for _ in range(2):
        result = net.init()
        context_is_null = net.ctx == ffi.NULL
        lines = [line.text for line in net.log.lines] if net.log else []
        warns = net.warns()
        finalized = net.finalize()
        send_line(
            result=result,
            warns=warns,
            lines=lines,
            context_is_null=context_is_null,
            finalized=finalized,
            threads=thread_count() - threads,
            files=len(open_files()) - len(files),
        )


def properties(version: int) -> None:
    """Report what the device is, and the lines of the log."""
    net = init_net(Net(version))
    assert net.log is not None
    _, props = net.properties(0)
    send_line(
        name=ffi.string(props.name).decode(),
        speed=props.speed,
        pci_path=None if props.pciPath == ffi.NULL else ffi.string(props.pciPath).decode(),
        guid=props.guid,
        guids=[net.properties(dev)[1].guid for dev in range(net.devices()[1])],
        devices=[ffi.string(net.properties(dev)[1].name).decode() for dev in range(net.devices()[1])],
        log=[line.text for line in net.log.lines],
    )
    net.finalize()


def matrix(version: int) -> None:
    """Move messages from nothing to 64 MiB."""
    net = init_net(Net(version))
    with net.pair() as pair:
        for number, size in enumerate(MATRIX_SIZES):
            pair.transfer([pattern_bytes(size, number)])
        pair.transfer([pattern_bytes(200_000 + number, number) for number in range(8)], spare=1000)
    net.finalize()
    send_line(warns=net.warns(), threads=thread_count())


def striped(version: int) -> None:
    """Move data over a pair of each device while those of the others are open; count HARP's threads."""
    net = init_net(Net(version))
    before, threads = thread_count(), []
    with contextlib.ExitStack() as stack:
        for dev in range(net.devices()[1]):
            pair = stack.enter_context(net.pair(dev))
            pair.transfer([pattern_bytes(size, dev) for size in (1, 5000, 1 << 20)])
            threads.append(thread_count() - before)
    speeds = [net.properties(dev)[1].speed for dev in range(net.devices()[1])]
    send_line(speeds=speeds, threads=threads, warns=net.warns())
    net.finalize()


def _merge(net: Net, *parts: int) -> tuple[int, int]:
    dev, props = ffi.new("int *", -1), ffi.new("struct { int ndevs; int devs[8]; } *")
    props.ndevs = len(parts)
    for i, part in enumerate(parts):
        props.devs[i] = part
    return net.table.makeVDevice(dev, ffi.cast("void *", props)), dev[0]


def merge(version: int) -> None:
    """Merge devices as NCCL does, use the merged one, request ones that cannot be made."""
    net = init_net(Net(version))
    _, both = _merge(net, 0, 1)
    _, props = net.properties(both)
    parts = list(props.vProps.devs[0 : props.vProps.ndevs])
    with net.pair(both) as pair:
        pair.transfer([pattern_bytes(size, 1) for size in (1, 5000, 1 << 20)])
    again = _merge(net, 0, 1)
    warns = net.warns()
    results = [_merge(net, *wrong)[0] for wrong in [(), (0, 99), (-1,)]]
    refused = net.warns()
    send_line(both=both, again=list(again), name=ffi.string(props.name).decode(), parts=parts, speed=props.speed)
    send_line(results=results, warns=warns, refused=refused)


def merge_again(version: int) -> None:
    """Merge; begin anew, as NCCL does that has unloaded the plugin in between, and as one that has not."""
    net = init_net(Net(version))
    _merge(net, 0, 1)
    net.finalize()
    net = init_net(Net(version))
    counts = [net.devices()[1]]
    with net.pair(2) as pair:
        pair.transfer([pattern_bytes(5000, 1)])
    again = _merge(net, 0, 1)
    counts.append(net.devices()[1])
    net.finalize()
    net = init_net(Net(version))
    other = _merge(net, 1, 0)
    _, props = net.properties(2)
    counts.append(net.devices()[1])
    send_line(counts=counts, again=list(again), other=list(other), name=ffi.string(props.name).decode())


def merge_unplaced(version: int) -> None:
    """Request devices of several and of one, where none is a PCI device."""
    net = init_net(Net(version, Log()))
    results = [_merge(net, *parts)[0] for parts in [(0, 1), (1,)]]
    assert net.log
    lines = [line.text for line in net.log.lines if "makeVDevice" in line.text]
    send_line(several=results[0], single=results[1], lines=lines, warns=net.warns())
