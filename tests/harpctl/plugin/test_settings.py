# SPDX-License-Identifier: Apache-2.0
"""The environment goes before files of NCCL, also where it sets a variable to nothing."""

from __future__ import annotations

from pathlib import Path

from harpctl.host.host import Host
from harpctl.plugin.settings import all_settings, find_settings


def write_file(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_the_environment_overrules_files(tmp_path: Path) -> None:
    write_file(
        tmp_path, "etc/nccl.conf", "NCCL_NET=IB\n# NCCL_NET_PLUGIN=none\nNCCL_DEBUG = INFO\nNCCL_DEBUG=WARN\n"
    )
    write_file(tmp_path, "job.conf", "NCCL_NET=Socket\nNCCL_ALGO=RING\n")
    environment = {"NCCL_NET": "HARP", "NCCL_DEBUG": "", "NCCL_CONF_FILE": "/job.conf"}
    found = [(one.name, one.value, one.source) for one in all_settings(Host(tmp_path), environment)]
    assert found == [
        ("NCCL_NET", "HARP", "environment"),
        ("NCCL_CONF_FILE", "/job.conf", "environment"),
        ("NCCL_ALGO", "RING", "/job.conf"),
    ]


def test_only_the_plugins_variable_may_be_nothing(tmp_path: Path) -> None:
    write_file(tmp_path, "etc/nccl.conf", "NCCL_NET=\nNCCL_NET_PLUGIN=\n")
    found = [(one.name, one.value) for one in find_settings(Host(tmp_path))]
    assert found == [("NCCL_NET_PLUGIN", "")]


def test_a_tree_has_no_environment(tmp_path: Path) -> None:
    write_file(tmp_path, "root/.nccl.conf", "NCCL_NET=IB\nNCCL_DEBUG=INFO\n")
    write_file(tmp_path, "etc/nccl.conf", "NCCL_NET=HARP\n")
    found = [(one.name, one.source) for one in find_settings(Host(tmp_path))]
    assert found == [("NCCL_NET", "/root/.nccl.conf"), ("NCCL_NET", "/etc/nccl.conf")]
