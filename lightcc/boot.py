# SPDX-License-Identifier: Apache-2.0
"""`python -m lightcc.boot [-m] SCRIPT ...`: runs a script with every DDP attached, as under mpirun."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import MutableMapping
from pathlib import Path

import lightcc
from lightcc.notices import USAGE_ERROR, LightccError
from lightcc.settings import from_environment

USAGE = "usage: python -m lightcc.boot [-m] SCRIPT [ARGUMENTS]"
OPEN_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
LOCAL_RANK = "--local-rank="  # torch.distributed.launch puts it before the script's own arguments


def take_over_mpi(environment: MutableMapping[str, str]) -> None:
    """Set what torch reads from what Open MPI sets. Raises LightccError without an address to meet at."""
    if OPEN_MPI["RANK"] not in environment:
        return
    for name, other in OPEN_MPI.items():
        if other in environment:
            environment.setdefault(name, environment[other])
    missing = [name for name in ("MASTER_ADDR", "MASTER_PORT") if not environment.get(name)]
    if missing:
        raise LightccError(f"{missing[0]} is not set: give mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT")


def run(script: str, *, is_module: bool) -> None:
    """Run a script as the main program, as Python would. Raises LightccError where there is none."""
    if is_module:
        sys.path[0] = str(Path.cwd())
        runpy.run_module(script, run_name="__main__", alter_sys=True)
        return
    if not Path(script).exists():
        raise LightccError(f"{script}: there is no such file")
    sys.path[0] = str(Path(script).resolve().parent)
    runpy.run_path(script, run_name="__main__")


def main() -> None:
    """Run the script of the command line as the main program.

    Mistakes of the user end with a sentence, also those that show only when the script makes its first DDP.
    """
    argv = sys.argv[1:]
    is_module = argv[:1] == ["-m"]
    argv = argv[is_module:]
    ranks = [argv.pop(0)] if argv and argv[0].startswith(LOCAL_RANK) else []
    is_module = is_module or argv[:1] == ["-m"]
    argv = argv[argv[:1] == ["-m"] :]
    if not argv:
        print(USAGE, file=sys.stderr)
        sys.exit(USAGE_ERROR)
    script, *arguments = argv
    try:
        take_over_mpi(os.environ)
        settings = from_environment(os.environ)
        settings.check_rows(int(os.environ.get("WORLD_SIZE") or 1), "job")
        lightcc.init(settings)
        sys.argv = [script, *ranks, *arguments]
        run(script, is_module=is_module)
    except LightccError as error:
        print(f"lightcc.boot: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)


if __name__ == "__main__":
    main()
