# SPDX-License-Identifier: Apache-2.0
"""The packages of `make dist`: built twice with the same bytes, installed where nothing else is, removed again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from dist.names import plain_version, triplet
from harpctl.identity import build_version
from harpctl.plugin.elf import inspect
from harpctl.plugin.paths import NAME, SUFFIXED

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]

WHEEL_BYTES_MAX = 1_000_000
DEB_BYTES_MAX = 12_000_000


def build(root: Path, out: Path) -> Path:
    kinds = [word for kind in ("wheel", "deb", "rpm", "layer") for word in ("--only", kind)]
    subprocess.run([sys.executable, "-m", "dist.out", "--out", str(out), *kinds], cwd=root, check=True)
    return out


@pytest.fixture(scope="module")
def out(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(root, tmp_path_factory.mktemp("packages") / "out")


def one(out: Path, pattern: str) -> Path:
    (found,) = out.glob(pattern)
    return found


def run(*words: str | Path, code: int = 0) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_sums_name_every_file_and_hold(out: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=out, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == len(list(out.iterdir())) - 1


def test_two_builds_agree(root: Path, out: Path, tmp_path: Path) -> None:
    again = build(root, tmp_path / "another folder")
    assert (again / "SHA256SUMS").read_text() == (out / "SHA256SUMS").read_text()


def test_wheel_in_an_empty_environment(out: Path, tmp_path: Path) -> None:
    wheel = one(out, "*.whl")
    assert wheel.stat().st_size < WHEEL_BYTES_MAX
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv" / "bin"
    run(programs / "pip", "--disable-pip-version-check", "install", "--quiet", wheel)
    assert run(programs / "harpctl", "--version") == f"harpctl {build_version()}\n"
    assert "harp.lua" in run(programs / "harpctl", "dissector", tmp_path)
    image = tmp_path / "image"
    for folder in ("usr/lib64", "var/lib"):
        (image / folder).mkdir(parents=True)
    run(programs / "harpctl", "install", "--root", image)
    assert "is enabled" in run(programs / "harpctl", "status", "--root", image)
    with (image / "usr/lib64" / NAME).open("rb") as file:
        assert inspect(file, NAME).version == build_version()
    table = run(programs / "harpctl", *"bench --loopback --mode pingpong --time 0.1 --sizes 8".split())
    assert "every byte checked" in table


def test_deb_says_what_it_is(out: Path) -> None:
    deb = one(out, "*.deb")
    assert deb.stat().st_size < DEB_BYTES_MAX
    assert run("dpkg-deb", "-f", deb, "Package", "Version") == f"Package: harp\nVersion: {plain_version()}\n"
    names = {line.split()[-1] for line in run("dpkg-deb", "-c", deb).splitlines()}
    assert {f"./usr/lib/{triplet()}/{SUFFIXED}", "./usr/bin/harpctl", "./usr/bin/harp-perf"} <= names
    assert not any(name.endswith(f"/{triplet()}/{NAME}") for name in names)


def files(root: Path) -> set[str]:
    """Return the paths below a root but for dpkg's own records and caches of the system."""
    passed = ("var/lib/dpkg", "var/log", "var/cache", "proc", "sys", "dev", "tmp", "run")
    found = set()
    for folder, folders, names in os.walk(root):
        at = os.path.relpath(folder, root)
        folders[:] = [name for name in folders if not f"{at}/{name}".removeprefix("./").startswith(passed)]
        found |= {f"{at}/{name}" for name in (*folders, *names)}
    return found


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("mmdebstrap"), reason="needs root and mmdebstrap to make a Debian"
)
@pytest.mark.parametrize("release", ["bookworm"])
def test_deb_is_installed_used_and_purged(out: Path, tmp_path: Path, release: str) -> None:
    chroot = tmp_path / "debian"
    run("mmdebstrap", "--quiet", "--variant=minbase", "--include=python3", release, chroot)
    before = files(chroot)
    shutil.copy(one(out, "*.deb"), chroot / "tmp" / "harp.deb")
    run("chroot", chroot, "dpkg", "-i", "/tmp/harp.deb")
    assert run("chroot", chroot, "harpctl", "--version") == f"harpctl {build_version()}\n"
    assert "harp_scapy.py" in run("chroot", chroot, "harpctl", "dissector", "/tmp")
    assert "NCCL_NET_PLUGIN=harp" in run("chroot", chroot, "harpctl", "status", code=1)
    run("chroot", chroot, "harpctl", "install", "--name", "plain")
    assert "is enabled" in run("chroot", chroot, "harpctl", "status")
    run("chroot", chroot, "dpkg", "--purge", "harp", code=1)
    assert (chroot / "usr/bin/harpctl").exists()
    run("chroot", chroot, "harpctl", "rollback", "--yes")
    run("chroot", chroot, "dpkg", "--purge", "harp")
    assert files(chroot) == before


@pytest.mark.skipif(not shutil.which("rpmbuild"), reason="needs rpmbuild (Debian: rpm)")
def test_rpm_is_installed_queried_and_erased_in_a_root_of_its_own(out: Path, tmp_path: Path) -> None:
    package, root = one(out, "*.rpm"), tmp_path / "root"
    rpm = ("rpm", "--root", root, "--dbpath", "/var/lib/rpm")
    run(*rpm, "--initdb")
    run(*rpm, "--install", "--nodeps", "--noscripts", package)
    assert run(*rpm, "--query", "harp").startswith(f"harp-{plain_version()}-1.")
    assert f"/usr/lib64/{SUFFIXED}" in run(*rpm, "--query", "--list", "harp").splitlines()
    run(*rpm, "--verify", "--nodeps", "harp")
    program = root / "usr" / "lib" / "harp" / "bin" / "harpctl"
    assert run(program, "--version") == f"harpctl {build_version()}\n"
    journal = root / "var" / "lib" / "harp" / "journal"
    journal.mkdir(parents=True)
    (journal / "0001").touch()
    if os.geteuid() == 0:  # scripts run in the root
        run(*rpm, "--erase", "harp", code=1)
        assert program.exists()
    (journal / "0001").unlink()
    run(*rpm, "--erase", *([] if os.geteuid() == 0 else ["--noscripts"]), "harp")
    assert not (root / "usr" / "lib" / "harp").exists()
