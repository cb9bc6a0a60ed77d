# SPDX-License-Identifier: Apache-2.0
"""`harp-run COMMAND ...`: runs a job with HARP, and says at its end whether it was used and what it moved."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import Dict, List, Mapping, Sequence

from harp_net import UnusableError, library
from harp_net.moved import Moved

USAGE = """\
Usage: harp-run COMMAND [ARGUMENTS]

Runs a command with HARP as the network of NCCL, for example: harp-run torchrun --nproc-per-node 8 train.py
At its end one line says whether the processes of this host used HARP, and what they moved.
HARP chooses the interfaces; HARP_IFNAME=eth1,eth2 names them.
"""
SYSTEM_STATS = Path("/run/harp")
LOOK_S = 0.05
MARKER = "_HARP_RUN"
UNIT = 1000
USAGE_ERROR, NOT_FOUND, NOT_EXECUTABLE = 2, 127, 126


def find_obstacle(environment: Mapping[str, str], plugin: Path) -> str:
    """Return why a job with these variables would not use HARP; "" where it would."""
    named, net = environment.get("NCCL_NET_PLUGIN", ""), environment.get("NCCL_NET", "")
    if named and named not in {"harp", str(plugin), plugin.name}:
        return f"NCCL_NET_PLUGIN={named} names another plugin: unset it to use HARP"
    if net and net.lower() != "harp":
        return f"NCCL_NET={net} names another network: unset it to use HARP"
    if environment.get("HARP_DISABLE") == "1":
        return "HARP_DISABLE=1 turns HARP off: unset it to use HARP"
    return ""


def statistics_directories(environment: Mapping[str, str]) -> List[Path]:
    """Return where the plugin makes its statistics files, in the order in which it tries; none: nowhere."""
    named = environment.get("HARP_STATS_DIR")
    if named:
        return [] if named == "off" else [Path(named)]
    found = [SYSTEM_STATS] if os.access(SYSTEM_STATS, os.W_OK) or os.geteuid() == 0 else []
    user = environment.get("XDG_RUNTIME_DIR", "")
    return found + ([Path(user) / "harp"] if user.startswith("/") and os.access(user, os.W_OK) else [])


def bytes_text(count: int) -> str:
    """Return a number of bytes as text: 12.3 GB."""
    value = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if value < UNIT:
            return f"{value:.0f} {unit}" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= UNIT
    return f"{value:.1f} TB"


def torch_obstacle(torch: Path | None) -> str:
    """Return why the PyTorch in a folder cannot use HARP, or any NCCL; "" where it can, or there is none."""
    libraries = torch / "lib" if torch else None
    if libraries is None or not (libraries / "libtorch.so").exists():
        return ""
    if any((libraries / name).exists() for name in ("libtorch_cuda.so", "libtorch_hip.so")):
        return ""
    return f"the PyTorch in {torch}, if the job uses that, is built without CUDA and ROCm and has no NCCL"


def _torch_folder() -> Path | None:
    """Return the folder of the PyTorch of this environment, without importing it."""
    spec = importlib.util.find_spec("torch")
    return Path(spec.origin).parent if spec and spec.origin else None


def summary_line(moved: Moved, torch: Path | None = None) -> str:
    """Return the line that ends a run; `torch` is the folder of the environment's PyTorch."""
    if not moved.processes:
        why = torch_obstacle(torch) or "with NCCL_DEBUG=INFO NCCL says why"
        return f"HARP was not used: no process of this host had it for {2 * LOOK_S:g} s or longer; {why}"
    who = f"{moved.processes} process{'es' if moved.processes > 1 else ''} of this host used HARP"
    if not moved.hosts:
        return f"{who}, and moved nothing with it: NCCL needed no network between them"
    hosts, interfaces = (", ".join(sorted(names)) for names in (moved.hosts, moved.interfaces))
    return (
        f"{who}: {bytes_text(moved.sent_bytes)} sent, {bytes_text(moved.received_bytes)} received, "
        f"peers on {hosts}, over {interfaces or 'no interface'}"
    )


def print_line(text: str) -> None:
    """Write a line of ours to standard error."""
    print(f"harp-run: {text}", file=sys.stderr, flush=True)


def _run_child(argv: Sequence[str], environment: Dict[str, str]) -> int:
    """Run the command; return its exit status, as a shell does. Signals are passed on."""
    try:
        process = subprocess.Popen(list(argv), env=environment)
    except FileNotFoundError:
        print_line(f"there is no command {argv[0]!r}")
        return NOT_FOUND
    except OSError as error:
        print_line(f"{argv[0]!r} cannot be run: {error.strerror}")
        return NOT_EXECUTABLE
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _frame: process.send_signal(got))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command as well
    status = process.wait()
    return status if status >= 0 else 128 - status


def run(argv: Sequence[str], environment: Dict[str, str], plugin: Path) -> int:
    """Run a command with HARP, and say what it moved. Returns the command's exit status."""
    run_id = uuid.uuid4().hex
    environment = {**environment, "NCCL_NET_PLUGIN": str(plugin), MARKER: run_id}
    directories = statistics_directories(environment)
    own = None
    if not directories and not environment.get("HARP_STATS_DIR"):
        own = tempfile.mkdtemp(prefix="harp-run-")
        environment["HARP_STATS_DIR"] = own
        directories = [Path(own)]
    moved = Moved(directories, f"{MARKER}={run_id}".encode())
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_S):
            moved.look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        status = _run_child(argv, environment)
    finally:
        is_over.set()
        watcher.join()
        moved.look()
        moved.close()
        if own:
            shutil.rmtree(own, ignore_errors=True)
    if directories and status not in {NOT_FOUND, NOT_EXECUTABLE}:
        print_line(summary_line(moved, _torch_folder()))
    return status


def main() -> int:
    """Run the command of the command line."""
    argv = sys.argv[1:]
    if argv[:1] == ["--"]:
        argv = argv[1:]
    if not argv or argv[0] in {"-h", "--help"}:
        print(USAGE, end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else USAGE_ERROR
    try:
        plugin = library()
    except UnusableError as error:
        print_line(str(error))
        return 1
    why = find_obstacle(os.environ, plugin)
    if why:
        print_line(why)
        return USAGE_ERROR
    return run(argv, dict(os.environ), plugin)


if __name__ == "__main__":
    sys.exit(main())
