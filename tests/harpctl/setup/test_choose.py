# SPDX-License-Identifier: Apache-2.0
"""The chosen ENIs, GPUs and cores: on small machines made of facts."""

from __future__ import annotations

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from harpctl.errors import HarpError
from harpctl.facts.model import Boot, Cpu, Eni, Facts, Gpu, Memory, Overrides, System
from harpctl.setup.choose import assign_cores, choose_enis, find_candidates, make_choices, pair_gpus
from harpctl.setup.options import SetupOptions, parse_list, with_names


def make_eni(
    name: str, node: int = 0, *, path: tuple[str, ...] = (), kind: str = "", default: bool = False
) -> Eni:
    return Eni(name=name, node=node, path=path, kind=kind, is_default_route=default, mac="52:54:00:00:00:01")


def make_gpu(index: int, node: int = 0, path: tuple[str, ...] = ()) -> Gpu:
    return Gpu(index=index, pci=f"0000:{index:02x}:00.0", vendor="10de", device="20b0", node=node, path=path)


def make_facts(gpus: int, enis: tuple[Eni, ...], cpus: tuple[Cpu, ...] = ()) -> Facts:
    found = tuple(make_gpu(index, index * 2 // max(gpus, 1)) for index in range(gpus))
    return Facts(system=System(), boot=Boot(), memory=Memory(), gpus=found, enis=enis, cpus=cpus)


def names_of(enis: list[Eni]) -> list[str]:
    return [found.name for found in enis]


def test_a_link_local_interface_is_no_candidate() -> None:
    bmc, eth1 = Eni(name="bmc0", addresses=("169.254.3.1/24",)), Eni(name="eth1", addresses=("10.0.1.11/24",))
    found = Facts(system=System(), boot=Boot(), memory=Memory(), enis=(bmc, eth1, Eni(name="eth2")))
    assert [eni.name for eni in find_candidates(found)] == ["eth1", "eth2"]


def test_one_eni_per_gpu_never_the_primary() -> None:
    enis = (make_eni("eth0", default=True), *(make_eni(f"eth{n}") for n in range(1, 9)))
    assert names_of(choose_enis(make_facts(8, enis), SetupOptions())) == [f"eth{n}" for n in range(1, 9)]


def test_ten_comes_after_two() -> None:
    enis = tuple(make_eni(f"eth{n}") for n in (10, 2, 1))
    assert names_of(choose_enis(make_facts(3, enis), SetupOptions())) == ["eth1", "eth2", "eth10"]


def test_fewer_enis_than_gpus_is_an_error_with_a_remedy() -> None:
    enis = (make_eni("eth0", default=True), make_eni("eth1"), make_eni("eth2"))
    with pytest.raises(HarpError) as caught:
        choose_enis(make_facts(4, enis), SetupOptions())
    assert "4 GPUs need 4 secondary ENIs, one each; this host has 2 (eth1,eth2)" in caught.value.message
    assert "eth0 carries the default route" in caught.value.message
    assert "Bind 2 more" in caught.value.hint
    assert "--enis eth1,eth2" in caught.value.hint


def test_fewer_may_be_named() -> None:
    enis = (make_eni("eth1"), make_eni("eth2"))
    assert names_of(choose_enis(make_facts(8, enis), SetupOptions(enis=("eth2",)))) == ["eth2"]


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (Eni(name="eth0", is_default_route=True), "carries the default route"),
        (Eni(name="eth0", carries_ssh=True), "carries the ssh session"),
    ],
)
def test_an_eni_that_holds_the_host_is_refused_without_force(found: Eni, message: str) -> None:
    facts = make_facts(1, (found,))
    with pytest.raises(HarpError) as caught:
        choose_enis(facts, SetupOptions(enis=("eth0",)))
    assert message in caught.value.message
    assert "--force" in caught.value.hint
    assert names_of(choose_enis(facts, SetupOptions(enis=("eth0",), force=True))) == ["eth0"]


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(HarpError, match="no interface eth7; this host has: eth1"):
        choose_enis(make_facts(1, (make_eni("eth1"),)), SetupOptions(enis=("eth7",)))


def test_no_gpu_is_an_error_without_an_override() -> None:
    facts = make_facts(0, (make_eni("eth1"), make_eni("eth2")))
    with pytest.raises(HarpError, match="No GPU was found"):
        choose_enis(facts, SetupOptions())
    assert names_of(choose_enis(facts, SetupOptions(overrides=Overrides(gpus=2)))) == ["eth1", "eth2"]
    with pytest.raises(HarpError, match="expected 1 to"):
        choose_enis(facts, SetupOptions(overrides=Overrides(gpus=0)))


def test_bridges_and_veths_are_not_taken_by_default() -> None:
    enis = (make_eni("docker0", kind="bridge"), make_eni("eth1"))
    assert names_of(choose_enis(make_facts(1, enis), SetupOptions())) == ["eth1"]


def test_with_more_enis_than_gpus_the_nearest_are_taken() -> None:
    near, far = ("pci0000:80", "0000:80:01.0"), ("pci0000:00", "0000:00:01.0")
    facts = make_facts(0, (make_eni("eth1", 0, path=far), make_eni("eth2", 1, path=near)))
    facts = Facts(
        system=facts.system,
        boot=facts.boot,
        memory=facts.memory,
        enis=facts.enis,
        gpus=(make_gpu(0, 1, near),),
    )
    assert names_of(choose_enis(facts, SetupOptions())) == ["eth2"]


def test_pairs_are_the_nearest_ones() -> None:
    left, right = ("pci0000:00", "0000:00:01.0"), ("pci0000:80", "0000:80:01.0")
    gpus = [make_gpu(0, 0, left), make_gpu(1, 1, right)]
    enis = [make_eni("eth1", 1, path=right), make_eni("eth2", 0, path=left)]
    assert [(one.index, other.name) for one, other in pair_gpus(gpus, enis)] == [(0, "eth2"), (1, "eth1")]


def make_cpus(cores: int, node: int, first: int, offset: int) -> tuple[Cpu, ...]:
    pairs = [(first + n, first + n + offset) for n in range(cores)]
    return tuple(Cpu(id=one, node=node, core=both) for both in pairs for one in both)


def test_cores_are_local_and_spare_the_first_and_the_second_threads() -> None:
    cpus = make_cpus(24, 0, 0, 48) + make_cpus(24, 1, 24, 48)
    enis = [make_eni(f"eth{n}", node=n // 4) for n in range(8)]
    taken = assign_cores(cpus, enis)
    assert taken == [(1,), (2,), (3,), (4,), (25,), (26,), (27,), (28,)]


def test_a_small_host_gives_no_cores() -> None:
    assert assign_cores((Cpu(id=0, node=0, core=(0,)),), [make_eni("eth1")]) == [()]
    assert assign_cores((), [make_eni("eth1")]) == [()]


@examples(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2)), max_size=40),
    st.lists(st.integers(-1, 4), max_size=16),
)
def test_no_core_serves_two(shape: list[tuple[int, int]], nodes: list[int]) -> None:
    cpus: list[Cpu] = []
    for node, threads in shape:
        core = tuple(range(len(cpus), len(cpus) + threads))
        cpus.extend(Cpu(id=one, node=node, core=core) for one in core)
    taken = [
        core for cores in assign_cores(cpus, [make_eni(f"e{i}", n) for i, n in enumerate(nodes)]) for core in cores
    ]
    assert len(taken) == len(set(taken))
    for node in range(4):
        of_node = {cpu.core for cpu in cpus if cpu.node == node}
        used = {cpu.core for cpu in cpus if cpu.node == node and cpu.id in taken}
        assert len(used) <= len(of_node) // 2


def test_a_choice_names_gpu_and_cores() -> None:
    cpus = make_cpus(8, 0, 0, 8)
    made = make_choices(make_facts(2, (make_eni("eth1"), make_eni("eth2")), cpus), SetupOptions())
    assert [(one.number, one.eni.name, one.cores) for one in made] == [
        (0, "eth1", (1,)),
        (1, "eth2", (2,)),
    ]
    assert [one.gpu.index for one in made if one.gpu] == [0, 1]


def test_an_alternative_name_is_the_kernels() -> None:
    eth1 = Eni(name="eth1", altnames=("enp7s0", "enp7s0np0"), addresses=("10.0.1.11/24",))
    found = make_facts(0, (eth1, make_eni("eth2")))
    given = Overrides(addresses={"enp7s0": "10.0.1.5/24"}, gateways={"enp7s0np0": "10.0.1.1"})
    options = with_names(SetupOptions(enis=("enp7s0np0", "eth2"), overrides=given), found)
    assert options.enis == ("eth1", "eth2")
    assert (options.overrides.addresses, options.overrides.gateways) == (
        {"eth1": "10.0.1.5/24"},
        {"eth1": "10.0.1.1"},
    )
    assert names_of(choose_enis(found, options)) == ["eth1", "eth2"]
    twice = Overrides(addresses={"eth1": "10.0.1.5/24", "enp7s0": "10.0.1.6/24"})
    for wrong in (SetupOptions(enis=("eth1", "enp7s0")), SetupOptions(overrides=twice)):
        with pytest.raises(HarpError, match="eth1 and enp7s0 are one interface"):
            with_names(wrong, found)
    assert parse_list("enp7s0np0-of-the-second-card") == ("enp7s0np0-of-the-second-card",)
