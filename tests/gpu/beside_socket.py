# SPDX-License-Identifier: Apache-2.0
"""Times NCCL's allreduce on a GPU over HARP and its own sockets: python3 -m tests.gpu.beside_socket --help.

Needs a checkout with a built plugin and a Python with PyTorch; nothing of harpctl's own dependencies. The two
ranks share one GPU and take turns on it, so without MPS (nvidia-cuda-mps-control -d) every time is that of
the GPU's time slices, whatever the network does.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from harpctl.errors import HarpError
from tests.gpu import beside, job

PLUGIN = job.ROOT / "plugin" / "build" / "libnccl-net.so"


def measure_side(
    python: str, side: str, net: Mapping[str, str], interface: str, sizes: Sequence[int], turns: int
) -> beside.Times:
    """Run one side once; what went wrong, or over another network, raises a HarpError."""
    words = [f"--measure={','.join(map(str, sizes))}", f"--turns={turns}"]
    done = job.run_job(python, words, net, interface)
    ways = set().union(*map(job.routes_of_channels, done.logs))
    if any(done.codes) or any(done.result.get("wrong", {"": 1}).values()):
        raise HarpError(f"{side} failed or moved wrong data: {done.describe()}")
    if ways != {side.split(maxsplit=1)[0]}:
        raise HarpError(f"{side} was asked for, but NCCL went over {', '.join(sorted(ways)) or 'nothing'}.")
    return {int(size): float(time_us) for size, time_us in done.result["time_us"].items()}


def main(words: Sequence[str] | None = None) -> int:
    """Run both sides in turn and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", type=Path, default=PLUGIN)
    parser.add_argument("--interface", default="lo", help="the ENI of both sides (default: lo)")
    parser.add_argument("--sizes", default=",".join(map(str, beside.SIZES)), help="bytes, comma list")
    parser.add_argument("--rounds", type=int, default=beside.ROUNDS, help="alternating runs")
    parser.add_argument("--turns", type=int, default=20, help="allreduces of each size in a run")
    parser.add_argument("--python", help="the Python that has PyTorch")
    parser.add_argument("--json", type=Path, help="write all runs into this file")
    options = parser.parse_args(words)
    sizes = [int(size) for size in options.sizes.split(",")]
    sides = {
        beside.HARP: job.harp_environment(options.plugin.resolve(), options.interface),
        **beside.socket_sides(),
    }
    runs: dict[str, list[beside.Times]] = {side: [] for side in sides}
    if not options.plugin.is_file():
        parser.error(f"there is no {options.plugin}: build it with `./harp_setup build`")
    try:
        python = job.find_python([options.python] if options.python else job.candidate_pythons(os.environ))
        for _ in range(options.rounds):
            for side, net in sides.items():
                runs[side].append(measure_side(python, side, net, options.interface, sizes, options.turns))
    except HarpError as error:
        print(error, file=sys.stderr)
        return int(error.exit_code)
    lines = beside.compare_runs(runs)
    print(beside.render_table(lines))
    if options.json:
        whole = {"lines": [dataclasses.asdict(line) for line in lines], "runs": runs}
        options.json.write_text(json.dumps(whole, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
