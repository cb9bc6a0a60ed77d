# SPDX-License-Identifier: Apache-2.0
"""Print how many instructions the protocol core spends on a data packet, counted by callgrind.

`make -C plugin callgrind` runs it; the numbers go into docs/reference/benchmarks.md.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

# The part of a function's work, by the file whose line an instruction belongs to.
PARTS = (
    (re.compile(r"/?src/wire/crc32c"), "checksum"),
    (re.compile(r"/?src/wire/"), "wire"),
    (re.compile(r"/?src/proto/"), "proto"),
    (re.compile(r"/?src/base/"), "base"),
)
KERNELS = re.compile(r"(portable|sse42|avx2|avx512|arm64)_")
COPIES = re.compile(r"mem(cpy|move|set)")
COMPRESSED = re.compile(r"\((\d+)\)(?: (.*))?$")


def name_of(text: str, names: dict[str, str]) -> str:
    """Resolve callgrind's name compression: "(4) name" defines, "(4)" repeats."""
    match = COMPRESSED.match(text)
    if not match:
        return text
    if match[2]:
        names[match[1]] = match[2]
    return names.get(match[1], "?")


def part_of(file: str, function: str) -> str:
    if KERNELS.match(function):
        return "checksum"
    for pattern, part in PARTS:
        if pattern.search(file):
            return part
    return "copy" if COPIES.search(function) else "harness"


def self_costs(profile: Path) -> Counter[str]:
    """Sum the instructions of each part, without what they call."""
    files: dict[str, str] = {}
    functions: dict[str, str] = {}
    costs: Counter[str] = Counter()
    file = function = ""
    skip = False
    for line in profile.read_text().splitlines():
        key, equals, value = line.partition("=")
        if equals and key in {"fl", "fi", "fe"}:
            file = name_of(value, files)
        elif equals and key in {"cfi", "cfl"}:
            name_of(value, files)
        elif equals and key == "fn":
            function = name_of(value, functions)
        elif equals and key == "cfn":
            name_of(value, functions)
        elif equals and key == "calls":
            skip = True  # the next line is the cost of the call, all included
        elif line[:1].isdigit() or line[:1] in {"+", "-", "*"}:
            if not skip:
                costs[part_of(file, function)] += int(line.split()[1])
            skip = False
    return costs


def measure_transfer(simulator: str, lines: int, paths: int, enis: int) -> float:
    """Count one transfer, print it, and return the instructions a packet in proto + wire."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "profile"
        command = ["valgrind", "--tool=callgrind", "--toggle-collect=move", f"--callgrind-out-file={out}"]
        run = subprocess.run(
            [*command, simulator, "--transfer", str(lines), str(paths), str(enis)],
            capture_output=True,
            text=True,
            check=False,
        )
        match = re.search(r"(\d+) data packets", run.stdout)
        if run.returncode or not match:
            sys.exit(f"callgrind failed:\n{run.stdout}{run.stderr}")
        packets = int(match[1])
        costs = self_costs(out)
    core = costs["proto"] + costs["wire"] + costs["base"]
    kernels = costs["checksum"] + costs["copy"]
    what = f"{44 + 128 * lines:5} bytes, {paths} path{'s' * (paths > 1)} over {enis} ENI{'s' * (enis > 1)}"
    print(
        f"{what}: {core / packets:7.1f} instructions a data packet in proto + wire, "
        f"both sides (proto {costs['proto'] / packets:.1f}, wire {costs['wire'] / packets:.1f}, "
        f"base {costs['base'] / packets:.1f}); with checksum and copies {(core + kernels) / packets:.1f}"
    )
    return core / packets


def main() -> None:
    for lines in (11, 69):
        cases = ((1, 1), (8, 1), (8, 8))
        one, flows, enis = (measure_transfer(sys.argv[1], lines, paths, enis) for paths, enis in cases)
        more = f"8 paths over one ENI take {flows / one:.3f}, over 8 {enis / one:.3f}"
        print(f"      {more} times the instructions of one")


if __name__ == "__main__":
    main()
