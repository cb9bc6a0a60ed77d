# SPDX-License-Identifier: Apache-2.0
"""Init, finalize, devices, properties: what NCCL does before and after there are connections."""

from __future__ import annotations

import pytest

from tests.conformance import abi
from tests.conformance.driver import Log, Net, ffi, open_files, thread_count

BAD_DEVICES = (-1, 1, 2, 127, 2**31 - 1, -(2**31))


def test_layout(version: int) -> None:
    assert ffi.sizeof(f"struct net_v{version}") == abi.TABLE_BYTES[version]
    assert ffi.sizeof(f"struct properties_v{version}") == abi.PROPERTIES_BYTES[version]


def test_name_and_members(net: Net) -> None:
    assert ffi.string(net.table.name) == b"HARP"
    missing = [name for name in dir(net.table) if name != "name" and getattr(net.table, name) == ffi.NULL]
    assert missing == []


def test_init_many_times(version: int) -> None:
    nets = [Net(version) for _ in range(5)]
    assert [net.init() for net in nets] == [abi.SUCCESS] * 5
    if version >= abi.CONTEXT_VERSION:
        assert len({net.ctx for net in nets}) == 5
    assert nets[0].finalize() == abi.SUCCESS
    with nets[-1].pair() as pair:
        pair.transfer([b"a context is left"])
    assert [net.finalize() for net in nets[1:]] == [abi.SUCCESS] * 4
    again = Net(version)
    assert again.init() == abi.SUCCESS
    with again.pair() as pair:
        pair.transfer([b"again"])
    assert again.finalize() == abi.SUCCESS
    assert [net.warns() for net in [*nets, again]] == [[]] * 6


@pytest.mark.parametrize("version", [11, 12])
def test_finalize_null_and_twice(version: int) -> None:
    net = Net(version)
    assert net.finalize() == abi.SUCCESS
    assert net.init() == abi.SUCCESS
    ctx = net.ctx
    assert net.finalize() == abi.SUCCESS
    assert int(net.table.finalize(ctx)) == abi.SUCCESS
    assert net.warns() == []


def test_init_starts_no_thread_and_opens_no_file(version: int) -> None:
    """A plugin that is loaded and not used costs nothing."""
    net = Net(version)
    threads, files = thread_count(), open_files()
    assert net.init() == abi.SUCCESS
    net.devices()
    net.properties(0)
    assert thread_count() == threads
    assert open_files() == files
    net.finalize()


def test_no_logger_is_fine(version: int) -> None:
    net = Net(version, log=None)
    assert net.init() == abi.SUCCESS
    assert net.properties(99)[0] == abi.ARGUMENT
    assert net.finalize() == abi.SUCCESS


def test_logs_as_nccl_wants(version: int) -> None:
    """Known levels and subsystems only; WARN where the error is, the rest at INFO."""
    log = Log()
    net = Net(version, log)
    assert net.init() == abi.SUCCESS
    with net.pair() as pair:
        pair.transfer([b"x"])
    net.finalize()
    assert log.lines
    assert {line.level for line in log.lines} <= {abi.LEVEL_INFO, abi.LEVEL_TRACE}
    assert {line.flags for line in log.lines} == {0x11}  # INIT and NET
    assert any("127.0.0.1" in line.text for line in log.lines)


def test_devices(net: Net) -> None:
    assert net.devices() == (abi.SUCCESS, 1)


def test_properties_are_all_written(net: Net) -> None:
    """NCCL passes memory from its stack: no byte of a field may stay as it was."""
    result, props = net.properties(0)
    assert result == abi.SUCCESS
    assert ffi.string(props.name) == b"lo"
    assert props.pciPath == ffi.NULL
    assert props.ptrSupport == abi.PTR_HOST
    assert props.speed > 0
    assert props.port == 0
    assert props.maxComms > 0
    if net.version >= 5:
        assert props.maxRecvs == 1
        assert 0 <= props.latency < 1000
    if net.version >= 7:
        assert (props.netDeviceType, props.netDeviceVersion) == (0, 0)
    if net.version >= 8:
        assert props.regIsGlobal == 0
    if net.version >= 9:
        assert props.forceFlush == 0
        assert (props.vProps.ndevs, props.vProps.devs[0]) == (1, 0)
        assert props.maxP2pBytes == props.maxCollBytes == 1 << 30
    if net.version >= 11:
        assert props.maxMultiRequestSize == 1
    if net.version >= 12:
        assert (props.railId, props.planeId) == (abi.UNDEFINED, abi.UNDEFINED)
    assert b"\xa5\xa5" not in bytes(ffi.buffer(props)), "padding and unused entries too"


def test_properties_agree_between_versions() -> None:
    seen = set()
    for version in abi.VERSIONS:
        net = Net(version)
        assert net.init() == abi.SUCCESS
        _, props = net.properties(0)
        seen.add((ffi.string(props.name), props.guid, props.speed, props.port, props.maxComms))
        net.finalize()
    assert len(seen) == 1


def test_strings_outlive_the_context(net: Net) -> None:
    _, props = net.properties(0)
    net.finalize()
    assert net.init() == abi.SUCCESS
    assert ffi.string(props.name) == b"lo"
    assert net.properties(0)[1].name == props.name


def test_unknown_device(net: Net) -> None:
    for dev in BAD_DEVICES:
        result, props = net.properties(dev)
        assert result == abi.ARGUMENT
        assert bytes(ffi.buffer(props)) == bytes(ffi.sizeof(props[0]))
        result, handle, listen = net.listen(dev)
        assert (result, listen) == (abi.ARGUMENT, ffi.NULL)
        result, comm = net.connect(handle, dev)
        assert (result, comm) == (abi.ARGUMENT, ffi.NULL)
        warns = net.warns()
        assert len(warns) == 3
        assert all(f"device {dev};" in warn for warn in warns)


@pytest.mark.parametrize("version", [11, 12])
def test_calls_without_context(version: int) -> None:
    net = Net(version)
    assert net.init() == abi.SUCCESS
    _, handle, listen = net.listen()
    net.close_listen(listen)
    ctx, net.ctx = net.ctx, ffi.NULL
    assert net.listen()[0] == abi.INTERNAL
    assert net.connect(handle)[0] == abi.INTERNAL
    assert len(net.warns()) == 2
    net.ctx = ctx
    net.finalize()


@pytest.mark.parametrize("version", [11, 12])
def test_set_net_attr(version: int) -> None:
    net = Net(version)
    assert net.init() == abi.SUCCESS
    attr = ffi.new("char[44]", b"\xa5" * 44)
    assert int(net.table.setNetAttr(net.ctx, attr)) == abi.SUCCESS
    assert int(net.table.setNetAttr(net.ctx, ffi.NULL)) == abi.SUCCESS
    net.finalize()
