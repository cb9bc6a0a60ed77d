# SPDX-License-Identifier: Apache-2.0
"""The real self-contained file: its own Python, on a host that has none, sets a tree up and undoes it."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from dist.cpython import GLIBC
from harpctl.build_info import build_version
from tests.harpctl.machine import build_machine

pytestmark = [pytest.mark.dist, pytest.mark.timeout(1800)]

SIZE_MAX = 25_000_000
ENIS = [word for n in range(1, 9) for word in ("--address", f"eth{n}=10.0.{n}.10/24")]


@pytest.fixture(scope="module")
def file(out: Path) -> Path:
    return out / "harp_setup.sh"


def unpack_archive(file: Path, folder: Path) -> Path:
    """Unpack the archive behind the last line of text."""
    data = file.read_bytes()
    match = re.search(rb'\nharp_main "\$\{BASH_SOURCE-\}" (\d+) ', data)
    assert match
    folder.mkdir()
    subprocess.run(["tar", "-xz", "-C", str(folder)], input=data[-int(match[1]) :], check=True)
    return folder


def run_piped(file: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    with file.open("rb") as data:
        done = subprocess.run(
            ["bash", "-s", "--", *words], stdin=data, env=env, capture_output=True, timeout=300, check=False
        )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def glibc_needed(program: bytes) -> set[tuple[int, ...]]:
    elf = ELFFile(io.BytesIO(program))
    needs = [section for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)]
    assert needs
    names = [aux.name for need in needs for _, auxiliaries in need.iter_versions() for aux in auxiliaries]
    return {tuple(map(int, name[6:].split("."))) for name in names if name.startswith("GLIBC_")}


@pytest.fixture(scope="module")
def inside(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = unpack_archive(file, tmp_path_factory.mktemp("inside") / "tool")
    if not (folder / "python").is_dir():
        pytest.skip("a file without a Python of its own: dist.make said why")
    return folder


def test_it_is_small_and_its_python_runs_on_old_hosts(file: Path, inside: Path) -> None:
    assert file.stat().st_size < SIZE_MAX
    needed = glibc_needed((inside / "python/bin/python3").read_bytes())
    assert max(needed) <= tuple(map(int, GLIBC.split(".")))


def test_nothing_in_it_names_the_machine_that_built_it(root: Path, inside: Path) -> None:
    here = str(root).encode()
    files = [path for path in inside.rglob("*") if path.is_file() and path.parent.name != "build"]
    assert [path for path in files if here in path.read_bytes()] == []  # the plugin's debug information does


def test_it_runs_where_there_is_no_python(file: Path, inside: Path, bare: dict[str, str]) -> None:
    del inside
    done = run_piped(file, bare, "--version")
    assert (done.returncode, done.stdout) == (0, f"harpctl {build_version()}\n"), done.stderr


def test_it_has_the_lab(file: Path, inside: Path, bare: dict[str, str], tmp_path: Path) -> None:
    assert (inside / "app/plugin/build/fault_injector").is_file()
    done = run_piped(file, bare, "dissector", str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "harp.lua").is_file()


def test_it_sets_a_tree_up_and_undoes_it(file: Path, inside: Path, bare: dict[str, str], tmp_path: Path) -> None:
    del inside
    tree = build_machine(tmp_path / "host", "rocky-8")
    done = run_piped(file, bare, "setup", "--root", str(tree), *ENIS)
    assert "Set up HARP successfully" in done.stdout.splitlines(), done.stdout + done.stderr
    link = tree / "usr/local/bin/harpctl"
    tool = tree / str(link.readlink()).lstrip("/")
    assert (tree / "usr/local/tfabric/tools/config/ztcp7.conf").is_file()
    again = subprocess.run(
        [tool, "rollback", "--root", str(tree)], env=bare, capture_output=True, timeout=300, check=False
    )
    assert again.returncode == 0, again.stderr
    assert not link.is_symlink()
    assert not list(tree.glob("usr/local/tfabric/tools/config/*"))
    assert tool.is_file()
