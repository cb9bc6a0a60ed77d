# SPDX-License-Identifier: Apache-2.0
"""The interface of all places where ranks run, and what places over ssh share.

Hosts wrap a rank's command, name the interfaces to use, and read the machine time.
Machine time comes from /proc/stat, because the work that a packet causes in softirq belongs to no process.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol, TypeVar

from harpctl.errors import HarpError
from harpctl.ssh import remedy_of, run_command, ssh_words
from harplab.perf.counts import PacketCounts

SSH_TIMEOUT_S = 600  # a copied libnccl.so is 350 MB
FOLDER = "@folder@"  # stands for a host's own temporary folder in a path


@dataclasses.dataclass(frozen=True)
class Program:
    """harp-perf and the plugin it loads, with the environment of the plugin."""

    perf: Path
    plugin: Path
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class CpuTimes:
    """Machine time since boot in seconds: all but idle and iowait, and the part spent in interrupts."""

    busy_s: float
    interrupt_s: float

    def since(self, before: CpuTimes) -> CpuTimes:
        """Return the time between two readings."""
        return CpuTimes(self.busy_s - before.busy_s, self.interrupt_s - before.interrupt_s)


class Hosts(Protocol):
    """Hosts on which ranks run."""

    def count(self) -> int:
        """Return how many ranks there are."""

    def place(self, program: Program) -> Program:
        """Make the program's files available to all ranks; return their paths there."""

    def env(self, rank: int) -> dict[str, str]:
        """Return the variables by which the transports choose their interfaces."""

    def rendezvous(self) -> str:
        """Return a fresh HOST:PORT or file that rank 0 can bind and the others can reach."""

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        """Wrap a rank's command so that it runs in its place with these variables."""

    def cpu(self) -> CpuTimes:
        """Read the machine time of all machines together."""

    def packets(self) -> PacketCounts | None:
        """Read what the network was given and has dropped; None where nobody counts."""


def with_env(env: Mapping[str, str], argv: Sequence[str]) -> list[str]:
    """Return a command that runs another with these variables."""
    return ["env", *(f"{name}={value}" for name, value in sorted(env.items())), *argv]


H = TypeVar("H", bound="RemoteHosts")


class RemoteHosts:
    """Commands and files of ranks on hosts over ssh; a context manager, for what is copied."""

    def __init__(self, hosts: Sequence[str]) -> None:
        self._hosts = list(hosts)
        self._folders: dict[str, str] = {}
        self._placed: dict[Path, str] = {}

    def __enter__(self: H) -> H:
        try:
            for host in dict.fromkeys(self._hosts):
                self._folders[host] = self._run_remote(host, "mktemp -d /tmp/harp-bench.XXXXXX").strip()
        except BaseException:
            self._remove_folders()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._remove_folders()

    def count(self) -> int:
        return len(self._hosts)

    def command(self, rank: int, argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
        host = self._hosts[rank]
        words = [word.replace(FOLDER, self._folders.get(host, FOLDER)) for word in with_env(env, argv)]
        return ssh_words(host, shlex.join(words))

    def packets(self) -> PacketCounts | None:
        return None

    def _copy_file(self, file: Path) -> str:
        """Copy a file to each host's folder; return its path there with FOLDER for the folder."""
        if file not in self._placed:
            name = f"{len(self._placed)}-{file.name}"
            for host, folder in self._folders.items():
                target = shlex.quote(f"{folder}/{name}")
                with file.open("rb") as source:
                    self._run_remote(host, f"cat > {target} && chmod 755 {target}", source)
            self._placed[file] = f"{FOLDER}/{name}"
        return self._placed[file]

    def _run_remote(self, host: str, command: str, stdin: IO[bytes] | None = None) -> str:
        done = asyncio.run(run_command(host, command, SSH_TIMEOUT_S, stdin or subprocess.DEVNULL))
        if done.code != 0:
            late = f"it did not end within {SSH_TIMEOUT_S} s"
            reason = late if done.code is None else done.err.strip() or f"exit code {done.code}"
            raise HarpError(f"`{command}` on {host} failed: {reason}", remedy_of(host, done.err))
        return done.out

    def _remove_folders(self) -> None:
        for host, folder in self._folders.items():
            with contextlib.suppress(HarpError):
                self._run_remote(host, f"rm -rf {shlex.quote(folder)}")
        self._folders.clear()
