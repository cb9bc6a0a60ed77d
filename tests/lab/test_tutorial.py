# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/tutorial/two-hosts.md, as they stand there, on two hosts with two interfaces."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = ROOT / "docs" / "tutorial" / "two-hosts.md"
CAP_MBPS = 100  # so low that a busy machine reaches it
RESULT = re.compile(r"^ +1048576 +\d+ +[\d.]+ +([\d.]+) +[\d.]+ +0$", re.MULTILINE)


def blocks_of(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TUTORIAL.read_text("utf-8"), re.DOTALL | re.MULTILINE)


def test_the_job_of_the_tutorial(make_lab: Callable[[LabSpec], Lab], plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2, cap_mbps=CAP_MBPS))
    assert plugin_file == ROOT / "plugin" / "build" / "libnccl-net.so"
    (text,) = [block for block in blocks_of("sh") if "--rendezvous" in block]
    words = shlex.split(text.replace("\\\n", " ").replace("10.77.0.1", lab.address(0)))
    assert words[:3] == ["python3", "-m", "harp_net.run"]
    words[0] = sys.executable
    at = words.index("--rank") + 1
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("HARP_", "NCCL_"))}
    jobs = [
        subprocess.Popen(
            lab.command(host, [*words[:at], str(host), *words[at + 1 :]]),
            cwd=ROOT,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for host in range(2)
    ]
    said = [job.communicate(timeout=120)[0] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], said
    shown = [line.split(" (")[0] for block in blocks_of("text") for line in block.splitlines()]
    choice = next(line for line in shown if "neither conf files nor HARP_IFNAME" in line)
    assert all(choice in output for output in said), said
    assert "# wrong: 0 OK" in said[0]
    result = RESULT.search(said[0])
    assert result, said[0]
    assert float(result[1]) > 1.2 * CAP_MBPS / 1000  # more than one of the interfaces carries
    for output in said:
        assert re.search(r"^harp-run: 1 process of this host used HARP: .* over eni0, eni1$", output, re.MULTILINE)
