# SPDX-License-Identifier: Apache-2.0
"""Numbers of hugepages that setup plans, and refusals where they do not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.change.steps import SetControl
from harpctl.confs.conf import Conf
from harpctl.errors import HarpError
from harpctl.facts.model import Boot, BootEntry, Cpu, Eni, Facts, Memory, Node, Overrides, Pages, System
from harpctl.kargs.cmdline import HugepageArgs
from harpctl.setup.choose import Choice
from harpctl.setup.options import (
    AUTO,
    FIT,
    SetupOptions,
    parse_bytes,
    parse_hugepages,
    parse_list,
    parse_page_size,
    parse_pairs,
    read_cidr,
    read_ip,
    read_mac,
)
from harpctl.setup.page_demand import (
    BLOCKS_BYTES,
    ENGINE_BYTES,
    UDP_BYTES,
    XDP_BYTES,
    XDP_BYTES_SHARE_MIN,
    pages_used,
)
from harpctl.setup.pages import (
    check_memory,
    check_page_size,
    page_count,
    plan_now,
    replaced_args,
    spread_pages,
)
from harpctl.units import GIB, MIB

G50 = HugepageArgs(page_size=GIB, count=50)


def make_facts(memory: Memory, cpus: tuple[Cpu, ...] = ()) -> Facts:
    return Facts(system=System(), boot=Boot(), memory=memory, cpus=cpus)


def two_nodes(each: int, pages: tuple[int, int] = (0, 0)) -> Memory:
    return Memory(
        total=2 * each,
        hugepages=(Pages(size=GIB, total=sum(pages), free=0),),
        nodes=tuple(
            Node(id=n, memory=each, free=each, cpus=(), hugepages=(Pages(size=GIB, total=pages[n], free=0),))
            for n in range(2)
        ),
    )


@pytest.mark.parametrize(("gpus", "pages"), [(1, 15), (2, 20), (4, 30), (8, 50)])
def test_five_per_gpu_and_ten(gpus: int, pages: int) -> None:
    assert page_count(gpus, SetupOptions()) == pages
    assert page_count(gpus, SetupOptions(page_size=2 * MIB)) == pages * 512
    assert page_count(gpus, SetupOptions(hugepages=7)) == 7


def test_fifty_fit_where_they_are_meant_to() -> None:
    check_memory(make_facts(two_nodes(474 * GIB)), SetupOptions(), 50)


@pytest.mark.parametrize(
    ("total", "count", "fits"),
    [
        (64 * GIB, 52, 51),  # 80 %
        (16 * GIB, 13, 12),  # 4 GiB stay
        (8 * GIB, 5, 4),
    ],
)
def test_too_many_are_refused_with_the_number_that_fits(total: int, count: int, fits: int) -> None:
    with pytest.raises(HarpError) as caught:
        check_memory(make_facts(Memory(total=total)), SetupOptions(), count)
    assert f"--hugepages {fits}" in caught.value.hint
    check_memory(make_facts(Memory(total=total)), SetupOptions(), fits)


def test_each_node_counts() -> None:
    memory = Memory(
        total=110 * GIB,
        nodes=(Node(id=0, memory=100 * GIB, free=0, cpus=()), Node(id=1, memory=10 * GIB, free=0, cpus=())),
    )
    with pytest.raises(HarpError, match="on 2 nodes: 16 leave enough"):
        check_memory(make_facts(memory), SetupOptions(), 17)


def test_nothing_fits() -> None:
    with pytest.raises(HarpError) as caught:
        check_memory(make_facts(Memory(total=4 * GIB)), SetupOptions(), 15)
    assert "more memory" in caught.value.hint


def test_unknown_memory_is_not_checked_and_given_memory_is() -> None:
    check_memory(make_facts(Memory()), SetupOptions(), 5000)
    with pytest.raises(HarpError):
        check_memory(make_facts(Memory()), SetupOptions(overrides=Overrides(memory=64 * GIB)), 60)


def test_a_processor_without_1g_pages() -> None:
    host = make_facts(Memory(total=64 * GIB, has_1g=False), (Cpu(id=0, node=0, core=(0,)),))
    with pytest.raises(HarpError) as caught:
        check_page_size(host, SetupOptions())
    assert "--page-size 2M" in caught.value.hint
    check_page_size(host, SetupOptions(page_size=2 * MIB))


def test_other_hugepages_count_as_taken() -> None:
    pools = (Pages(size=2 * MIB, total=170 * 512, free=0),)
    memory = Memory(total=192 * GIB, hugepages=pools)
    with pytest.raises(HarpError, match="beside 170 GiB of other hugepages"):
        check_memory(make_facts(memory), SetupOptions(), 20)
    entry = BootEntry(title="", source="", args="hugepagesz=2M hugepages=87040")
    host = Facts(system=System(), boot=Boot(entries=(entry,)), memory=Memory(total=192 * GIB))
    with pytest.raises(HarpError, match="beside 170 GiB of other hugepages"):
        check_memory(host, SetupOptions(), 20)
    check_memory(host, SetupOptions(page_size=2 * MIB), 20 * 512)  # the pair is replaced


def test_a_bare_count_of_somebody_else_is_said() -> None:
    entry = BootEntry(title="", source="", args="hugepages=1024 hugepagesz=1G hugepages=3")
    boot = Boot(entries=(entry,), harp_args=str(G50))
    host = Facts(system=System(), boot=boot, memory=Memory())
    kept = "hugepagesz=2M hugepages=1024"
    assert replaced_args(host, G50) == [
        f"The kernel argument hugepages=1024 becomes `{kept}`: the default size changes.",
        f"The kernel argument hugepagesz=1G is replaced; setup asks for `{G50}`.",
        f"The kernel argument hugepages=3 is replaced; setup asks for `{G50}`.",
    ]


def test_pages_spread_over_nodes() -> None:
    assert spread_pages(50, 2) == [25, 25]
    assert spread_pages(15, 2) == [8, 7]
    steps = plan_now(make_facts(two_nodes(474 * GIB, (25, 3))), SetupOptions(), 50).steps
    assert [(step.path, step.value) for step in steps if isinstance(step, SetControl)] == [
        ("/sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages", "25")
    ]


def test_with_enough_pages_none_are_requested_wherever_they_are() -> None:
    assert plan_now(make_facts(two_nodes(474 * GIB, (0, 50))), SetupOptions(), 50).steps == ()


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_hugepages, "0"),
        (parse_hugepages, "-3"),
        (parse_hugepages, "many"),
        (parse_page_size, "4K"),
        (parse_bytes, "64"),
        (parse_list, "eth1,eth1"),
        (parse_list, "eth1,,eth2"),
        (parse_list, "eth1/../x"),
    ],
)
def test_bad_options_are_named(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(HarpError) as caught:
        read(text)
    assert text in caught.value.message
    assert caught.value.hint


def test_good_options() -> None:
    assert (parse_hugepages("auto"), parse_hugepages("")) == (AUTO, None)
    assert parse_bytes("948G") == 948 * GIB
    assert parse_page_size("2m") == 2 * MIB
    assert parse_pairs("--address", ["eth1=10.0.0.5/24"], "x", read_cidr) == {"eth1": "10.0.0.5/24"}
    assert parse_pairs("--gateway", ["eth1=fd00::1"], "x", read_ip) == {"eth1": "fd00::1"}
    assert parse_pairs("--mac", ["eth1=52:54:00:12:34:56"], "x", read_mac)
    with pytest.raises(HarpError, match="twice"):
        parse_pairs("--gateway", ["eth1=10.0.0.1", "eth1=10.0.0.2"], "x", read_ip)


@pytest.mark.parametrize(
    ("text", "check"),
    [
        ("eth1", read_ip),
        ("=10.0.0.1", read_ip),
        ("eth1=10.0.0.256", read_ip),
        ("eth1=10.0.0.5", read_cidr),
        ("eth1=10.0.0.5/33", read_cidr),
        ("eth1=0.0.0.0/0", read_cidr),
        ("eth1=52:54:00:12:34", read_mac),
    ],
)
def test_bad_pairs_are_named(text: str, check: Callable[[str], None]) -> None:
    with pytest.raises(HarpError) as caught:
        parse_pairs("--option", [text], "EXAMPLE", check)
    assert caught.value.message == f"--option {text}: expected INTERFACE=EXAMPLE."


# ---- what the ranks use ----


def choices_of(count: int, cores: int = 1, xdp: str = "") -> list[Choice]:
    return [
        Choice(number=n, eni=Eni(name=f"eth{n}", xdp=xdp), cores=tuple(range(n * cores, n * cores + cores)))
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("choices", "ranks", "page_size", "pages"),
    [
        (choices_of(8), 8, GIB, 8),
        (choices_of(8, cores=0), 8, GIB, 8),  # engines inside the ranks' threads
        (choices_of(8, cores=2), 8, GIB, 16),
        (choices_of(1), 1, 2 * MIB, 8),  # 16 MiB
        (choices_of(8), 8, 2 * MIB, 8 * 12),  # 8 x 2 + 8 MiB
        (choices_of(8, xdp="zero-copy"), 8, 2 * MIB, 8 * 44),  # 8 x (2 + 64 / 8) + 8 MiB
        (choices_of(2), 8, GIB, 8),
    ],
)
def test_pages_that_fit(choices: list[Choice], ranks: int, page_size: int, pages: int) -> None:
    assert pages_used(choices, {}, ranks, page_size) == pages


def test_pages_that_fit_the_conf_files() -> None:
    choices = choices_of(2, xdp="zero-copy")
    confs = {eni: Conf(interface=eni, driver="udp") for eni in ("eth0", "eth1")}
    assert pages_used(choices, confs, 2, 2 * MIB) == 2 * 8
    confs = {eni: Conf(interface=eni, bytes=512 * MIB, driver="udp") for eni in ("eth0", "eth1")}
    assert pages_used(choices, confs, 2, 2 * MIB) == 2 * 256
    assert parse_hugepages("fit") == FIT


def test_the_figures_are_the_plugins(root: Path) -> None:
    source = root / "plugin" / "src"
    engine, modes = (source / "engine/engine.h").read_text(), (source / "io/xdp/modes.c").read_text()
    for text, name, value in (
        (engine, "HARP_ENGINE_MEMORY_BYTES", ENGINE_BYTES),
        (engine, "HARP_ENGINE_BLOCKS_BYTES", BLOCKS_BYTES),
        (modes, " FRAMES_BYTES", XDP_BYTES),
        (modes, "FRAMES_BYTES_SHARE_MIN", XDP_BYTES_SHARE_MIN),
    ):
        assert f"{name} = {value // MIB} << 20," in text, name
    udp = (source / "io/udp.c").read_text()
    assert "FRAME_BYTES = 65536," in udp
    assert "TX_FRAMES = 2," in udp
    assert "GRO_SLOTS = 16," in udp
    assert UDP_BYTES >= 18 * 65536
