# SPDX-License-Identifier: Apache-2.0
"""Compares NCCL's choice over HARP with each algorithm and protocol that it could take.

    python -m tests.bench.nccl_choice --ranks 2 --runs 5 --speeds 10000,40000

NCCL chooses by a model, which it feeds with speed and latency of the device as the plugin reports them. What
it chooses should take at most a tenth longer than the best of all, at nine of ten sizes. All settings take
turns, as in `harpctl bench nccl`, and medians are compared; a choice is judged by the time of that setting.
"as it comes" is NCCL without a setting, measured beside them. With more ranks than cores times are noisy.
"""

from __future__ import annotations

import argparse
import dataclasses
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.units import short_size
from harplab.bench.cores import available_cores
from harplab.bench.nccl_command import choose_cores
from harplab.bench.nccl_measure import NcclJob, NcclPlace, NcclSide, alternate_sides, plugin_side, row_of
from harplab.bench.nccl_run import run_nccl
from harplab.bench.nccl_wheel import NEWEST, fetch_nccl, wheel_of
from harplab.bench.options import find_program
from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from harplab.perf.baseline import cache_dir
from harplab.perf.sizes import parse_sizes
from tests.conftest import BUILD_DIR

SIZES = "8,32,128,512,2K,8K,32K,128K,512K,2M,8M,32M,64M"
SETTINGS = [(algo, proto) for algo in ("Ring", "Tree") for proto in ("LL", "Simple")]
NEAR = 1.10  # what NCCL's choice may take, of the best one's time
SHARE = 0.9  # the share of the sizes
CHOSEN = re.compile(r"(\d+) Bytes -> Algo (\w+) proto (\w+)")
PROTOCOLS = {"LL": "LL", "LL128": "LL128", "SIMPLE": "Simple"}

Times = Mapping[str, Mapping[int, float]]  # microseconds, by setting and size


def _write_speed(folder: Path, mbps: int) -> dict[str, str]:
    """Write the conf that names the speed of the interface; return the variable that leads to it."""
    conf = folder / f"speed-{mbps}"
    conf.mkdir()
    (conf / "ztcp0.conf").write_text(f"[eni]\ninterface = eni0\nspeed_mbps = {mbps}\n", encoding="utf-8")
    return {"HARP_CONF_DIR": str(conf)}


def _choices_of_nccl(place: NcclPlace, side: NcclSide, job: NcclJob) -> dict[int, str]:
    """Return what NCCL chooses for each size."""
    once = dataclasses.replace(job, iterations=1, check=False)
    env = {**place.env, **side.env, "NCCL_DEBUG_SUBSYS": "TUNING"}
    options = [*once.options(), *place.options()]
    done = run_nccl(place.program, place.library, options, env, once.timeout_s())
    found = {int(size): f"{a.capitalize()}/{PROTOCOLS[p.upper()]}" for size, a, p in CHOSEN.findall(done.log)}
    assert set(found) >= set(job.sizes_bytes), done.describe()
    return found


def print_table(times: Times, plain: Mapping[int, float]) -> None:
    """Print what each setting takes; the best is marked."""
    print(f"{'size':>6} {'as it comes':>12}" + "".join(f"{name:>13}" for name in times))
    for size, own in plain.items():
        best = min(row[size] for row in times.values())
        cells = [f"{row[size]:12.1f}{'*' if row[size] == best else ' '}" for row in times.values()]
        print(f"{short_size(size):>6} {own:12.1f}" + "".join(cells))


def judge_choices(name: str, times: Times, choices: Mapping[int, str]) -> bool:
    """Print what was chosen and how it compares; return whether it is near the best often enough."""
    sizes = list(next(iter(times.values())))
    ratios = {size: times[choices[size]][size] / min(row[size] for row in times.values()) for size in sizes}
    near = sum(ratio <= NEAR for ratio in ratios.values())
    is_enough = near >= SHARE * len(sizes)
    far = [f"{short_size(s)} {choices[s]} {r:.2f}" for s, r in ratios.items() if r > NEAR]
    print(f"{name}: within {NEAR:g} x of the best at {near} of {len(sizes)} sizes", *far, sep="; ")
    print("   chosen:", ", ".join(f"{short_size(s)} {choices[s]}" for s in sizes))
    return is_enough


def main(argv: Sequence[str]) -> int:
    """Measure and print; exit with 1 where NCCL chooses badly with every speed."""
    parser = argparse.ArgumentParser(description="NCCL's choice over HARP beside all that it could choose")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--op", default="allreduce")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--time", type=float, default=0.1, help="seconds of each size of a run")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--speeds", default="10000", help="speeds that HARP reports, in Mbit/s")
    parser.add_argument("--plugin", type=Path, default=BUILD_DIR / "libnccl-net.so")
    given = parser.parse_args(argv)
    sizes = parse_sizes(given.sizes)
    job = NcclJob(op=given.op, sizes_bytes=sizes, ranks=given.ranks, time_s=given.time, check=False)
    cores, notes = choose_cores(given.ranks, 0, available_cores())
    with tempfile.TemporaryDirectory() as name, Lab(LabSpec(hosts=given.ranks, mtu_bytes=given.mtu)) as lab:
        folder = Path(name)
        library = fetch_nccl(wheel_of(NEWEST), cache_dir())
        env = {"NCCL_SOCKET_IFNAME": "=eni0"}
        place = NcclPlace(find_program(None, "harp-nccl"), library, tuple(lab.hosts), cores, env)
        plain = plugin_side("as it comes", given.plugin, folder / "plugin", {"HARP_IFNAME": "=eni0"}, "HARP")
        settings = [
            dataclasses.replace(plain, name=f"{a}/{p}", env={**plain.env, "NCCL_ALGO": a, "NCCL_PROTO": p})
            for a, p in SETTINGS
        ]
        unnamed = {name: value for name, value in plain.env.items() if name != "HARP_IFNAME"}  # it goes first
        speeds = [int(speed) for speed in given.speeds.split(",")]
        choices = {
            mbps: _choices_of_nccl(
                place, dataclasses.replace(plain, env={**unnamed, **_write_speed(folder, mbps)}), job
            )
            for mbps in speeds
        }
        taken = alternate_sides(
            place, [plain, *settings], job, given.runs, lambda text: print(text, file=sys.stderr)
        )
    rows = [{size: row_of(plain, side.runs, size).time_us for size in sizes} for side in taken]
    times = {side.name: row for side, row in zip(settings, rows[1:], strict=True)}
    print(f"NCCL {NEWEST}, {given.op}, {given.ranks} ranks, microseconds, median of {given.runs} runs")
    print(*notes, sep="\n", end="\n" if notes else "")
    print_table(times, rows[0])
    verdicts = [judge_choices(f"{mbps} Mbit/s", times, choices[mbps]) for mbps in speeds]
    return 0 if any(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
