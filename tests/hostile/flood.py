# SPDX-License-Identifier: Apache-2.0
"""Runs the attacks of flood.c, and watches what they do to a process."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from tests.conftest import PLUGIN_DIR, ROOT

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
POLL_S = 0.05
SLACK_S = 30.0


def compile_flood(out: Path) -> Path:
    """Compile flood.c."""
    source = ROOT / "tests" / "hostile" / "flood.c"
    argv = ["cc", *FLAGS, f"-I{PLUGIN_DIR / 'src'}", "-o", str(out), str(source)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return out


def open_ports(lab: Lab, host: int, protocol: str) -> list[str]:
    """List what listens on a host; nothing but the job does."""
    shown = run_command(run_inside(lab.hosts[host], "ss", "-H", "-n", "-l", f"--{protocol}"))
    return sorted({line.split()[3].rpartition(":")[2] for line in shown.splitlines()})


@contextmanager
def flood_from(program: Path, namespace: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Attack from a namespace; the attack is over at the end."""
    argv = ["ip", "netns", "exec", namespace, str(program), *words]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            if child.poll() is None:
                child.kill()


def counts_of(attack: subprocess.Popen[str], seconds: float) -> dict[str, int]:
    """Wait for an attack's end; return what it did."""
    output, _ = attack.communicate(timeout=seconds + SLACK_S)
    assert attack.returncode == 0
    counts: dict[str, int] = json.loads(output)
    return counts


class Usage:
    """The most files and memory that a process has had since this was made."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.files, self.rss_kib = 0, 0
        self.take_sample()
        self.files_before, self.rss_kib_before = self.files, self.rss_kib

    def take_sample(self) -> None:
        """Raise the figures to those of this moment."""
        self.files = max(self.files, len(list(Path(f"/proc/{self._pid}/fd").iterdir())))
        status = Path(f"/proc/{self._pid}/status").read_text()
        (rss,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))
        self.rss_kib = max(self.rss_kib, int(rss))

    def grown(self) -> tuple[int, int]:
        """Return by how many files and KiB the process was larger than at the beginning."""
        return self.files - self.files_before, self.rss_kib - self.rss_kib_before

    def watch(self, seconds: float) -> None:
        """Take samples for a while."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.take_sample()
            time.sleep(POLL_S)


def received_by(lab: Lab, host: int, ifname: str) -> int:
    """Read how many bytes an interface of a host has received."""
    path = f"/sys/class/net/{ifname}/statistics/rx_bytes"
    return int(run_command(run_inside(lab.hosts[host], "cat", path)))


def add_addresses(lab: Lab, host: int, addresses: Sequence[str], ifname: str) -> None:
    """Give a host more addresses, each with its own ports to connect from."""
    for address in addresses:
        run_command(run_inside(lab.hosts[host], "ip", "addr", "add", f"{address}/24", "dev", ifname))
