# SPDX-License-Identifier: Apache-2.0
"""A harp-perf that measures nothing: answers with figures made from its command line and environment."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

FAKE_PERF = r"""
import json, os, sys

def option(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default

if log := os.environ.get("FAKE_LOG"):
    with open(log, "a") as file:
        settings = {name: value for name, value in os.environ.items() if name.startswith(("HARP_", "NCCL_"))}
        file.write(json.dumps({"argv": sys.argv[1:], "env": settings}) + "\n")
if option("--core-latency"):
    with open(os.environ["FAKE_LATENCIES"]) as file:
        readings = file.read().split()
    with open(os.environ["FAKE_LATENCIES"], "w") as file:
        file.write(" ".join(readings[1:] or readings))
    print(readings[0])
    sys.exit(0)
rank, fail = int(option("--rank")), os.environ.get("FAKE_FAIL_RANK")
if fail is not None and rank == int(fail):
    print("harp-perf: the ENI is on fire", file=sys.stderr)
    sys.exit(3)
if os.environ.get("FAKE_HANG"):
    import time
    time.sleep(600)
window = None
if interval := option("--interval-ms"):
    import time
    seconds, gbps = float(option("--time")), float(os.environ.get("FAKE_GBPS", "10"))
    start_ns, per_sample = time.monotonic_ns(), int(gbps * 125000 * int(interval))
    if rank == 0 and not os.environ.get("FAKE_NO_WINDOW"):
        print(f"harp-perf: window starts at {start_ns} ns", file=sys.stderr, flush=True)
        time.sleep(seconds)
    count = round(seconds * 1000 / int(interval))
    later = 0 if os.environ.get("FAKE_STALL") else per_sample
    samples = [per_sample] * (count // 2) + [later] * (count - count // 2)
    shares = [sum(samples) // 2] * 2
    window = dict(start_ns=start_ns, interval_ms=int(interval), samples=samples, undelivered=0, failures=[])
    ends = {"from": 0, "to": 1}
    window["connections"] = [dict(ends, index=index, bytes=share) for index, share in enumerate(shares)]
    if os.environ.get("FAKE_STALL"):
        window.update(undelivered=3, failures=[dict(rank=1, text="the peer is gone")])
if rank == 0 and not os.environ.get("FAKE_NO_WINDOW"):
    rate = float(os.environ.get("FAKE_GBPS", "10"))
    pingpong = option("--mode") == "pingpong"
    latency = dict(min=1, p50=2 * 10 / rate, p90=3, p99=4, p999=5, max=6, mean=2.5) if pingpong else None
    count = int(option("--iters", "1000"))
    results = [
        dict(bytes=int(size), messages=count, seconds=0.5, algbw_gbps=rate, busbw_gbps=rate,
             latency_us=latency, wrong=int(os.environ.get("FAKE_WRONG", "0")), cpu_s=0.1, window=window)
        for size in option("--sizes").split(",")
    ]
    head = dict(plugin=option("--plugin"), name="FAKE", abi=12, mode=option("--mode"), check=True)
    head.update(nranks=int(option("--nranks")), connections=1, inflight=8, results=results)
    print(json.dumps(head))
if window and (os.environ.get("FAKE_STALL") or os.environ.get("FAKE_NO_WINDOW")):
    print("harp-perf: it stalled", file=sys.stderr)
    sys.exit(3)
"""


def write_perf(folder: Path, code: str) -> Path:
    """Make an executable of Python code; whatever the path of Python, which a first line may not hold."""
    file = folder / "harp-perf"
    here = f"exec {shlex.quote(sys.executable)} - \"$@\" <<'HARP_PERF'\n"
    file.write_text(f"#!/bin/sh\n{here}{code}\nHARP_PERF\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def fake_perf(tmp_path: Path) -> Path:
    return write_perf(tmp_path, FAKE_PERF)


@pytest.fixture
def fake_plugin(tmp_path: Path) -> Path:
    file = tmp_path / "libnccl-net-fake.so"
    file.touch()
    return file
