# SPDX-License-Identifier: Apache-2.0
"""Print how many instructions the xdp driver's own code spends on a packet, counted by callgrind.

`make -C plugin callgrind` runs it; the numbers go into docs/reference/benchmarks.md.
"""

from __future__ import annotations

import re
import subprocess
import sys

BATCHES = 1000
PACKETS = 16


def count_instructions(program: str, sends: int, receives: int) -> int:
    """Count the instructions of one run."""
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", program]
    done = subprocess.run([*command, str(sends), str(receives)], capture_output=True, text=True, check=True)
    (found,) = re.findall(r"Collected : (\d+)", done.stderr)
    return int(found)


def main() -> None:
    """Count a run that only sends and one that only receives, each against one that does nothing."""
    program = sys.argv[1]
    nothing = count_instructions(program, 0, 0)
    for name, sends, receives in (("sent", BATCHES, 0), ("received", 0, BATCHES)):
        spent = count_instructions(program, sends, receives) - nothing
        print(f"xdp driver: {spent / BATCHES / PACKETS:.1f} instructions per packet {name}")


if __name__ == "__main__":
    main()
