"""What a GPU sees that reads LL and LL128 lines while they land (tests/lab/ll_reader.c)."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.lab.lab import Lab
from harpctl.lab.plan import LabSpec, Offload
from tests.lab.job import ENI, drop

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
RUN_S = 60
LOSS = "meta l4proto udp numgen random mod 1000 < 10"


@pytest.fixture(scope="session")
def ll_reader(compile_c: Callable[..., Path]) -> Path:
    """Both ends of the connection, and the GPU."""
    return compile_c("ll_reader", "-ldl", "-lpthread")


def _watch(
    lab: Lab, reader: Path, plugin: Path, layout: str, messages: int, ifname: str, engine: str
) -> dict[str, int]:
    env = {**os.environ, "HARP_IFNAME": f"={ifname}", "HARP_ENGINE": engine, "HARP_PATHS": "2"}
    words = [layout, str(messages), "1"]
    with contextlib.ExitStack() as stack:
        receiver = subprocess.Popen(
            lab.command(0, [str(reader), str(plugin), "recv", *words]),
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        stack.callback(receiver.wait)
        stack.callback(receiver.kill)
        assert receiver.stdout is not None
        handle = receiver.stdout.readline().strip()
        argv = lab.command(1, [str(reader), str(plugin), "send", *words, handle])
        sender = subprocess.run(argv, env=env, timeout=RUN_S, check=False)
        said, _ = receiver.communicate(timeout=RUN_S)
        assert (sender.returncode, receiver.returncode) == (0, 0)
    counts: dict[str, int] = json.loads(said)
    return counts


def _assert_clean(counts: dict[str, int]) -> None:
    assert counts.pop("early") > 0, "nothing was seen while it landed"
    assert counts == {"torn": 0, "undone": 0, "beyond": 0, "late": 0}


@pytest.mark.parametrize("layout", ["ll", "ll128"])
@pytest.mark.parametrize("engine", ["inline", "thread"])
@pytest.mark.parametrize(("mtu_bytes", "offload"), [(1500, Offload.OFF), (9000, Offload.STOCK)])
def test_lines_under_loss(
    make_lab: MakeLab,
    plugin_file: Path,
    ll_reader: Path,
    layout: str,
    engine: str,
    mtu_bytes: int,
    offload: Offload,
) -> None:
    lab = make_lab(LabSpec(mtu_bytes=mtu_bytes, offload=offload))
    drop(lab, 0, LOSS)
    _assert_clean(_watch(lab, ll_reader, plugin_file, layout, 600, ENI, engine))


@pytest.mark.parametrize("layout", ["ll", "ll128"])
def test_lines_under_everything(make_lab: MakeLab, plugin_file: Path, ll_reader: Path, layout: str) -> None:
    lab = make_lab(LabSpec(switch=True, offload=Offload.OFF))
    faults = lab.faults(1).drop(0.01).duplicate(0.05).reorder(0.05).corrupt(0.002)
    _assert_clean(_watch(lab, ll_reader, plugin_file, layout, 600, ENI, "inline"))
    for name in ("dropped", "doubled", "reordered", "corrupted"):
        assert faults.total(name) > 0
