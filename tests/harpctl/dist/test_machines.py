# SPDX-License-Identifier: Apache-2.0
"""The packages of each machine: their names, and what is for it and for an old glibc in them."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from dist.names import DEBIAN, HERE, MACHINES, plain_version
from dist.wheel import GLIBC
from tests.harpctl.dist.conftest import only_file_for, run_command
from tests.meta.test_portable import glibc_versions

pytestmark = [
    pytest.mark.dist,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        not all(map(shutil.which, ("rpm", "rpm2cpio", "cpio"))), reason="needs rpm, rpm2cpio and cpio"
    ),
]
ELF_NAMES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
OURS = {
    "libnccl-net-harp.so",
    "libnccl-net.so",
    "harp-perf",
    "fault_injector",
    "default_buffers.so",
    "harp-simulate",
}


def elf_files(folder: Path) -> list[Path]:
    """Return the programs and libraries of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return [file for file in files if file.read_bytes()[:4] == b"\x7fELF"]


def unpack_packages(out: Path, machine: str, folder: Path) -> dict[str, Path]:
    """Unpack every package of a machine, each into a folder; return them by the package's name."""
    debian, version = DEBIAN[machine], plain_version()
    tag = f"py3-none-manylinux_{GLIBC}_{machine}"
    names = [
        *(f"{name}_{version}_{debian}.deb" for name in ("harp", "harp-lab", "harp-dbgsym")),
        *(f"{name}-{version}-1.{machine}.rpm" for name in ("harp", "harp-lab", "harp-debuginfo")),
        *(f"{name}-{version}-{tag}.whl" for name in ("harpctl", "harpctl_lab", "harp_net")),
        f"harp-{version}-{machine}-layer.tar.gz",
    ]
    for name in names:
        file, into = only_file_for(out, name, machine), folder / name
        into.mkdir()
        if name.endswith(".deb"):
            run_command("dpkg-deb", "-x", file, into)
        elif name.endswith(".rpm"):
            run_command("sh", "-c", 'rpm2cpio "$0" | (cd "$1" && cpio -idm --quiet)', file, into)
        elif name.endswith(".whl"):
            with zipfile.ZipFile(file) as wheel:
                wheel.extractall(into)
        else:
            run_command("tar", "-xzf", file, "-C", into)
    return {name: folder / name for name in names}


@pytest.mark.parametrize("machine", MACHINES)
def test_what_is_in_them_is_for_the_machine(out: Path, tmp_path: Path, machine: str) -> None:
    for name, folder in unpack_packages(out, machine, tmp_path).items():
        files = elf_files(folder)
        assert files, f"{name} holds no program"
        found = {}
        for file in files:
            with file.open("rb") as stream:
                elf = ELFFile(stream)
                found[file.name] = elf.header["e_machine"]
                if file.name in OURS:
                    versions = glibc_versions(elf)
                    assert versions, file
                    assert max(versions) <= tuple(map(int, GLIBC.split("_"))), file
        assert set(found.values()) == {ELF_NAMES[machine]}, (name, found)
        if not any(word in name for word in ("lab", "debuginfo", "dbgsym")):
            assert OURS & found.keys(), name


@pytest.mark.parametrize("machine", MACHINES)
def test_they_say_for_which_machine_they_are(out: Path, machine: str) -> None:
    for name in ("harp", "harp-lab", "harp-dbgsym"):
        package = only_file_for(out, f"{name}_*.deb", machine)
        assert run_command("dpkg-deb", "-f", package, "Architecture") == f"{DEBIAN[machine]}\n"
    for name in ("harp", "harp-lab", "harp-debuginfo"):
        package = only_file_for(out, f"{name}-{plain_version()}-*.rpm", machine)
        assert run_command("rpm", "-qp", "--queryformat", "%{ARCH}", package) == machine
    for name in ("harpctl", "harpctl_lab", "harp_net"):
        with zipfile.ZipFile(only_file_for(out, f"{name}-*.whl", machine)) as wheel:
            (file,) = (each for each in wheel.namelist() if each.endswith(".dist-info/WHEEL"))
            assert f"Tag: py3-none-manylinux_{GLIBC}_{machine}\n" in wheel.read(file).decode()


def test_the_other_machines_package_is_refused_here(out: Path, tmp_path: Path) -> None:
    """By the launcher, where the package manager was told to install it all the same."""
    other = next(machine for machine in MACHINES if machine != HERE)
    run_command("dpkg-deb", "-x", only_file_for(out, "harp_*.deb", other), tmp_path)
    program = tmp_path / "usr/lib/harp/bin/harpctl"
    output = run_command(program, "--version", code=4)
    assert f"this package is for {other}, and this host is {HERE}" in output
