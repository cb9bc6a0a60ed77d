# SPDX-License-Identifier: Apache-2.0
"""harp-nccl with one NCCL and the namespaces of its ranks; harpctl as users call it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harplab.bench.nccl_run import NcclRun, run_nccl

RUN_TIMEOUT_S = 300


def list_sizes(least: int, most: int, factor: int) -> list[int]:
    """List the sizes that harp-nccl goes through."""
    found = []
    while least <= most:
        found.append(least)
        least *= factor
    return found


def run_harpctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run harpctl to its end."""
    return subprocess.run([sys.executable, "-m", "harpctl", *words], capture_output=True, text=True, check=False)


def measure_beside_sockets(*words: str) -> dict[str, Any]:
    """Measure HARP and NCCL's sockets by harpctl; return the document."""
    done = run_harpctl(*words, "--json")
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert [side["name"] for side in document["sides"]] == ["HARP", "Socket"]
    return document


@dataclasses.dataclass(frozen=True)
class Box:
    """harp-nccl, ready to run."""

    program: Path
    library: Path
    hosts: tuple[str, ...]

    def run(
        self,
        *options: str,
        environment: Mapping[str, str],
        ranks: int = 0,
        timeout_s: int = RUN_TIMEOUT_S,
    ) -> NcclRun:
        """Run it to its end; ranks 0 means one per namespace."""
        places = (f"--ranks={ranks or len(self.hosts)}", f"--netns={','.join(self.hosts)}")
        return run_nccl(
            self.program,
            self.library,
            [*places, *options],
            {"NCCL_SOCKET_IFNAME": "eni0", **environment},
            timeout_s,
        )
