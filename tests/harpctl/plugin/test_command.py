# SPDX-License-Identifier: Apache-2.0
"""The commands as they are typed: output, JSON and exit codes."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from harpctl.facts.plugin_files import NAME, PARKED
from harpctl.plugin.command import disable, enable, install, status
from tests.harpctl.plugin.conftest import Image, make_image

NOBODY = 65534

app = click.Group(commands=[install, enable, disable, status])


VERSION = re.compile(r"HARP \d[\w.-]*(?:, build [0-9a-f]{12})?")  # where it is known; test_status.py has both


def run_harpctl(image: Image, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, [*words, "--root", str(image.root)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, VERSION.sub("HARP", result.stdout), VERSION.sub("HARP", result.stderr)


def run_json(image: Image, *words: str) -> tuple[int, dict[str, Any]]:
    code, out, _err = run_harpctl(image, *words, "--json")
    return code, json.loads(out)


def test_a_round(image: Image, plugin_file: Path) -> None:
    assert run_harpctl(image, "status")[0] == 1
    code, out, err = run_harpctl(image, "install", "--plugin", str(plugin_file))
    assert (code, "plugin: done" in err) == (0, True)
    assert out == f"HARP is installed: {image.libraries}/{NAME}.\n"
    assert run_harpctl(image, "status")[0] == 0
    assert run_harpctl(image, "disable")[1] == f"HARP is disabled: {image.libraries}/{PARKED}.\n"
    assert run_harpctl(image, "disable")[1] == f"HARP is disabled already: {image.libraries}/{PARKED}.\n"
    assert run_harpctl(image, "status")[0] == 1
    assert run_harpctl(image, "enable", "--yes")[1] == f"HARP is enabled: {image.libraries}/{NAME}.\n"
    assert run_harpctl(image, "enable")[:2] == (0, f"HARP is enabled already: {image.libraries}/{NAME}.\n")


def test_json_is_alone_on_stdout_and_nothing_on_stderr(image: Image, plugin_file: Path) -> None:
    code, out, err = run_harpctl(image, "install", "--json", "--plugin", str(plugin_file))
    assert (code, err) == (0, "")
    assert set(json.loads(out)) == {
        "action",
        "ok",
        "summary",
        "changed",
        "state",
        "path",
        "transaction",
        "notes",
        "plan",
    }


def test_status_table(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, f"{image.libraries}/{NAME}")
    image.put(b"NCCL_NET=[IB]\n", "/etc/nccl.conf")
    code, out, _err = run_harpctl(image, "status")
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    machine = os.uname().machine
    assert lines == [
        f"HARP is enabled: {image.libraries}/{NAME}.",
        f"plugin {image.libraries}/{NAME} HARP, {machine}, interfaces v4 to v12",
        "setting /etc/nccl.conf NCCL_NET=[IB]",
        "Note: NCCL_NET=[IB] (/etc/nccl.conf) selects that network and no other.",
    ]


def test_status_json(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, f"{image.libraries}/{PARKED}")
    code, found = run_json(image, "status")
    assert (code, found["state"], found["path"]) == (1, "disabled", f"{image.libraries}/{PARKED}")
    assert found["files"][0]["form"] == "bak."


def test_dry_run(image: Image, plugin_file: Path) -> None:
    before = image.files()
    code, out, _err = run_harpctl(image, "install", "--plugin", str(plugin_file), "--dry-run")
    assert (code, f"new file {image.libraries}/{NAME}, mode 0755" in out) == (0, True)
    assert image.files() == before
    _code, found = run_json(image, "install", "--plugin", str(plugin_file), "--dry-run")
    assert (found["changed"], found["transaction"], found["state"]) == (True, "", "absent")


def test_errors_have_a_remedy_and_a_code(image: Image, plugin_file: Path) -> None:
    code, out, err = run_harpctl(image, "enable")
    assert (code, out) == (4, "")
    assert err.splitlines() == [
        f"harpctl: HARP is not on this host: no {NAME}, installed or disabled.",
        f"  Run: harpctl install --root={image.root}",
    ]
    code, _out, err = run_harpctl(image, "install", "--plugin", str(plugin_file), "--dir", "/none")
    assert (code, err.startswith("harpctl: --dir /none: there is no such directory")) == (2, True)


def test_a_root_that_is_none(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["status", "--root", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "there is no such directory" in result.stderr


@pytest.fixture
def open_image() -> Iterator[Image]:
    """Provide an image where every user may look."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield make_image(Path(folder) / "image", "debian")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_without_permission(open_image: Image, plugin_file: Path) -> None:
    open_image.put(plugin_file, f"{open_image.libraries}/{NAME}")
    before = open_image.files()
    os.seteuid(NOBODY)
    try:
        looked = run_harpctl(open_image, "status")
        refused = run_harpctl(open_image, "disable")
        dry = run_harpctl(open_image, "disable", "--dry-run")
    finally:
        os.seteuid(0)
    assert looked[0] == 0
    assert (refused[0], "Run this as root" in refused[2]) == (1, True), refused
    assert (dry[0], f"rename to {open_image.libraries}/{PARKED}" in dry[1]) == (0, True)
    assert open_image.files() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_plugin_that_this_user_cannot_read(open_image: Image, plugin_file: Path) -> None:
    open_image.put(plugin_file, f"{open_image.libraries}/{NAME}").chmod(0o600)
    os.seteuid(NOBODY)
    try:
        code, _out, err = run_harpctl(open_image, "disable")
    finally:
        os.seteuid(0)
    assert (code, "cannot be read by this user" in err, "sudo" in err) == (5, True, True)
