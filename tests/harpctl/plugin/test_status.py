# SPDX-License-Identifier: Apache-2.0
"""`status` reports of a host who wins, what NCCL picks, and what stands in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harpctl.facts.plugin_files import FORMS, INSTALLED, NAME, PARKED
from harpctl.plugin import status
from harpctl.plugin.settings import find_settings, parse_conf
from harpctl.plugin.status import read_status
from tests.harpctl.plugin.conftest import Compile, Image

LDCONFIG = shutil.which("ldconfig", path="/sbin:/usr/sbin")


def test_enabled(image: Image, plugin_file: Path, make_nccl: Callable[[str], Path]) -> None:
    image.put(plugin_file, f"{image.libraries}/{NAME}")
    image.put(make_nccl("2.21.5"), f"{image.libraries}/libnccl.so.2")
    image.put(make_nccl("2.7.8"), "/opt/conda/lib/libnccl.so.2")
    image.put(b"", "/usr/local/tfabric/tools/config/ztcp0.conf")
    found = read_status(image.host)
    assert (found.state, found.path) == ("enabled", f"{image.libraries}/{NAME}")
    assert [(file.is_loaded, file.is_harp) for file in found.files] == [(True, True)]
    assert [(one.version, one.abi) for one in found.libraries] == [("2.21.5", 8), ("2.7.8", None)]
    assert found.conf_files == ("/usr/local/tfabric/tools/config/ztcp0.conf",)
    assert found.notes == ("NCCL 2.7.8 (/opt/conda/lib/libnccl.so.2) finds no interface that it knows.",)


def test_absent(image: Image) -> None:
    found = read_status(image.host)
    assert (found.state, found.path, found.files) == ("absent", "", ())


def test_disabled_shows_what_nccl_would_pick(
    image: Image, plugin_file: Path, make_nccl: Callable[[str], Path]
) -> None:
    image.put(plugin_file, f"{image.libraries}/{PARKED}")
    image.put(make_nccl("2.27.7"), f"{image.libraries}/libnccl.so.2")
    found = read_status(image.host)
    assert (found.state, found.path) == ("disabled", f"{image.libraries}/{PARKED}")
    assert [one.abi for one in found.libraries] == [10]
    assert not any(file.is_loaded for file in found.files)


def test_foreign_first(debian: Image, plugin_file: Path, foreign: Path) -> None:
    debian.put(b"/opt/amazon/lib\n", "/etc/ld.so.conf")
    debian.put(foreign, f"/opt/amazon/lib/{NAME}")
    debian.put(plugin_file, f"{debian.libraries}/{NAME}")
    found = read_status(debian.host)
    assert (found.state, found.path) == ("foreign", f"/opt/amazon/lib/{NAME}")
    assert "AWS Libfabric" in found.summary
    notes = [note for note in found.notes if f"{debian.libraries}/{NAME} is HARP" in note]
    assert [note.partition(" too; ")[2] for note in notes] == [f"/opt/amazon/lib/{NAME} comes first."]


def test_the_loader_passes_by_other_machines_and_dangling_links(
    debian: Image, plugin_file: Path, other_machine: Path
) -> None:
    debian.put(b"/opt/a\n/opt/b\n", "/etc/ld.so.conf")
    debian.put(other_machine, f"/opt/a/{NAME}")
    debian.at("/opt/b").mkdir()
    debian.at(f"/opt/b/{NAME}").symlink_to("gone")
    debian.put(plugin_file, f"{debian.libraries}/{NAME}")
    assert read_status(debian.host).path == f"{debian.libraries}/{NAME}"


def test_the_loader_stops_at_a_damaged_file(debian: Image, plugin_file: Path) -> None:
    debian.put(b"/opt/a\n", "/etc/ld.so.conf")
    debian.put(plugin_file.read_bytes()[:5000], f"/opt/a/{NAME}")
    debian.put(plugin_file, f"{debian.libraries}/{NAME}")
    found = read_status(debian.host)
    assert (found.state, found.path) == ("broken", f"/opt/a/{NAME}")
    assert "is cut off" in found.summary


def test_the_real_loader_agrees(plugin_file: Path, foreign: Path, other_machine: Path, tmp_path: Path) -> None:
    """Let dlopen choose among folders as test_the_loader_... show that it does."""
    for name, file in (("a", other_machine), ("c", plugin_file), ("d", foreign)):
        (tmp_path / name).mkdir()
        shutil.copy(file, tmp_path / name / NAME)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / NAME).symlink_to("gone")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / NAME).write_bytes(plugin_file.read_bytes()[:5000])
    assert _dlopen_first(tmp_path, "a", "b", "c", "d") == str(tmp_path / "c" / NAME)
    assert _dlopen_first(tmp_path, "e", "c") == ""


def _dlopen_first(folder: Path, *names: str) -> str:
    import sys

    code = f"import ctypes; ctypes.CDLL({NAME!r}); print(open('/proc/self/maps').read())"
    path = ":".join(str(folder / name) for name in names)
    env = {**os.environ, "LD_LIBRARY_PATH": path}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    return next((line.split()[-1] for line in done.stdout.splitlines() if line.endswith(NAME)), "")


def test_a_host_with_an_older_glibc(image: Image, plugin_file: Path, compile_library: Compile) -> None:
    script = "GLIBC_2.12 { global: one; local: *; };\n"
    libc = compile_library("libc2.12", "int one(void) { return 1; }", "-nostdlib", script=script)
    image.put(libc, f"{image.libraries}/libc.so.6")
    image.put(plugin_file, f"{image.libraries}/{NAME}")
    found = read_status(image.host)
    assert found.state == "broken"
    assert "needs glibc" in found.summary


def test_of_two_in_the_environment_the_first_is_named(
    image: Image, plugin_file: Path, foreign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image.put(foreign, f"/opt/a/{NAME}")
    image.put(plugin_file, f"/opt/b/{NAME}")
    folders = ("/opt/none", "/opt/a", "/opt/b")
    monkeypatch.setattr(status, "environment_dirs", lambda _host: folders)
    (note,) = [note for note in read_status(image.host).notes if "LD_LIBRARY_PATH" in note]
    assert note == (
        f"LD_LIBRARY_PATH leads to /opt/a/{NAME} (the plugin AWS Libfabric) first, before /opt/b/{NAME}, for"
        " jobs that are given it."
    )


# ---- settings ----


def test_settings_that_keep_nccl_from_harp(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, f"{image.libraries}/{NAME}")
    image.put(b"# a comment\nNCCL_DEBUG=INFO\nNCCL_NET=Socket\nHARP_DISABLE=1\n", "/etc/nccl.conf")
    image.put(b"NCCL_NET_PLUGIN=ofi\n", "/home/ann/.nccl.conf")
    found = read_status(image.host)
    assert [(one.name, one.value, one.source) for one in found.settings] == [
        ("NCCL_NET_PLUGIN", "ofi", "/home/ann/.nccl.conf"),
        ("NCCL_NET", "Socket", "/etc/nccl.conf"),
        ("HARP_DISABLE", "1", "/etc/nccl.conf"),
    ]
    assert len(found.notes) == 3
    assert found.notes[2] == "HARP_DISABLE=1 (/etc/nccl.conf) turns HARP off."
    assert "look for ofi and libnccl-net-ofi.so, and there is none" in found.notes[0]


@pytest.mark.parametrize(
    "line",
    [
        "NCCL_NET=HARP",
        "NCCL_NET=harp",
        "NCCL_NET_PLUGIN=libnccl-net.so",
        "NCCL_NET_PLUGIN=/usr/lib/libnccl-net.so",
        "NCCL_NET_PLUGIN=ofi,libnccl-net.so",
        "#NCCL_NET=Socket",
        "NCCL_NET=",
        "HARP_DISABLE=0",
    ],
)
def test_settings_that_do_not(image: Image, line: str) -> None:
    image.put(f"{line}\n".encode(), "/etc/nccl.conf")
    assert not any(setting.obstacle for setting in find_settings(image.host))


def test_the_first_of_a_name_counts() -> None:
    assert parse_conf("A = 1\nA=2\nno line\n=3\n") == {"A": "1", "": "3"}


# ---- ldconfig ----


@pytest.mark.skipif(LDCONFIG is None or os.geteuid() != 0, reason="needs ldconfig and root to change the root")
@pytest.mark.parametrize("name", [name for name in FORMS if FORMS[name] != INSTALLED])
def test_ldconfig_does_not_bring_harp_back(image: Image, plugin_file: Path, name: str) -> None:
    image.put(plugin_file, f"{image.libraries}/{name}")
    image.put(f"{image.libraries}\n".encode(), "/etc/ld.so.conf")
    subprocess.run([str(LDCONFIG), "-r", str(image.root)], check=True, capture_output=True)
    assert image.at("/etc/ld.so.cache").is_file()
    assert not os.path.lexists(image.at(f"{image.libraries}/{NAME}"))
    assert read_status(image.host).state == "disabled"


@pytest.mark.skipif(LDCONFIG is None or os.geteuid() != 0, reason="needs ldconfig and root to change the root")
def test_ldconfig_does_bring_a_soname_back_and_status_warns(debian: Image, foreign: Path) -> None:
    debian.put(foreign, f"{debian.libraries}/{NAME}_bak")
    debian.put(f"{debian.libraries}\n".encode(), "/etc/ld.so.conf")
    note = f"ldconfig will enable {debian.libraries}/{NAME}_bak again: its SONAME is {NAME}."
    assert note in read_status(debian.host).notes
    subprocess.run([str(LDCONFIG), "-r", str(debian.root)], check=True, capture_output=True)
    assert debian.at(f"{debian.libraries}/{NAME}").is_symlink()
