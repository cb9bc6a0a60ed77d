# SPDX-License-Identifier: Apache-2.0
"""The Debian packages on bare hosts of Debian releases: installed, used, purged; where they do not fit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dist.names import plain_version, triplet
from harpctl.build_info import build_version
from harpctl.errors import ExitCode
from harpctl.facts.plugin_files import NAME, RCCL_SUFFIXED, SUFFIXED
from tests.harpctl.dist.conftest import Chroot, files_for, only_file_for, run_command

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]

DEB_BYTES_MAX = 3_000_000
LIBRARY = f"/usr/lib/{triplet()}/{SUFFIXED}"
Debian = Callable[[str], Chroot]


@pytest.fixture
def deb(out: Path) -> Path:
    return only_file_for(out, "harp_*.deb")


@pytest.fixture
def lab(out: Path) -> Path:
    return only_file_for(out, "harp-lab_*.deb")


def files_of(package: Path) -> set[str]:
    return {line.split()[5] for line in run_command("dpkg-deb", "-c", package).splitlines()}


def test_its_name_version_and_files(deb: Path) -> None:
    assert deb.stat().st_size < DEB_BYTES_MAX
    assert (
        run_command("dpkg-deb", "-f", deb, "Package", "Version") == f"Package: harp\nVersion: {plain_version()}\n"
    )
    names = files_of(deb)
    assert {
        f".{LIBRARY}",
        f"./usr/lib/{triplet()}/{RCCL_SUFFIXED}",
        "./usr/bin/harpctl",
        "./usr/bin/harp-perf",
    } <= names
    assert {f"./usr/share/man/man1/{page}.1.gz" for page in ("harpctl", "harpctl-setup", "harp-perf")} <= names
    assert not any(name.endswith(f"/{triplet()}/{NAME}") for name in names)


def test_the_lab_is_apart(deb: Path, lab: Path) -> None:
    assert run_command("dpkg-deb", "-f", lab, "Depends") == f"harp (= {plain_version()}), libc6 (>= 2.27)\n"
    pages = {f"./usr/share/man/man1/harpctl-{name}.1.gz" for name in ("demo", "bench", "bench-nccl", "lab-up")}
    assert pages | {"./usr/lib/harp/app/harplab/data/fault_injector"} <= files_of(lab)
    files = {name for name in files_of(lab) if not name.endswith("/")}
    assert not files & files_of(deb)


@pytest.mark.skipif(not shutil.which("lintian"), reason="needs lintian")
def test_lintian_finds_no_error(out: Path) -> None:
    run_command("lintian", "--fail-on", "error", "--allow-root", *files_for(out, "*.deb"))


def test_debug_information_is_that_of_the_library(out: Path, deb: Path, tmp_path: Path) -> None:
    debug = only_file_for(out, "harp-dbgsym_*.deb")
    for package in (deb, debug):
        run_command("dpkg-deb", "-x", package, tmp_path)
    (found,) = re.findall(r"Build ID: ([0-9a-f]+)", run_command("readelf", "-n", f"{tmp_path}{LIBRARY}"))
    assert found in run_command("dpkg-deb", "-f", debug, "Build-Ids").split()
    file = tmp_path / "usr/lib/debug/.build-id" / found[:2] / f"{found[2:]}.debug"
    assert found in run_command("readelf", "-n", file)
    assert ".debug_info" in run_command("readelf", "-SW", file)


@pytest.mark.parametrize("release", ["bookworm", "trixie"])
def test_it_is_installed_used_and_purged(deb: Path, lab: Path, debian: Debian, release: str) -> None:
    host = debian(release)
    before = host.files()
    host.run("dpkg", "-i", host.put(deb))
    assert host.run("harpctl", "--version") == f"harpctl {build_version()}\n"
    assert "install harp-lab" in host.run("harpctl", "demo", code=ExitCode.MISSING)
    host.run("dpkg", "-i", host.put(lab))
    assert host.run("harpctl", "demo").count("every byte checked") == 2
    assert "harp.lua" in host.run("harpctl", "dissector", "/tmp")
    host.run("dpkg", "--purge", "harp-lab")
    words = host.run("env", "_HARPCTL_COMPLETE=bash_complete", "COMP_WORDS=harpctl sta", "COMP_CWORD=1", "harpctl")
    assert words.split() == ["plain,stats", "plain,status"]
    assert "NCCL_NET_PLUGIN=harp" in host.run("harpctl", "status", code=1)
    host.run("harpctl", "install", "--name", "plain")
    assert "is enabled" in host.run("harpctl", "status")
    assert "First run: harpctl rollback" in host.run("dpkg", "--purge", "harp", code=1)
    assert (host.folder / "usr/bin/harpctl").exists()
    host.run("harpctl", "rollback", "--yes")
    host.run("dpkg", "--purge", "harp")
    assert host.files() == before


def test_an_older_debian_takes_the_file_that_brings_its_python(deb: Path, out: Path, debian: Debian) -> None:
    host = debian("bullseye")
    before = host.files()
    output = host.run("apt-get", "install", "--yes", "--no-install-recommends", host.put(deb), code=100)
    assert "Depends: python3 (>= 3.10)" in output
    assert host.files() == before
    host.run("python3", "-m", "venv", "/tmp/venv")
    output = host.run(
        "/tmp/venv/bin/pip", "install", "--no-deps", host.put(only_file_for(out, "harpctl-*.whl")), code=1
    )
    assert "requires a different Python" in output
    file = host.put(out / "harp_setup.sh")
    assert host.run("bash", file, "--version") == f"harpctl {build_version()}\n"
    assert '"version": "11"' in host.run("bash", file, "facts", "--json")
    assert host.files() == before


def test_what_does_not_fit_or_is_damaged_is_refused(deb: Path, debian: Debian, tmp_path: Path) -> None:
    host = debian("bookworm")
    before = host.files()
    run_command("dpkg-deb", "-R", deb, tmp_path / "other")
    control = tmp_path / "other/DEBIAN/control"
    control.write_text(re.sub("Architecture: .*", "Architecture: s390x", control.read_text()))
    run_command("dpkg-deb", "--root-owner-group", "-b", tmp_path / "other", tmp_path / "other.deb")
    output = host.run("dpkg", "-i", host.put(tmp_path / "other.deb"), code=1)
    assert "package architecture (s390x) does not match system" in output
    (tmp_path / "cut.deb").write_bytes(deb.read_bytes()[:-1000])
    host.run("dpkg", "-i", host.put(tmp_path / "cut.deb"), code=1)
    assert "Read-only file system" in host.run("dpkg", "-i", host.put(deb), code=2, read_only=True)
    assert host.files() == before
    assert host.run("dpkg-query", "-W", "-f", "${db:Status-Status}", "harp") == "not-installed"
    assert host.run("dpkg", "--audit") == ""


def test_a_read_only_image_is_left_as_it_is(deb: Path, debian: Debian) -> None:
    host = debian("bookworm")
    host.run("dpkg", "-i", host.put(deb))
    before = host.files()
    output = host.run("harpctl", "install", "--name", "plain", code=1, read_only=True)
    assert "Mount its file system writable" in output
    assert host.files() == before


def test_an_image_without_ldconfig_takes_the_layer(out: Path, debian: Debian) -> None:
    host = debian("bookworm")
    for name in ("sbin/ldconfig", "etc/ld.so.cache"):
        (host.folder / name).unlink()
    run_command("tar", "-xzf", only_file_for(out, "*-layer.tar.gz"), "-C", host.folder)
    host.run("harpctl", "install", "--name", "plain")
    assert "is enabled" in host.run("harpctl", "status")
    output = host.run("harpctl", "install", "--name", "plain", "--dir", "/opt", code=4)
    assert "This host has no ldconfig" in output
    assert not (host.folder / "opt" / NAME).exists()
