# SPDX-License-Identifier: Apache-2.0
"""Each mode of AF_XDP that is refused reports why, and what would help."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.commands import run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.lab.job import ENI, EXIT_PLUGIN
from tests.lab.xdp import attached_program

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]
LOCKED_MEMORY = "--memlock=1048576"


def _run_job(
    lab: Lab, plugin: Path, driver: str, *wrapped_in: str, ifname: str = ENI
) -> subprocess.CompletedProcess[str]:
    """Run a job of two ranks on one host, in a process that lacks something."""
    argv = [str(plugin.parent / "harp-perf"), "--plugin", str(plugin), "--mode", "stream", "--sizes", "64K"]
    argv += ["--iters", "8", "--warmup", "2", "--nranks", "2", "--log", "info"]
    env = ["env", f"HARP_IFNAME=={ifname}", f"HARP_DRIVER={driver}"]
    command = lab.command(0, [*env, *wrapped_in, *argv])
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def _drop_capabilities(*capabilities: str) -> list[str]:
    return ["setpriv", "--bounding-set=" + ",".join(f"-{name}" for name in capabilities)]


@pytest.mark.parametrize(
    ("wrapped_in", "reason"),
    [
        (
            _drop_capabilities("net_raw"),
            "opening an AF_XDP socket: Operation not permitted; it needs CAP_NET_RAW",
        ),
        (_drop_capabilities("bpf", "sys_admin"), "needs CAP_BPF and CAP_NET_ADMIN (or root)"),
        (_drop_capabilities("net_admin", "sys_admin"), "needs CAP_BPF and CAP_NET_ADMIN (or root)"),
        (
            ["prlimit", LOCKED_MEMORY, *_drop_capabilities("ipc_lock")],
            "registering the frames: its user may lock no more memory: raise the limit, ",
        ),
    ],
)
def test_something_is_missing(make_lab: MakeLab, plugin_file: Path, wrapped_in: list[str], reason: str) -> None:
    """Forced, it fails with the reason; left the choice, it works."""
    lab = make_lab(LabSpec(enis=2))
    forced = _run_job(lab, plugin_file, "xdp", *wrapped_in)
    assert forced.returncode == EXIT_PLUGIN
    for mode in ("generic copy", "native copy", "zero-copy"):
        assert re.search(rf"WARN .*{ENI}: .*xdp {mode}: [^;]*{re.escape(reason)}", forced.stderr)
    assert attached_program(lab, 0) == ""
    assert _run_job(lab, plugin_file, "auto", *wrapped_in).returncode == 0


def test_zero_copy_on_a_nic_without(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec(enis=2))
    forced = _run_job(lab, plugin_file, "xdp-zc")
    assert forced.returncode == EXIT_PLUGIN
    assert f"{ENI}: xdp zero-copy: binding queue 0 zero-copy: Operation not supported" in forced.stderr
    assert "generic" not in forced.stderr
    assert attached_program(lab, 0) == ""


def test_an_mtu_between_one_buffer_and_one_frame(make_lab: MakeLab, plugin_file: Path) -> None:
    """A native program is taken by veth only if it can do with several buffers; so it gets such a one."""
    lab = make_lab(LabSpec(enis=2, mtu_bytes=3600))
    forced = _run_job(lab, plugin_file, "xdp-zc")
    assert f"{ENI}: xdp zero-copy: binding queue 0 zero-copy: Operation not supported" in forced.stderr
    assert attached_program(lab, 0) == ""


def test_more_channels_than_native_mode_has(make_lab: MakeLab, plugin_file: Path) -> None:
    """On veth it wants as many queues to receive as its peer has to send; NICs have other rules."""
    lab = make_lab(LabSpec(enis=2, queues=2))
    run_command(run_inside(lab.hosts[0], "ethtool", "-L", ENI, "rx", "1", "tx", "1"))
    forced = _run_job(lab, plugin_file, "xdp-zc")
    assert forced.returncode == EXIT_PLUGIN
    reason = "attaching a native XDP program failed: No space left on device; often the MTU is too large"
    assert re.search(rf"{ENI}: xdp zero-copy: {reason}.*channels are in use \(ethtool -L\)", forced.stderr)
    assert attached_program(lab, 0) == ""
    assert _run_job(lab, plugin_file, "auto").returncode == 0


def test_a_device_without_native_mode(make_lab: MakeLab, plugin_file: Path) -> None:
    """Loopback has generic mode alone; what it reports of the others is in the engine's line."""
    lab = make_lab(LabSpec(enis=2))
    done = _run_job(lab, plugin_file, "xdp", ifname="lo")
    assert done.returncode != 0 or "driver xdp generic copy" in done.stderr
    assert "xdp native copy: attaching a native XDP program failed: Operation not supported" in done.stderr
