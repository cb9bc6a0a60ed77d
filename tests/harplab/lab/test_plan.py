# SPDX-License-Identifier: Apache-2.0
"""The commands that a lab would run, without running them; and what it does around them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from harpctl.errors import ExitCode, HarpError
from harplab.lab.caps import FLOW_CLASSES
from harplab.lab.commands import Command
from harplab.lab.lab import _congestion_control, raise_backlog, run_command, stale_namespaces
from harplab.lab.plan import plan_build, plan_destroy, tools_needed
from harplab.lab.spec import LabSpec, Offload, Subnets


def plan_lines(spec: LabSpec) -> list[str]:
    return [str(command) for command in plan_build(spec, "p-")]


def test_two_hosts_are_one_veth_pair_per_eni() -> None:
    plan = plan_lines(LabSpec(enis=2))
    assert plan[:2] == ["ip netns add p-h0", "ip netns add p-h1"]
    for eni in (0, 1):
        queues = "numrxqueues 1 numtxqueues 1"
        peer = f"type veth peer name eni{eni} {queues} netns p-h1"
        assert f"ip -netns p-h0 link add eni{eni} index {1000 + eni} {queues} {peer}" in plan
        for host in (0, 1):
            assert f"ip -netns p-h{host} address add 10.77.{eni}.{host + 1}/24 dev eni{eni}" in plan
    assert not any("bridge" in line or "tc" in line or "nft" in line or "ethtool" in line for line in plan)


def test_more_hosts_meet_in_a_bridge_per_eni() -> None:
    plan = plan_lines(LabSpec(hosts=3, enis=2, mtu_bytes=9000))
    assert "ip netns add p-fabric" in plan
    for eni in (0, 1):
        assert f"ip -netns p-fabric link add br{eni} type bridge" in plan
        for host in range(3):
            assert f"ip -netns p-fabric link set h{host}eni{eni} mtu 9000 master br{eni} up" in plan
            assert f"ip -netns p-h{host} link set eni{eni} mtu 9000 up" in plan


def test_offloads() -> None:
    def words(offload: Offload) -> list[str]:
        return [line.split("eni0 ")[1] for line in plan_lines(LabSpec(offload=offload)) if "ethtool" in line]

    assert words(Offload.STOCK) == []
    assert words(Offload.SEGMENT) == ["tso off gso off tx-udp-segmentation off gro on"] * 2
    assert words(Offload.OFF) == ["tso off gso off tx-udp-segmentation off gro off"] * 2


def test_cap_is_on_every_eni_and_holds_a_superframe() -> None:
    plan = [line for line in plan_lines(LabSpec(enis=4, cap_mbps=1000)) if " tbf " in line]
    assert len(plan) == 8
    assert all("rate 1000mbit burst 131072 latency 10ms" in line for line in plan)
    (fast, *_) = (line for line in plan_lines(LabSpec(cap_mbps=25_000)) if " tbf " in line)
    assert "burst 3125000 " in fast


def test_short_queues_and_policers_have_small_buckets() -> None:
    def words(**changes: float) -> set[str]:
        spec = LabSpec(**changes)  # type: ignore[arg-type]
        return {line.split(" tbf ")[1] for line in plan_lines(spec) if " tbf " in line}

    assert words(cap_mbps=2000, queue_us=64) == {"rate 2000mbit burst 8000 limit 16000"}
    assert words(cap_mbps=100, queue_us=200) == {"rate 100mbit burst 3028 limit 2500"}
    assert words(cap_mbps=1000, police_burst_kib=8, mtu_bytes=3498) == {"rate 1000mbit burst 8192 limit 4024"}


def test_flow_cap_has_a_class_per_hash_of_the_5_tuple() -> None:
    plan = plan_build(LabSpec(flow_cap_mbps=500), "p-")
    (batch, *_) = (command for command in plan if "-batch" in command.argv)
    classes = [line for line in batch.stdin.splitlines() if line.startswith("class add")]
    assert len(classes) == len(set(classes)) == FLOW_CLASSES
    assert all("htb rate 500mbit" in line for line in classes)
    (rules, *_) = (command for command in plan if "nft" in command.argv)
    for family in ("ip", "ip6"):
        key = f"{family} saddr . {family} daddr . meta l4proto . th sport . th dport"
        assert f"jhash {key} mod {FLOW_CLASSES} " in rules.stdin
    assert f"offset {0x10001}" in rules.stdin


def test_each_host_has_its_core_for_what_arrives() -> None:
    def masks(spec: LabSpec) -> list[tuple[str, str]]:
        plan = plan_build(spec, "p-")
        return [(command.argv[-1], command.stdin.strip()) for command in plan if "tee" in command.argv]

    assert masks(LabSpec()) == []
    files = [f"/sys/class/net/eni0/queues/rx-{queue}/rps_cpus" for queue in (0, 1)]
    two = LabSpec(queues=2, rps_cores=2)
    assert masks(two) == [(files[0], "1"), (files[1], "1"), (files[0], "2"), (files[1], "2")]
    assert [mask for _, mask in masks(LabSpec(hosts=5, rps_cores=4))] == ["1", "2", "4", "8", "1"]
    assert "RPS over 2 cores" in two.describe()


def test_the_backlog_is_raised_and_never_lowered(tmp_path: Path) -> None:
    file = tmp_path / "netdev_max_backlog"
    file.write_text("1000\n")
    assert raise_backlog(10_000, file) == "1000"
    assert file.read_text() == "10000\n"
    assert raise_backlog(5000, file) == ""
    assert file.read_text() == "10000\n"


def test_loss_spares_neighbour_discovery() -> None:
    plan = plan_build(LabSpec(enis=2, loss_share=0.001), "p-")
    rules = [command.stdin for command in plan if "nft" in command.argv]
    assert len(rules) == 4
    for number, text in enumerate(rules):
        assert f'type filter hook ingress device "eni{number % 2}"' in text
        assert "meta l4proto { tcp, udp } numgen random mod 1000000 < 1000 counter drop" in text


def test_behind_a_switch_loss_is_at_its_port() -> None:
    plan = plan_build(LabSpec(switch=True, loss_share=0.001), "p-")
    rules = [command for command in plan if "nft" in command.argv]
    assert [command.argv[3] for command in rules] == ["p-fabric"] * 2
    assert 'hook egress device "h1eni0"' in rules[1].stdin


def test_caps_behind_a_switch_are_at_both_ends_of_the_link() -> None:
    plan = [line for line in plan_lines(LabSpec(enis=2, cap_mbps=(100, 400), switch=True)) if " tbf " in line]
    for host in (0, 1):
        for eni, rate in ((0, "100mbit"), (1, "400mbit")):
            ends = (
                f"-netns p-h{host} qdisc add dev eni{eni} ",
                f"-netns p-fabric qdisc add dev h{host}eni{eni} ",
            )
            for end in ends:
                assert [line for line in plan if end in line and f"rate {rate}" in line]
    assert len(plan) == 8


def test_flows_share_the_cap_of_their_eni() -> None:
    plan = plan_build(LabSpec(flow_cap_mbps=500, cap_mbps=2000), "p-")
    (batch, *_) = (command for command in plan if "-batch" in command.argv)
    assert "parent 1: classid 1:fff htb rate 2000mbit" in batch.stdin
    assert batch.stdin.count("parent 1:fff classid") == FLOW_CLASSES
    assert batch.stdin.count("ceil 500mbit") == FLOW_CLASSES


def test_hosts_may_have_different_numbers_of_enis() -> None:
    plan = plan_lines(LabSpec(enis=3, host_enis=(1, 3)))
    assert [line for line in plan if "-netns p-h1 link add eni2 " in line]
    assert not [line for line in plan if "-netns p-h0 link add eni1 " in line]


def test_one_subnet_takes_policy_routing() -> None:
    plan = plan_build(LabSpec(enis=2, subnets=Subnets.ONE), "p-")
    text = [str(command) for command in plan]
    assert "ip -netns p-h1 rule add from 10.77.1.2 table 7701 priority 7701" in text
    assert "ip -netns p-h1 address add 10.77.1.2/16 dev eni1" in text
    assert sum("type bridge" in line for line in text) == 1
    assert any("route replace 10.77.0.0/16 dev eni1 scope link" in command.stdin for command in plan)


def test_everything_made_is_destroyed() -> None:
    spec = LabSpec(hosts=4)
    made = {command.argv[-1] for command in plan_build(spec, "p-") if command.argv[:3] == ("ip", "netns", "add")}
    gone = {command.argv[-1] for command in plan_destroy(spec, "p-")}
    assert made == gone
    assert len(made) == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hosts": 1}, "2 to 64 hosts, not 1"),
        ({"enis": 17}, "1 to 16 ENIs, not 17"),
        ({"mtu_bytes": 100}, "576 to 65535 bytes, not 100"),
        ({"loss_share": 1.0}, "not 100 %"),
        ({"loss_share": -0.1}, "not -10 %"),
        ({"cap_mbps": 0.5}, "at least 1 Mbit/s"),
        ({"rps_cores": 33}, "1 to 32 cores, not 33"),
        ({"flow_cap_mbps": 0.0}, "at least 1 Mbit/s"),
        ({"enis": 3, "cap_mbps": (10, 20)}, "2 caps do not fit 3 ENIs"),
        ({"enis": 2, "host_enis": (2, 2, 2)}, "3 numbers of ENIs do not fit 2 hosts"),
        ({"enis": 1, "host_enis": (2, 1)}, "the most ENIs of a host are 2, not 1"),
        ({"queue_ms": 0}, "1 to 1000 ms"),
        ({"queue_us": 64}, "--queue-us takes a cap of the ENIs"),
        ({"queue_us": 19, "cap_mbps": 5000}, "holds 20 to 1000000 us, not 19"),
        ({"queue_us": 64, "cap_mbps": 100}, "at 100 Mbit/s a queue for packets of 1514 bytes holds 121 to"),
        ({"queue_us": 64, "cap_mbps": (2000, 100), "enis": 2}, "at 100 Mbit/s"),
        ({"queue_us": 64, "cap_mbps": 2000, "flow_cap_mbps": 500}, "--queue-us is for the cap of an ENI"),
        ({"queue_us": 64, "cap_mbps": 2000, "police_burst_kib": 64}, "or polices"),
        ({"police_burst_kib": 64}, "--police takes a cap of the ENIs"),
        ({"police_burst_kib": 64, "cap_mbps": 9, "flow_cap_mbps": 1}, "--police is for the cap of an ENI"),
        ({"police_burst_kib": 2, "cap_mbps": 1000}, "is 3.0 to 1048576 KiB, not 2"),
        ({"tcp_buffer_kib": 3}, "a TCP buffer has 4 to 1048576 KiB, not 3"),
    ],
)
def test_a_spec_out_of_range_is_named(change: dict[str, float], message: str) -> None:
    with pytest.raises(HarpError, match=message) as caught:
        plan_build(dataclasses.replace(LabSpec(), **change), "p-")  # type: ignore[arg-type]
    assert caught.value.exit_code is ExitCode.USAGE


def test_description_contains_what_is_lost() -> None:
    assert "cap 2000 Mbit/s per ENI, queues of 64 us," in LabSpec(cap_mbps=2000, queue_us=64).describe()
    assert "policed with a burst of 8 KiB" in LabSpec(cap_mbps=2000, police_burst_kib=8).describe()
    assert "ranks without privileges" in LabSpec(unprivileged=True).describe()
    assert "loss 1 % of superframes" in LabSpec(loss_share=0.01).describe()
    assert "loss 0.1 % of packets" in LabSpec(loss_share=0.001, offload=Offload.OFF).describe()


def test_tools() -> None:
    assert tools_needed(LabSpec()) == ["ip"]
    assert tools_needed(LabSpec(unprivileged=True)) == ["ip", "setpriv"]
    assert tools_needed(LabSpec(loss_share=0.1, cap_mbps=5, offload=Offload.OFF)) == [
        "ip",
        "tc",
        "nft",
        "ethtool",
    ]


def test_tcp_buffers() -> None:
    spec = LabSpec(tcp_buffer_kib=8)
    lines = [str(command) for command in plan_build(spec, "x-") if "sysctl" in str(command)]
    assert len(lines) == spec.hosts
    assert "net.ipv4.tcp_rmem=4096 8192 8192" in lines[0]
    assert "net.ipv4.tcp_wmem=4096 8192 8192" in lines[1]
    assert "sysctl" in tools_needed(spec)
    assert spec.describe().endswith("cubic, TCP buffers of 8 KiB")
    assert not [command for command in plan_build(LabSpec(), "x-") if "sysctl" in str(command)]


def test_big_tcp_of_every_link() -> None:
    def lines(spec: LabSpec) -> list[str]:
        return [str(command) for command in plan_build(spec, "x-") if "big_tcp" in str(command)]

    assert lines(LabSpec(hosts=3, enis=2)) == []
    found = lines(LabSpec(hosts=2, enis=2, host_enis=(2, 1), big_tcp=True))
    assert [(line.split()[3], line.split("big_tcp ")[1]) for line in found] == [
        ("x-h0", "eni0 eni1"),
        ("x-h1", "eni0"),
        ("x-fabric", "h0eni0 h0eni1 h1eni0"),
    ]
    assert len(lines(LabSpec(big_tcp=True))) == 2
    assert LabSpec(big_tcp=True).describe().endswith("cubic, BIG TCP")


def test_stale_namespaces_are_those_of_dead_labs() -> None:
    names = ["harp1-0-h0", "harp2-0-h1", "harp2-11-fabric", "harp3-h0", "other", "harp2-0-h1x", "xharp2-0-h1"]
    assert stale_namespaces(names, lambda pid: pid == 1) == ["harp2-0-h1", "harp2-11-fabric"]


def test_congestion_control_is_put_back(tmp_path: Path) -> None:
    file = tmp_path / "tcp_congestion_control"
    file.write_text("bbr\n")

    def build() -> None:
        with _congestion_control("cubic", file):
            assert file.read_text() == "cubic"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build()
    assert file.read_text() == "bbr"


def test_failing_step_shows_the_output_of_the_tool() -> None:
    with pytest.raises(HarpError, match=r"`sh -c 'echo no such veth >&2; exit 2'`: no such veth"):
        run_command(Command(("sh", "-c", "echo no such veth >&2; exit 2")))
    with pytest.raises(HarpError, match="needs the program 'harp-no-such-tool'") as caught:
        run_command(Command(("harp-no-such-tool",)))
    assert caught.value.exit_code is ExitCode.MISSING
