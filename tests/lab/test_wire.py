# SPDX-License-Identifier: Apache-2.0
"""Reordering, duplicates and corruption that repairs its checksum, on a real path."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.faults import Faults
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec, Offload
from tests.lab.job import Job

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("driver")]
MakeLab = Callable[[LabSpec], Lab]
SIZES = "8,1000,16384,131072,1M"
WORDS = ("--iters", "48", "--warmup", "4")
SPEC = LabSpec(enis=2, switch=True, offload=Offload.OFF)


def _run_job(lab: Lab, plugin: Path, faults: Faults, **env: str) -> tuple[Counter[str], dict[str, int]]:
    """Return what was done to the packets and what the engines counted."""
    with Job(lab, plugin, mode="bidir", sizes=SIZES, words=WORDS, env=env) as job:
        job.finish()
        done = sum((Counter(way) for way in faults.counts().values()), Counter())
        return done, job.statistics()


@pytest.mark.parametrize(("engine", "paths", "mtu_bytes"), [("inline", 1, 1500), ("thread", 4, 9000)])
def test_reordering(make_lab: MakeLab, plugin_file: Path, engine: str, paths: int, mtu_bytes: int) -> None:
    lab = make_lab(dataclasses.replace(SPEC, mtu_bytes=mtu_bytes))
    faults = lab.faults(1).reorder(0.02)
    done, _ = _run_job(lab, plugin_file, faults, HARP_ENGINE=engine, HARP_PATHS=str(paths))
    assert done["reordered"] > 20


def test_duplicates(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(SPEC)
    done, counted = _run_job(lab, plugin_file, lab.faults(1).duplicate(0.05))
    assert done["doubled"] > 20
    assert counted["drop_DUPLICATE"] > 0


def test_corruption(make_lab: MakeLab, plugin_file: Path) -> None:
    """Each packet with a turned bit is dropped for a counted reason; most by the CRC."""
    lab = make_lab(SPEC)
    done, counted = _run_job(lab, plugin_file, lab.faults(1).corrupt(0.01), HARP_PATHS="4")
    assert done["corrupted"] > 20
    reasons = ("CRC", "TOKEN", "VERSION", "TYPE", "PATH", "SHORT", "FIELD")
    drops = sum(counted[f"drop_{reason}"] for reason in reasons)
    assert counted["drop_CRC"] > 0
    # Padding is covered by nothing, and what comes at the very end may not be looked at any more.
    assert drops >= done["corrupted"] * 0.8
    # Whole packets that come after their session ended have an unknown token, too.
    assert drops - counted["drop_TOKEN"] <= done["corrupted"]


@pytest.mark.parametrize("engine", ["inline", "thread"])
def test_everything_at_once(make_lab: MakeLab, plugin_file: Path, engine: str) -> None:
    lab = make_lab(SPEC)
    faults = lab.faults(1).drop(0.01).duplicate(0.01).reorder(0.02).corrupt(0.005)
    done, counted = _run_job(lab, plugin_file, faults, HARP_ENGINE=engine, HARP_PATHS="4")
    assert min(done["dropped"], done["doubled"], done["reordered"], done["corrupted"]) > 0
    assert counted["lost_packets"] > 0
