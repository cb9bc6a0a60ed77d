# SPDX-License-Identifier: Apache-2.0
"""`harpctl node`: alone, and as the pod of a DaemonSet with the rights that its manifest gives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.build_info import build_version
from harpctl.cli import app
from harpctl.node.cluster import LABEL, label_value
from harpctl.node.profile import FOLDER, library_path, profile_path
from tests.conftest import ROOT
from tests.harpctl.node.api import DAEMONSET, NODE, Api

WAIT_S = 60.0
RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")  # as in installer.yaml
POD = """
import sys
from harpctl.node import cluster
cluster.SECRETS = sys.argv.pop(1)
from harpctl.cli import main
main()
"""


def run_node(root: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["node", "--root", str(root), *words])


def read_files(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def installed_files(root: Path) -> set[str]:
    return {f"/{name}" for name in read_files(root)} & {library_path(FOLDER), profile_path(FOLDER)}


@pytest.fixture
def node_root(tmp_path: Path) -> Path:
    """Provide the file system of the pod, with the mounts of installer.yaml."""
    root = tmp_path / "host"
    (root / "opt" / "harp").mkdir(parents=True)
    (root / "var" / "lib" / "harp").mkdir(parents=True)
    return root


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with Api(tmp_path) as found:
        yield found


class Pod:
    """The installer's process."""

    def __init__(self, api: Api, root: Path, plugin: Path, *words: str) -> None:
        argv = [sys.executable, "-c", POD, str(api.secrets), "node", "--root", str(root)]
        argv += ["--plugin", str(plugin), "--node", NODE, "--daemonset", DAEMONSET, *words]
        rights = RIGHTS if os.geteuid() == 0 else ()
        self.process = subprocess.Popen(
            [*rights, *argv],
            cwd=ROOT,
            env={**os.environ, **api.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_ready(self) -> None:
        """Wait until its output reports that the node has its label."""
        assert self.process.stderr
        output = ""
        while f"Node {NODE} has the label {LABEL}.\n" not in output:
            line = self.process.stderr.readline()
            assert line, output
            output += line

    def end(self) -> tuple[int, str]:
        """End it as the kubelet does; return its exit code and its output."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out + err


@pytest.fixture
def start(api: Api, node_root: Path, plugin_file: Path) -> Iterator[Callable[..., Pod]]:
    with ExitStack() as stack:

        def make(*words: str) -> Pod:
            pod = Pod(api, node_root, plugin_file, *words)
            stack.callback(pod.process.wait)
            stack.callback(pod.process.kill)
            return pod

        yield make


# ---- alone ----


def test_folder_holds_library_and_profile(tmp_path: Path, plugin_file: Path) -> None:
    done = run_node(tmp_path, "--plugin", str(plugin_file), "--set", "HARP_IFNAME=eth1,eth2")
    assert done.exit_code == 0, done.output
    assert f"HARP {build_version()} is installed: {FOLDER}." in done.output
    library = tmp_path / library_path(FOLDER)[1:]
    assert library.read_bytes() == plugin_file.read_bytes()
    assert library.stat().st_mode & 0o777 == 0o755
    lines = (tmp_path / profile_path(FOLDER)[1:]).read_text().splitlines()
    assert lines[1:] == [f"NCCL_NET_PLUGIN={library_path(FOLDER)}", "HARP_IFNAME=eth1,eth2"]
    before = read_files(tmp_path)
    result = json.loads(
        run_node(tmp_path, "--plugin", str(plugin_file), "--set", "HARP_IFNAME=eth1,eth2", "--json").stdout
    )
    assert (result["ok"], result["changed"], result["folder"]) == (True, False, FOLDER)
    again = run_node(tmp_path, "--plugin", str(plugin_file), "--set", "HARP_IFNAME=eth1,eth2")
    assert "is installed already" in again.output
    assert read_files(tmp_path) == before
    assert CliRunner().invoke(app, ["rollback", "--root", str(tmp_path)]).exit_code == 0
    assert read_files(tmp_path) == {}


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--set", "PATH=/bin"], 2, "not NAME=VALUE"),
        (["--set", "HARP_IFNAME="], 2, "not NAME=VALUE"),
        (["--set", "HARP_IFNAME=eth1\nX=1"], 2, "not NAME=VALUE"),
        (["--dir", "opt/harp"], 2, "not an absolute path"),
        (["--dir", "/opt/../etc"], 2, "not an absolute path"),
        (["--node", "gpu1"], 2, "belong together"),
        (["--node", "gpu1", "--daemonset", "harp"], 2, "not NAMESPACE/NAME"),
        (["--node", "gpu1", "--daemonset", "a/b"], 4, "not a pod"),
    ],
)
def test_wrong_usage_changes_nothing(
    tmp_path: Path, plugin_file: Path, words: list[str], code: int, message: str
) -> None:
    done = run_node(tmp_path, "--plugin", str(plugin_file), *words)
    assert (done.exit_code, read_files(tmp_path)) == (code, {})
    assert message in done.output


def test_damaged_library_is_not_installed(tmp_path: Path) -> None:
    file = tmp_path / "damaged.so"
    file.write_bytes(b"no library")
    root = tmp_path / "host"
    root.mkdir()
    assert run_node(root, "--plugin", str(file)).exit_code == 3
    assert read_files(root) == {}


@pytest.mark.parametrize("version", ["1.0.0", "1.0.0-12-gabc-dirty", "1.0+x/y", "v" * 80])
def test_label_value_is_one(version: str) -> None:
    value = label_value(version)
    assert 0 < len(value) <= 63
    assert value[0].isalnum()
    assert value[-1].isalnum()
    assert all(letter.isalnum() or letter in "._-" for letter in value)


# ---- as a pod ----


def test_deleted_daemonset_leaves_nothing(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    pod = start()
    pod.wait_ready()
    assert api.labels[LABEL] == label_value(build_version())
    assert len(installed_files(node_root)) == 2
    api.daemonset = None
    code, output = pod.end()
    assert code == 0, output
    assert read_files(node_root) == {}
    assert LABEL not in api.labels
    assert sorted(path.name for path in (node_root / "opt").iterdir()) == ["harp"]  # where the mount is


def test_update_keeps_all(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    first = start()
    first.wait_ready()
    code, output = first.end()
    assert code == 0, output
    assert len(installed_files(node_root)) == 2
    assert LABEL in api.labels
    second = start("--set", "HARP_IFNAME=eth1")
    second.wait_ready()
    assert api.daemonset is not None
    api.daemonset["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    code, output = second.end()
    assert code == 0, output
    assert read_files(node_root) == {}


def test_node_that_is_no_longer_selected_is_left(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    pod = start()
    pod.wait_ready()
    api.labels["nvidia.com/gpu.present"] = "false"
    code, output = pod.end()
    assert code == 0, output
    assert (read_files(node_root), LABEL in api.labels) == ({}, False)


def test_access_deleted_first(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    """The files go; the label can't, and the exit code and the hint report it."""
    pod = start()
    pod.wait_ready()
    api.refuses = {"GET": 403, "PATCH": 403}
    code, output = pod.end()
    assert code == 1
    assert f"kubectl label node {NODE} {LABEL}-" in output
    assert read_files(node_root) == {}


def test_silent_server_keeps_all(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    pod = start()
    pod.wait_ready()
    api.stop()
    code, output = pod.end()
    assert code == 1
    assert "does not answer" in output
    assert len(installed_files(node_root)) == 2


def test_refused_label_is_a_failure(api: Api, start: Callable[..., Pod]) -> None:
    api.refuses = {"PATCH": 403}
    code, output = start().wait()
    assert code == 1
    assert "403 not here" in output
    assert "access.yaml" in output


def test_file_changed_by_somebody_stays(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    pod = start()
    pod.wait_ready()
    profile = node_root / profile_path(FOLDER)[1:]
    profile.write_text("NCCL_NET=Socket\n")
    api.daemonset = None
    code, output = pod.end()
    assert code == 1
    assert profile_path(FOLDER) in output
    assert profile.read_text() == "NCCL_NET=Socket\n"
    assert installed_files(node_root) == {profile_path(FOLDER)}


def test_directory_that_can_not_be_written(api: Api, node_root: Path, start: Callable[..., Pod]) -> None:
    """A file where the folder must be: nothing is installed, and the label is not set."""
    (node_root / "opt" / "harp").rmdir()
    (node_root / "opt" / "harp").write_text("in the way")
    code, output = start().wait()
    assert code != 0
    assert output
    assert read_files(node_root) == {"opt/harp": b"in the way"}
    assert LABEL not in api.labels
