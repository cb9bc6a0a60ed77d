"""Reordering, duplicates and corruption that repairs its checksum, on a real path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.lab.lab import Lab
from harpctl.lab.plan import LabSpec
from tests.lab.job import Job
from tests.lab.wire import WIRE, Faults, Wire

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
SIZES = "8,1000,16384,131072,1M"
WORDS = ("--iters", "48", "--warmup", "4")


def _run(lab: Lab, plugin: Path, wire: Wire, **env: str) -> tuple[dict[str, int], dict[str, int]]:
    """Give what was done to the packets and what the engines counted."""
    with Job(lab, plugin, mode="bidir", sizes=SIZES, words=WORDS, env=env, ifname=WIRE) as job:
        job.finish()
        return wire.finish(), job.statistics()


@pytest.mark.parametrize(("engine", "paths", "mtu_bytes"), [("inline", 1, 1500), ("thread", 4, 9000)])
def test_reordering(
    make_lab: MakeLab, plugin_file: Path, wirebox: Path, engine: str, paths: int, mtu_bytes: int
) -> None:
    lab = make_lab(LabSpec(enis=2))
    with Wire(lab, wirebox, Faults(reordering=0.02), mtu_bytes) as wire:
        done, _ = _run(lab, plugin_file, wire, HARP_ENGINE=engine, HARP_PATHS=str(paths))
        assert done["reordered"] > 20


def test_duplicates(make_lab: MakeLab, plugin_file: Path, wirebox: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    with Wire(lab, wirebox, Faults(duplicates=0.05)) as wire:
        done, counted = _run(lab, plugin_file, wire)
        assert done["doubled"] > 20
        assert counted["drop_DUPLICATE"] > 0


@pytest.mark.parametrize("paths", [1, 4])
def test_corruption(make_lab: MakeLab, plugin_file: Path, wirebox: Path, paths: int) -> None:
    """Each packet with a turned bit is dropped for a counted reason; most by the CRC."""
    lab = make_lab(LabSpec(enis=2))
    with Wire(lab, wirebox, Faults(corruption=0.01)) as wire:
        done, counted = _run(lab, plugin_file, wire, HARP_PATHS=str(paths))
        assert done["corrupted"] > 20
        reasons = ("CRC", "TOKEN", "VERSION", "TYPE", "PATH", "SHORT", "FIELD")
        drops = sum(counted[f"drop_{reason}"] for reason in reasons)
        assert counted["drop_CRC"] > 0
        # Padding is covered by nothing, and what comes at the very end may not be looked at any more.
        assert drops >= done["corrupted"] * 0.8
        assert drops <= done["corrupted"]


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_everything_at_once(make_lab: MakeLab, plugin_file: Path, wirebox: Path, engine: str) -> None:
    lab = make_lab(LabSpec(enis=2))
    faults = Faults(loss=0.01, duplicates=0.01, reordering=0.02, corruption=0.005, seed=7)
    with Wire(lab, wirebox, faults) as wire:
        done, counted = _run(lab, plugin_file, wire, HARP_ENGINE=engine, HARP_PATHS="4")
        assert min(done["lost"], done["doubled"], done["reordered"], done["corrupted"]) > 0
        assert counted["lost_packets"] > 0
