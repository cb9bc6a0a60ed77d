# SPDX-License-Identifier: Apache-2.0
"""RCCL's names of the plugin: installed, found, reported and turned off by the same rules as NCCL's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.change.rollback import roll_back
from harpctl.console import NoProgress
from harpctl.doctor.context import Context
from harpctl.doctor.examine import run_checks
from harpctl.facts.collect import collect_facts
from harpctl.facts.plugin_files import NAME, RCCL_NAME, RCCL_SUFFIXED, SUFFIXED
from harpctl.plugin.choice import RCCL, candidate_files
from harpctl.plugin.command import SwitchResult, run_switch
from harpctl.plugin.source import read_source
from harpctl.plugin.status import read_status
from harpctl.plugin.switch import plan_disable, plan_enable, plan_install
from tests.harpctl.plugin.conftest import Compile, Image

RCCL_FILE = "/opt/rocm-7.0.0/lib/librccl.so.1.0.70000"


@pytest.mark.parametrize(
    ("value", "release", "files"),
    [
        (None, "2.22.3", [RCCL_NAME]),
        (None, "2.26.6", [RCCL_NAME]),
        (None, "2.27.7", [NAME]),  # ROCm 7.2
        (None, "2.29.7", [RCCL_NAME]),
        ("harp", "2.22.3", ["harp", RCCL_SUFFIXED]),
        ("harp", "2.27.7", ["harp", RCCL_SUFFIXED]),
        ("a,/opt/harp.so", "2.29.7", ["a", "librccl-net-a.so", "/opt/harp.so"]),
        ("none", "2.29.7", []),
    ],
)
def test_the_files_that_a_release_tries(value: str | None, release: str, files: list[str]) -> None:
    assert list(candidate_files(value, release, RCCL)) == files


@pytest.fixture
def put_rccl(debian: Image, compile_library: Compile) -> Callable[[str], None]:
    """Put an RCCL of a release where ROCm has it."""
    code = 'const char text[] = "RCCL version %s+hip7.0";'

    def put(release: str) -> None:
        debian.put(compile_library(f"rccl-{release}", code % release), RCCL_FILE)
        debian.put(b"/opt/rocm-7.0.0/lib\n", "/etc/ld.so.conf")

    return put


def install_plugin(image: Image, file: Path, *, name: str = "") -> SwitchResult:
    return run_switch(
        image.host,
        "install",
        lambda: plan_install(image.host, read_source(image.host, file), name=name),
        NoProgress(),
        dry_run=False,
    )


def list_plugins(image: Image) -> list[str]:
    """Return the names of what lies in the library directory."""
    return sorted(path.name for path in image.at(image.libraries).glob("*l-net*"))


def texts_about_plugin(image: Image) -> list[str]:
    """Return all that status and doctor say of the plugin."""
    found = read_status(image.host)
    findings = run_checks(Context(image.host, collect_facts(image.host)))
    said = [text for one in findings if one.group in {"plugin", "nccl"} for text in (one.cause, *one.repair)]
    return [found.summary, *found.notes, *said]


def test_a_round_on_a_host_of_rccl(debian: Image, put_rccl: Callable[[str], None], harp: Path) -> None:
    put_rccl("2.26.6")
    before = debian.files()
    assert read_status(debian.host).summary == f"HARP is not installed: no {RCCL_NAME} where the loader searches."
    assert install_plugin(debian, harp).ok
    assert list_plugins(debian) == [NAME, RCCL_NAME]  # the first is for RCCL 2.27
    found = read_status(debian.host)
    assert (found.state, found.path) == ("enabled", f"{debian.libraries}/{RCCL_NAME}")
    (library,) = found.libraries
    assert (library.name, library.version, library.plugin, library.abi) == ("RCCL", "2.26.6", found.path, 8)
    assert not install_plugin(debian, harp).changed
    host = debian.host
    assert run_switch(host, "disable", lambda: plan_disable(host), NoProgress(), dry_run=False).ok
    assert list_plugins(debian) == [f"bak.{NAME}", f"bak.{RCCL_NAME}"]
    assert read_status(debian.host).state == "disabled"
    assert run_switch(host, "enable", lambda: plan_enable(host), NoProgress(), dry_run=False).ok
    assert list_plugins(debian) == [NAME, RCCL_NAME]
    roll_back(host, progress=NoProgress())
    assert debian.files() == before


@pytest.mark.parametrize(("release", "takes"), [("2.26.6", RCCL_NAME), ("2.27.7", NAME), ("2.29.7", RCCL_NAME)])
def test_each_release_takes_what_install_puts(
    debian: Image, put_rccl: Callable[[str], None], harp: Path, release: str, takes: str
) -> None:
    put_rccl(release)
    install_plugin(debian, harp)
    (library,) = read_status(debian.host).libraries
    assert library.plugin == f"{debian.libraries}/{takes}"


def test_beside_another_plugin_of_rccl(
    debian: Image, put_rccl: Callable[[str], None], harp: Path, foreign: Path
) -> None:
    put_rccl("2.26.6")
    debian.put(foreign, f"{debian.libraries}/{RCCL_NAME}")
    assert install_plugin(debian, harp).ok
    assert list_plugins(debian) == [NAME, RCCL_SUFFIXED, RCCL_NAME]
    found = read_status(debian.host)
    assert (found.state, found.path) == ("beside", f"{debian.libraries}/{RCCL_SUFFIXED}")
    said = texts_about_plugin(debian)
    assert any("which RCCL loads only where NCCL_NET_PLUGIN names it" in text for text in said)
    assert [text for text in said if "NCCL takes" in text or "NCCL finds" in text or "NCCL 2" in text] == []
    debian.put(b"NCCL_NET_PLUGIN=harp\n", "/etc/rccl.conf")
    assert read_status(debian.host).state == "enabled"
    debian.put(b"NCCL_NET_PLUGIN=ofi\n", "/etc/rccl.conf")
    found = read_status(debian.host)
    assert "makes RCCL look for ofi and librccl-net-ofi.so, and there is none" in found.summary


def test_nothing_of_rccl_where_there_is_none(debian: Image, harp: Path, make_nccl: Callable[[str], Path]) -> None:
    debian.put(make_nccl("2.27.7"), f"{debian.libraries}/libnccl.so.2")
    install_plugin(debian, harp)
    assert list_plugins(debian) == [NAME]


def test_both_libraries_on_one_host(
    debian: Image, put_rccl: Callable[[str], None], harp: Path, make_nccl: Callable[[str], Path]
) -> None:
    put_rccl("2.29.7")
    debian.put(make_nccl("2.27.7"), f"{debian.libraries}/libnccl.so.2")
    install_plugin(debian, harp, name=SUFFIXED)
    assert list_plugins(debian) == [SUFFIXED, RCCL_SUFFIXED]
    for name in ("nccl", "rccl"):
        debian.put(b"NCCL_NET_PLUGIN=harp\n", f"/etc/{name}.conf")
    found = read_status(debian.host)
    assert (found.state, found.path) == ("enabled", f"{debian.libraries}/{SUFFIXED}")
    taken = {one.name: one.plugin.rpartition("/")[2] for one in found.libraries}
    assert taken == {"NCCL": SUFFIXED, "RCCL": RCCL_SUFFIXED}


def test_each_reads_its_own_settings(
    debian: Image, put_rccl: Callable[[str], None], harp: Path, make_nccl: Callable[[str], Path]
) -> None:
    put_rccl("2.29.7")
    install_plugin(debian, harp)
    debian.put(b"NCCL_NET=Socket\nNCCL_NET_PLUGIN=ofi\n", "/etc/nccl.conf")
    assert read_status(debian.host).state == "enabled"
    assert not any("ofi" in text or "Socket" in text for text in texts_about_plugin(debian))
    debian.put(b"NCCL_NET_PLUGIN=ofi\n", "/root/.rccl.conf")
    assert any("makes RCCL 2.29.7 look for ofi" in note for note in read_status(debian.host).notes)
    debian.put(make_nccl("2.27.7"), f"{debian.libraries}/libnccl.so.2")
    found = read_status(debian.host)
    assert found.state == "beside"
    assert {one.name: bool(one.plugin) for one in found.libraries} == {"NCCL": False, "RCCL": True}


def test_an_upgrade_renews_the_files_of_a_package(
    debian: Image, plugin_file: Path, harp: Path, make_nccl: Callable[[str], Path]
) -> None:
    debian.put(make_nccl("2.27.7"), f"{debian.libraries}/libnccl.so.2")
    for name in (SUFFIXED, RCCL_SUFFIXED):
        debian.put(harp, f"{debian.libraries}/{name}")
    install_plugin(debian, plugin_file)
    data = {debian.at(f"{debian.libraries}/{name}").read_bytes() for name in list_plugins(debian)}
    assert (list_plugins(debian), data) == ([SUFFIXED, RCCL_SUFFIXED], {plugin_file.read_bytes()})


def test_pytorch_for_rocm(debian: Image, rocm: Callable[[str], Path], harp: Path, foreign: Path) -> None:
    folder = rocm("2.26.6").parent
    install_plugin(debian, harp)
    (library,) = read_status(debian.host).libraries
    assert library.loader.endswith("/torch/lib/libtorch_hip.so")
    assert library.plugin == f"{debian.libraries}/{RCCL_NAME}"
    (folder / RCCL_NAME).write_bytes(foreign.read_bytes())
    (library,) = read_status(debian.host).libraries
    assert library.plugin == f"/{(folder / RCCL_NAME).relative_to(debian.root)}"
    assert "by the RPATH of" in library.why
