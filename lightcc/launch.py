# SPDX-License-Identifier: Apache-2.0
"""`python -m lightcc.launch TORCHRUN-ARGUMENTS SCRIPT ...`: torchrun, whose workers attach every DDP."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from lightcc.notices import USAGE_ERROR, LightccError, require_torch
from lightcc.settings import from_environment


def rewrite(arguments: argparse.Namespace) -> argparse.Namespace:
    """Have torchrun start lightcc.boot, which runs the script. Raises LightccError for what is no Python."""
    if arguments.no_python:
        raise LightccError("--no-python: only a script that Python runs can be attached")
    script = ["-m"] * arguments.module + [arguments.training_script]
    arguments.training_script_args = script + arguments.training_script_args
    arguments.training_script, arguments.module, arguments.run_path = "lightcc.boot", True, False
    return arguments


def check(nodes: str, local_size: int) -> None:
    """Check the settings against a job of so many hosts ("2", or "1:4") and ranks on each.

    Raises LightccError. Where the number of hosts may change, the ranks check at their start.
    """
    settings = from_environment(os.environ, local_size)
    least, _, most = nodes.partition(":")
    if not least.isdecimal() or (most and most != least):
        return
    settings.check_rows(int(least) * local_size, "job")


def main(argv: Sequence[str] | None = None, *, passes_local_rank: bool = False) -> None:
    """Launch a job as torchrun does; with passes_local_rank, as torch.distributed.launch does."""
    try:
        from_environment(os.environ)
        require_torch()
        from torch.distributed import launch, run

        parse = launch.parse_args if passes_local_rank else run.parse_args
        arguments = rewrite(parse(argv))
        check(arguments.nnodes, run.determine_local_world_size(arguments.nproc_per_node))
    except LightccError as error:
        print(f"lightcc.launch: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    run.run(arguments)


if __name__ == "__main__":
    main()
