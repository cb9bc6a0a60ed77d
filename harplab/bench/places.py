# SPDX-License-Identifier: Apache-2.0
"""Places where ranks run: the hosts of a lab, loopback, or hosts over ssh."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.errors import HarpError
from harplab.bench.cores import pinned_words
from harplab.lab.lab import Lab
from harplab.perf.counts import PacketCounts
from harplab.perf.hosts import CpuTimes, Program, RemoteHosts, with_env


def parse_proc_stat(text: str, ticks_per_s: int = 100) -> CpuTimes:
    """Read /proc/stat's first line: user nice system idle iowait irq softirq steal (guest is inside user)."""
    for line in text.splitlines():
        words = line.split()
        if words and words[0] == "cpu" and len(words) >= 8:
            user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[1:8])
            return CpuTimes((user + nice + system + irq + softirq) / ticks_per_s, (irq + softirq) / ticks_per_s)
    raise HarpError("/proc/stat has no line 'cpu' with at least seven figures.")


def _own_cpu() -> CpuTimes:
    return parse_proc_stat(Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))


class LabHosts:
    """Ranks on the hosts of a lab, one each; all ENIs are named to either transport.

    A rank keeps to one of the given cores. Without these, and with receive packet steering, it keeps to the
    core after the one that handles what arrives there.
    The ranks meet at a file, which the hosts share: no ENI is needed for it, and none carries it.
    """

    def __init__(self, lab: Lab, cores: Sequence[int] = ()) -> None:
        self._lab, self._cores = lab, cores
        self._folder = tempfile.TemporaryDirectory(prefix="harp-bench-")
        self._runs = 0

    @property
    def lab(self) -> Lab:
        """Return the lab."""
        return self._lab

    def count(self) -> int:
        return len(self._lab.hosts)

    def place(self, program: Program) -> Program:
        return program

    def env(self, rank: int) -> dict[str, str]:
        enis = ",".join(self._lab.enis[: self._lab.spec.eni_count(rank)])
        # All hosts of the lab run on one machine, whatever disciplines its clock.
        return {"HARP_IFNAME": enis, "HARP_SHARED_CLOCK": "on", "NCCL_SOCKET_IFNAME": f"={enis}"}

    def rendezvous(self) -> str:
        self._runs += 1
        return f"{self._folder.name}/meet-{self._runs}"

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        return self._lab.command(rank, [*self._pinning_words(rank), *with_env(env, argv)])

    def _pinning_words(self, rank: int) -> list[str]:
        """Keep a rank to its core, or off the one core that handles what arrives at its host."""
        steered = self._lab.spec.rps_cores
        if self._cores or steered < 2:
            return pinned_words(self._cores, rank)
        return pinned_words(range(steered), rank + 1)

    def cpu(self) -> CpuTimes:
        return _own_cpu()

    def packets(self) -> PacketCounts | None:
        return self._lab.packet_counts()


class LoopbackHosts:
    """Ranks on this machine over the loopback interface: what an ordinary user can run."""

    def __init__(self, ranks: int = 2, cores: Sequence[int] = ()) -> None:
        self._ranks, self._cores = ranks, cores

    def count(self) -> int:
        return self._ranks

    def place(self, program: Program) -> Program:
        return program

    def env(self, rank: int) -> dict[str, str]:
        del rank
        return {"HARP_IFNAME": "=lo", "HARP_SHARED_CLOCK": "on", "NCCL_SOCKET_IFNAME": "=lo"}

    def rendezvous(self) -> str:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            return f"127.0.0.1:{probe.getsockname()[1]}"

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        return [*pinned_words(self._cores, rank), *with_env(env, argv)]

    def cpu(self) -> CpuTimes:
        return _own_cpu()

    def packets(self) -> PacketCounts | None:
        return None


class SshHosts(RemoteHosts):
    """Ranks on given hosts over ssh. Rank 0's host is known to the others by its name."""

    _port_first = 21000
    _port_count = 8000

    def __init__(self, hosts: Sequence[str], ifname: str = "") -> None:
        super().__init__(hosts)
        self._ifname = ifname
        self._runs = os.getpid()

    def place(self, program: Program) -> Program:
        """Copy harp-perf, the plugin and the NCCL that it wraps to every host, each once."""
        env = dict(program.env)
        if "NCCL_LIB" in env:
            env["NCCL_LIB"] = self._copy_file(Path(env["NCCL_LIB"]))
        return Program(Path(self._copy_file(program.perf)), Path(self._copy_file(program.plugin)), env)

    def env(self, rank: int) -> dict[str, str]:
        del rank
        if not self._ifname:
            return {}
        return {"HARP_IFNAME": self._ifname, "NCCL_SOCKET_IFNAME": self._ifname}

    def rendezvous(self) -> str:
        self._runs += 1
        host = self._hosts[0].rpartition("@")[2]
        return f"{host}:{self._port_first + self._runs % self._port_count}"

    def cpu(self) -> CpuTimes:
        times = [parse_proc_stat(self._run_remote(host, "cat /proc/stat")) for host in self._folders]
        return CpuTimes(sum(t.busy_s for t in times), sum(t.interrupt_s for t in times))
