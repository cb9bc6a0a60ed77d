# SPDX-License-Identifier: Apache-2.0
"""The recipes of docs/how-to/recipes without a GPU: real NCCL is started and used as each of them says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from harplab.bench.nccl_run import NcclRun
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.cables import join_pairs
from tests.nccl import box
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import check_run
from tests.nccl.test_communicators import check_run as check_plan

pytestmark = [pytest.mark.nccl, pytest.mark.lab]

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1 << 20
MIB = 1 << 20
KV_CHANNELS = "8"  # as vLLM's P2pNcclConnector sets them
PEERS = re.compile(r"NET/HARP: .*connected (?:to|from) \S+ \(([0-9.]+)\)")


def clean_environment() -> dict[str, str]:
    """Return the environment of a job that sets nothing of NCCL or HARP."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))}


@pytest.fixture
def by_path(plugin_file: Path) -> dict[str, str]:
    """`export NCCL_NET_PLUGIN=$(python -m harp_net)`, and nothing else."""
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "harp_net"]
    path = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    assert path == str(plugin_file)
    return {"NCCL_NET_PLUGIN": path}


def run_recipe(
    ready: box.Box, environment: Mapping[str, str], *steps: str, sizes: str, cycles: int = 1, ranks: int = 4
) -> NcclRun:
    """Run a plan (`harp-nccl --help`), in which every element is checked."""
    return ready.run(
        *(f"--sizes={sizes}", "--op=allreduce", f"--plan={'; '.join(steps)}", f"--cycles={cycles}"),
        environment=environment,
        ranks=ranks,
    )


def test_pytorch_by_path(make_box: MakeBox, by_path: dict[str, str]) -> None:
    """pytorch.md: the one variable; HARP chooses the interface."""
    run = make_box(2).run(
        *("--op=allreduce", "--check", "--iters=2", f"--max={MOST_BYTES}", "--factor=8"), environment=by_path
    )
    check_run(run, box.list_sizes(8, MOST_BYTES, 8))


def test_pytorch_by_harp_run(make_box: MakeBox) -> None:
    """pytorch.md: harp-run around the launcher."""
    ready = make_box(2)
    words = ["--lib", str(ready.library), "--netns", ",".join(ready.hosts)]
    words += ["--op", "allreduce", "--check", "--iters", "2", "--sizes", "64K"]
    environment = {**clean_environment(), "PYTHONPATH": str(ROOT), "NCCL_DEBUG": "INFO"}
    done = subprocess.run(
        [sys.executable, "-m", "harp_net.run", str(ready.program), *words],
        env={**environment, "NCCL_SOCKET_IFNAME": "eni0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=box.RUN_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    assert "NCCL INFO Using network HARP" in done.stdout, done.stdout
    said = r"^harp-run: 2 processes of this host used HARP: \S+ [kM]B sent, .*, over eni0$"
    assert re.search(said, done.stderr, re.MULTILINE), done.stderr


@pytest.mark.parametrize("named", [True, False])
def test_image_with_another_plugin(make_box: MakeBox, plugin_file: Path, tmp_path: Path, *, named: bool) -> None:
    """images.md: the image has a libnccl-net.so of its own; the variable alone chooses HARP."""
    source, other = tmp_path / "other.c", tmp_path / "libnccl-net.so"
    source.write_text("int a_plugin_of_the_image = 1;\n", encoding="utf-8")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(other), str(source)], check=True)
    (tmp_path / "libnccl-net-harp.so").symlink_to(plugin_file)
    variable = {"NCCL_NET_PLUGIN": "harp"} if named else {}
    run = make_box(2).run(
        *("--op=allreduce", "--check", "--iters=2", "--sizes=64K"),
        environment={"LD_LIBRARY_PATH": str(tmp_path), **variable},
    )
    assert run.code == 0, run.describe()
    assert run.networks == {"HARP" if named else "Socket"}, run.describe()


def test_weight_transfer(make_box: MakeBox, by_path: dict[str, str]) -> None:
    """ray-vllm.md: one trainer broadcasts packed weights to three workers, update by update."""
    steps = ["init w", "run w op=broadcast", "run w op=broadcast", "destroy w"]
    run = run_recipe(make_box(4), by_path, *steps, sizes=f"{16 * MIB},{MIB},4096", cycles=2)
    check_plan(run, [12, 12, 12, 12])


def test_kv_transfer(make_box: MakeBox, by_path: dict[str, str]) -> None:
    """kv-transfer.md: two prefill and two decode instances, one communicator a pair; one is made anew."""
    channels = {"NCCL_MAX_NCHANNELS": KV_CHANNELS, "NCCL_MIN_NCHANNELS": KV_CHANNELS}
    steps = [f"init {name} ranks={pair}" for name, pair in zip("abcd", ["0,2", "0,3", "1,2", "1,3"], strict=True)]
    steps += ["run a b c d op=sendrecv", "destroy a", "run b c d op=sendrecv"]
    steps += ["init e ranks=0,2", "run e b c d op=sendrecv", *(f"destroy {name}" for name in "ebcd")]
    run = run_recipe(make_box(4), {**by_path, **channels}, *steps, sizes=f"{4 * MIB},{64 << 10}")
    check_plan(run, [10, 12, 10, 12])


def test_direct_cables(make_box: MakeBox, make_lab: Callable[[LabSpec], Lab], by_path: dict[str, str]) -> None:
    """direct-cables.md: three hosts, a cable and a subnet a pair; the bootstrap has another network."""
    lab = make_lab(LabSpec(hosts=3))
    join_pairs(lab, [(0, 1), (1, 2), (0, 2)])
    run = make_box(lab).run(
        *("--op=alltoall", "--check", "--iters=2", "--min=24", f"--max={MOST_BYTES}", "--factor=8"),
        environment={**by_path, "HARP_IFNAME": "to"},
    )
    check_run(run, box.list_sizes(24, MOST_BYTES, 8))
    cables = {f"10.78.{number}" for number in range(3)}
    assert {address.rpartition(".")[0] for address in PEERS.findall(run.log)} == cables, run.describe()
