# SPDX-License-Identifier: Apache-2.0
"""The scripts of docs/how-to/deploy for Slurm and enroot, run as those run them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from tests.harpctl.node.schemas import DEPLOY

IFNAME = "HARP_IFNAME=eth1,eth2"


@pytest.fixture
def folder(tmp_path: Path, plugin_file: Path) -> Path:
    """Provide what `harpctl node` makes; the library's path in it is that of the node."""
    words = ["node", "--root", str(tmp_path), "--plugin", str(plugin_file), "--set", IFNAME]
    assert CliRunner().invoke(app, words).exit_code == 0
    return tmp_path / "opt" / "harp"


def run_hook(script: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HARPCTL_FOLDER": str(folder), **environment}
    return subprocess.run([DEPLOY / script], env=env, capture_output=True, text=True, check=False, timeout=60)


def test_task_prolog_prints_exports(folder: Path) -> None:
    done = run_hook("slurm-task-prolog.sh", folder)
    assert (done.returncode, done.stderr) == (0, "")
    library = "/opt/harp/lib/libnccl-net-harp.so"
    assert done.stdout.splitlines() == [f"export NCCL_NET_PLUGIN={library}", f"export {IFNAME}"]


def test_task_prolog_leaves_what_the_user_has_set(folder: Path) -> None:
    done = run_hook("slurm-task-prolog.sh", folder, NCCL_NET_PLUGIN="none")
    assert done.stdout.splitlines() == [f"export {IFNAME}"]


def test_task_prolog_without_harp_is_silent(tmp_path: Path) -> None:
    done = run_hook("slurm-task-prolog.sh", tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("harpctl", "code"), [("true", 0), ("false", 1)])
def test_prolog_runs_validate(folder: Path, harpctl: str, code: int) -> None:
    assert run_hook("slurm-prolog.sh", folder, HARPCTL=harpctl).returncode == code


def test_prolog_drains_a_node_without_harp(tmp_path: Path) -> None:
    done = run_hook("slurm-prolog.sh", tmp_path, HARPCTL="true")
    assert done.returncode == 1
    assert "harpctl node" in done.stderr


def run_enroot_hook(folder: Path, tmp_path: Path, environ: str) -> tuple[str, str]:
    files = {"ENROOT_ENVIRON": tmp_path / "environ", "ENROOT_MOUNTS": tmp_path / "mounts"}
    files["ENROOT_ENVIRON"].write_text(environ)
    files["ENROOT_MOUNTS"].write_text("")
    done = run_hook("enroot-hook.sh", folder, **{name: str(path) for name, path in files.items()})
    assert (done.returncode, done.stderr) == (0, "")
    return files["ENROOT_ENVIRON"].read_text(), files["ENROOT_MOUNTS"].read_text()


def test_enroot_container_gets_harp(folder: Path, tmp_path: Path) -> None:
    environ, mounts = run_enroot_hook(folder, tmp_path, "HOME=/root\n")
    library = "/opt/harp/lib/libnccl-net-harp.so"
    assert environ.splitlines() == ["HOME=/root", f"NCCL_NET_PLUGIN={library}", IFNAME]
    source, target, kind, options, *numbers = mounts.split()
    assert (source, target, kind, numbers) == (str(folder), str(folder), "none", ["0", "0"])
    assert {"x-create=dir", "bind", "ro"} <= set(options.split(","))


@pytest.mark.parametrize("own", ["NCCL_NET_PLUGIN=ofi", "HARP_DISABLE=1"])
def test_enroot_container_decides(folder: Path, tmp_path: Path, own: str) -> None:
    environ, mounts = run_enroot_hook(folder, tmp_path, f"{own}\n")
    assert environ.startswith(f"{own}\n")
    assert environ.count("NCCL_NET_PLUGIN") == own.count("NCCL_NET_PLUGIN")
    assert bool(mounts) is (own != "HARP_DISABLE=1")


def test_enroot_without_harp_changes_nothing(tmp_path: Path) -> None:
    assert run_enroot_hook(tmp_path / "absent", tmp_path, "A=1\n") == ("A=1\n", "")
