# SPDX-License-Identifier: Apache-2.0
"""Ranks on kernels that lack what later ones have, as far as a filter of system calls can make them lack it.

docs/reference/kernels.md lists which kernels these stand for, and what ran on real ones.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import ALL_SIZES, Job

pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the filter is for x86-64"),
]
MakeLab = Callable[[LabSpec], Lab]

MODES = {
    "3.10": "udp sendmmsg+recvmmsg",
    "4.15": "udp sendmmsg+recvmmsg",
    "4.18": "udp gso+recvmmsg",
    "5.4": "udp gso+gro",
}
CURRENT = "udp gso+gro"
GIVEN_UP = "(nothing gets through)"
SLOW_MBPS = 16.0  # half a megabyte takes a quarter of a second


@pytest.fixture(scope="session")
def old(compile_c: Callable[..., Path]) -> Callable[[str], dict[str, str]]:
    """Provide the variables that make a process live on an older kernel."""
    library = compile_c("old_kernel", "-shared", "-fPIC")
    known = {"LD_PRELOAD": str(library), "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}  # rseq came with 4.18
    return lambda kernel: {**known, "OLD_KERNEL": kernel}


@pytest.mark.parametrize(
    ("kernel", "engine"),
    [("3.10", "inline"), ("3.10", "thread"), ("4.15", "thread"), ("4.18", "inline"), ("5.4", "thread")],
)
def test_two_of_them(
    make_lab: MakeLab, plugin_file: Path, old: Callable[[str], dict[str, str]], kernel: str, engine: str
) -> None:
    """By itself HARP takes what is there, large messages take TCP, and every byte is right."""
    env = {**old(kernel), "HARP_ENGINE": engine}
    words = ("--iters", "20", "--connections", "2", "--warmup", "2")
    with Job(make_lab(LabSpec(enis=2)), plugin_file, mode="bidir", sizes=ALL_SIZES, words=words, env=env) as job:
        job.finish()
        assert [job.driver_mode(rank) for rank in range(2)] == [MODES[kernel]] * 2
        assert job.statistics()["tx_records"] > 20


@pytest.mark.parametrize(("kernel", "carrier"), [("3.10", "udp"), ("3.10", "tcp"), ("4.18", "udp+tcp")])
def test_beside_a_current_one(
    make_lab: MakeLab, plugin_file: Path, old: Callable[[str], dict[str, str]], kernel: str, carrier: str
) -> None:
    words = ("--iters", "20", "--warmup", "2")
    env = {"HARP_DRIVER": carrier}
    lab = make_lab(LabSpec(enis=2))
    with Job(lab, plugin_file, mode="bidir", sizes=ALL_SIZES, words=words, env=env, rank_env=[old(kernel)]) as job:
        job.finish()
        if carrier != "tcp":
            assert [job.driver_mode(0), job.driver_mode(1)] == [MODES[kernel], CURRENT]


def test_tcp_is_slow_and_works(make_lab: MakeLab, plugin_file: Path, old: Callable[[str], dict[str, str]]) -> None:
    """What a kernel does not report of its progress is no sign that there is none."""
    lab = make_lab(LabSpec(enis=2, cap_mbps=SLOW_MBPS))
    words = ("--iters", "4", "--warmup", "0", "--inflight", "2")
    env = {**old("3.10"), "HARP_DRIVER": "udp+tcp"}
    with Job(lab, plugin_file, mode="stream", sizes="1M", words=words, env=env) as job:
        job.finish()
        assert GIVEN_UP not in job.log(0) + job.log(1)
