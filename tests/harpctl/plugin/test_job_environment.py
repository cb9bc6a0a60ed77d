# SPDX-License-Identifier: Apache-2.0
"""HARP in the Python environment of a job, as the wheel harp_net puts it: what status and doctor say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from harpctl.cli import app
from harpctl.doctor.context import Context
from harpctl.doctor.examine import run_checks
from harpctl.doctor.model import CHECKS, Finding
from harpctl.facts.collect import collect_facts
from harpctl.facts.plugin_files import NAME, NCCL_PACKAGE, SUFFIXED
from harpctl.host.host import Host
from harpctl.plugin import search, status
from harpctl.plugin.status import read_status
from tests.harpctl.plugin.conftest import Image

PACKAGES = "/opt/env/lib/python3.11/site-packages"
PACKAGED = f"{PACKAGES}/{NCCL_PACKAGE}/{SUFFIXED}"


def find_by_check(image: Image) -> dict[str, Finding]:
    """Return what the doctor finds of the plugin and of NCCL's variables, by check."""
    found = run_checks(Context(image.host, collect_facts(image.host)))
    return {finding.id: finding for finding in found if finding.group in {"plugin", "nccl"}}


def failures_of_validate(found: dict[str, Finding]) -> list[str]:
    """Return what makes `harpctl validate` fail."""
    return [one.id for one in found.values() if one.level == "fail" and CHECKS[one.id].validates]


def set_plugin(image: Image, value: str) -> None:
    image.put(f"NCCL_NET_PLUGIN={value}\n".encode(), "/etc/nccl.conf")


def test_the_search_path_of_pytorch_leads_to_it(
    debian: Image, torch: Callable[..., Path], harp: Path, foreign: Path
) -> None:
    torch()
    debian.put(harp, PACKAGED)
    set_plugin(debian, "harp")
    found = read_status(debian.host)
    by = f"by the RPATH of {PACKAGES}/torch/lib/libtorch_cuda.so"
    assert (found.state, found.path) == ("enabled", PACKAGED)
    assert found.summary == f"HARP is enabled: {PACKAGED}, {by}."
    assert [(file.path, file.is_loaded) for file in found.files] == [(PACKAGED, True)]
    assert not found.notes
    findings = find_by_check(debian)
    assert findings["plugin.search"].level == "ok"
    assert by in findings["plugin.first"].cause
    assert failures_of_validate(findings) == []
    debian.put(foreign, PACKAGED)
    assert read_status(debian.host).state == "absent"
    assert failures_of_validate(find_by_check(debian)) == ["nccl.net_plugin"]


@pytest.mark.parametrize("value", [PACKAGED, f"{PACKAGES}/nvidia/../nvidia/nccl/lib/{SUFFIXED}"])
def test_a_setting_names_it_by_its_path(debian: Image, harp: Path, value: str) -> None:
    """What `python -m harp_net` prints."""
    debian.put(harp, PACKAGED)
    set_plugin(debian, value)
    found = read_status(debian.host)
    assert (found.state, found.path) == ("enabled", PACKAGED)
    findings = find_by_check(debian)
    assert f"NCCL takes {PACKAGED}, which is HARP, by NCCL_NET_PLUGIN" in findings["plugin.first"].cause
    assert failures_of_validate(findings) == []


def test_the_library_path_leads_to_it(
    debian: Image, harp: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    debian.put(harp, f"/opt/job/{SUFFIXED}")
    debian.put(foreign, f"/opt/job/{NAME}")
    debian.put(harp, f"{debian.libraries}/{NAME}")
    for module in (search, status):
        monkeypatch.setattr(module, "environment_dirs", lambda _host: ("/opt/none", "/opt/job"))
    found = read_status(debian.host)
    assert (found.state, found.path) == ("foreign", f"/opt/job/{NAME}")
    assert found.summary.endswith(f"not HARP: /opt/job/{NAME}, by LD_LIBRARY_PATH.")
    findings = find_by_check(debian)
    assert findings["plugin.first"].level == "fail"
    assert f"NCCL takes /opt/job/{NAME}" in findings["plugin.first"].cause
    set_plugin(debian, "harp")
    found = read_status(debian.host)
    assert (found.state, found.path) == ("enabled", f"/opt/job/{SUFFIXED}")
    findings = find_by_check(debian)
    assert findings["plugin.first"].cause.endswith(", by LD_LIBRARY_PATH.")
    assert failures_of_validate(findings) == []


def test_nothing_leads_to_it(debian: Image, torch: Callable[..., Path], harp: Path, foreign: Path) -> None:
    torch()
    debian.put(harp, PACKAGED)
    found = read_status(debian.host)
    assert (found.state, found.path) == ("beside", PACKAGED)
    assert found.summary == (
        f"HARP is in this Python environment as {PACKAGED}. Nothing leads to it: export NCCL_NET_PLUGIN={PACKAGED}"
    )
    finding = find_by_check(debian)["plugin.installed"]
    assert (finding.level, finding.repair) == ("fail", (f"export NCCL_NET_PLUGIN={PACKAGED}",))
    debian.put(foreign, f"{debian.libraries}/{NAME}")
    found = read_status(debian.host)
    assert (found.state, found.path) == ("beside", PACKAGED)
    assert f", beside the plugin AWS Libfabric ({debian.libraries}/{NAME})" in found.summary
    finding = find_by_check(debian)["plugin.first"]
    assert (finding.level, finding.repair) == ("fail", (f"export NCCL_NET_PLUGIN={PACKAGED}",))


def test_it_does_not_count_where_it_cannot_be_loaded(debian: Image, other_machine: Path) -> None:
    debian.put(other_machine, PACKAGED)
    assert read_status(debian.host).state == "absent"


# ---- without root, on the machine itself ----


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be a user whose environment has nothing of NCCL."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for name in ("NCCL_NET_PLUGIN", "NCCL_NET", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(name, raising=False)


def run_harpctl(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, [*words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.usefixtures("user")
def test_install_says_what_needs_no_root(plugin_file: Path, tmp_path: Path) -> None:
    code, output = run_harpctl("install", "--plugin", str(plugin_file))
    assert code == 5
    assert "needs root. Run the same command with sudo. Without root, for jobs from here:" in output
    assert output.endswith(f" export NCCL_NET_PLUGIN={plugin_file}")
    code, output = run_harpctl("install", "--plugin", str(plugin_file), "--dir", str(tmp_path))
    assert code == 5
    line = output.partition("for jobs from here: ")[2]
    assert os.system(line) == 0  # noqa: S605 - as the user would type it
    target = tmp_path / SUFFIXED
    assert line.endswith(f"&& export NCCL_NET_PLUGIN={target}")
    assert target.read_bytes() == plugin_file.read_bytes()


@pytest.mark.usefixtures("user")
def test_node_says_what_needs_no_root(plugin_file: Path, tmp_path: Path) -> None:
    folder = str(tmp_path / "mine")
    code, output = run_harpctl("node", "--dir", folder, "--plugin", str(plugin_file))
    assert code == 5
    assert f"mkdir -p {folder} && harpctl node --root {folder}; containers mount {folder}/opt/harp" in output
    (tmp_path / "mine").mkdir()
    assert run_harpctl("node", "--root", folder, "--plugin", str(plugin_file))[0] == 0
    assert (tmp_path / "mine/opt/harp/lib" / SUFFIXED).read_bytes() == plugin_file.read_bytes()
    code, output = run_harpctl("node", "--plugin", str(plugin_file))
    assert "mkdir -p DIR && harpctl node --root DIR; containers mount DIR/opt/harp as /opt/harp." in output


@pytest.mark.usefixtures("user")
def test_status_names_the_file_of_the_environment_and_else_that_of_harpctl(
    plugin_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if read_status(Host()).state != "absent":
        pytest.skip("HARP is installed on this machine")
    monkeypatch.setattr(status, "own_path", lambda _host: str(plugin_file))
    code, output = run_harpctl("status")
    assert code == 1
    own = f"This harpctl has it; for jobs from here, without root: export NCCL_NET_PLUGIN={plugin_file}"
    assert own in output.replace("\n", " ")
    target = tmp_path / "lib/python3.11/site-packages" / NCCL_PACKAGE / SUFFIXED
    target.parent.mkdir(parents=True)
    shutil.copy(plugin_file, target)
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path))
    code, output = run_harpctl("status")
    assert (code, f"is in this Python environment as {target}. Nothing leads to it" in output) == (1, True)
    monkeypatch.setenv("NCCL_NET_PLUGIN", str(target))
    code, output = run_harpctl("status")
    assert (code, f"is enabled: {target}." in output) == (0, True)
