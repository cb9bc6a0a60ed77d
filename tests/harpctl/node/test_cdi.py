# SPDX-License-Identifier: Apache-2.0
"""`harpctl cdi`: the document is what the Container Device Interface takes, and names what is there."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from harpctl.confs.conf import CONF_DIR
from harpctl.node.profile import FOLDER, library_path
from tests.harpctl.node.schemas import InvalidError, check_own


def run_harpctl(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def print_cdi(root: Path, plugin_file: Path, *words: str) -> Any:
    installed = run_harpctl("node", "--root", str(root), "--plugin", str(plugin_file), *words)
    assert installed.exit_code == 0, installed.output
    done = run_harpctl("cdi", "--root", str(root))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_document_is_valid_and_names_what_is_installed(tmp_path: Path, plugin_file: Path) -> None:
    found = print_cdi(tmp_path, plugin_file, "--set", "HARP_IFNAME=eth1")
    check_own(found, "cdi")
    (device,) = found["devices"]
    edits = device["containerEdits"]
    assert (found["kind"], device["name"]) == ("harp/net", "all")
    assert edits["env"] == [f"NCCL_NET_PLUGIN={library_path(FOLDER)}", "HARP_IFNAME=eth1"]
    assert [mount["hostPath"] for mount in edits["mounts"]] == [FOLDER]
    assert all("ro" in mount["options"] for mount in edits["mounts"])


def test_conf_files_come_along(tmp_path: Path, plugin_file: Path) -> None:
    folder = tmp_path / CONF_DIR[1:]
    folder.mkdir(parents=True)
    (folder / "ztcp0.conf").write_text("[eni]\ninterface = eth1\n")
    found = print_cdi(tmp_path, plugin_file)
    check_own(found, "cdi")
    mounts = found["devices"][0]["containerEdits"]["mounts"]
    assert [(mount["hostPath"], mount["containerPath"]) for mount in mounts] == [
        (FOLDER, FOLDER),
        (CONF_DIR, CONF_DIR),
    ]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("kind",), "harp"),
        (("devices",), []),
        (("devices", 0, "name"), "all!"),
        (("devices", 0, "containerEdits", "env", 0), "NCCL_NET_PLUGIN"),
        (("devices", 0, "containerEdits", "mounts", 0, "hostPath"), "opt/harp"),
        (("devices", 0, "containerEdits", "mounts", 0, "options"), "ro"),
        (("devices", 0, "unheardOf"), 1),
    ],
)
def test_schema_refuses(tmp_path: Path, plugin_file: Path, path: tuple[Any, ...], value: object) -> None:
    spoiled = copy.deepcopy(print_cdi(tmp_path, plugin_file))
    at = spoiled
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    with pytest.raises(InvalidError):
        check_own(spoiled, "cdi")


def test_nothing_installed_is_reported(tmp_path: Path) -> None:
    done = run_harpctl("cdi", "--root", str(tmp_path))
    assert done.exit_code == 4
    assert "harpctl node" in done.output
    assert done.stdout == ""
