# SPDX-License-Identifier: Apache-2.0
"""The built plugin drops into any image: libc alone, no SONAME, not unloaded, only NCCL's tables.

The portable build, which packages hold, is small and runs on old glibc, too. And it compiles for aarch64,
with the same compiler from PyPI.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

from harpctl.build_info import BUILD_DIR
from harpctl.facts.elf import inspect_elf

GLIBC_MAX = (2, 27)
LIBC_PARTS = {"libc.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libm.so.6"}
LOADERS = {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
EXPORTS = {f"ncclNetPlugin_v{version}" for version in range(4, 13)}
SIZE_MAX = 522_000
DF_1_NODELETE = 0x8
CROSS_TIMEOUT_S = 580
CROSS_COMPILER = "harp-cc-aarch64"


@pytest.fixture
def elf(plugin_file: Path) -> Iterator[ELFFile]:
    with plugin_file.open("rb") as file:
        yield ELFFile(file)


def tags_of(elf: ELFFile, name: str) -> list[object]:
    (dynamic,) = (section for section in elf.iter_sections() if isinstance(section, DynamicSection))
    return list(dynamic.iter_tags(name))


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        found = inspect_elf(file, str(path)).build
    assert found
    return found


def glibc_versions(elf: ELFFile) -> set[tuple[int, ...]]:
    found = set()
    for section in elf.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for _, versions in section.iter_versions():
                for version in versions:
                    kind, _, number = version.name.partition("_")
                    assert kind == "GLIBC", f"needs {version.name}"
                    found.add(tuple(int(part) for part in number.split(".")))
    return found


def test_the_portable_build_is_small_and_needs_no_newer_glibc() -> None:
    file = BUILD_DIR / "portable" / "libnccl-net.so"
    if not file.is_file():
        pytest.skip("there is no portable build: ./harp_setup build --portable")
    assert file.stat().st_size < SIZE_MAX
    with file.open("rb") as stream:
        versions = glibc_versions(ELFFile(stream))
    assert versions, "no version is needed: is this the plugin?"
    assert max(versions) <= GLIBC_MAX


def test_needs_libc_alone(elf: ELFFile) -> None:
    needed = {tag.needed for tag in tags_of(elf, "DT_NEEDED")}  # type: ignore[attr-defined]
    assert needed <= LIBC_PARTS | LOADERS


def test_has_no_soname_and_stays_loaded(elf: ELFFile) -> None:
    assert not tags_of(elf, "DT_SONAME")
    assert not tags_of(elf, "DT_RPATH")
    assert not tags_of(elf, "DT_RUNPATH")
    (flags,) = tags_of(elf, "DT_FLAGS_1")
    assert flags.entry.d_val & DF_1_NODELETE  # type: ignore[attr-defined]


def test_exports_nccls_tables_and_nothing_else(elf: ELFFile) -> None:
    (dynsym,) = (s for s in elf.iter_sections() if isinstance(s, SymbolTableSection) and s.name == ".dynsym")
    exported = {s.name for s in dynsym.iter_symbols() if s.entry.st_shndx != "SHN_UNDEF" and s.name}
    assert exported == EXPORTS


def test_its_symbols_lie_beside_it(plugin_file: Path) -> None:
    debug = plugin_file.with_name(f"{plugin_file.name}.debug")
    assert build_id(debug) == build_id(plugin_file)
    with debug.open("rb") as file, plugin_file.open("rb") as product:
        assert ELFFile(file).get_section_by_name(".debug_info")
        assert not ELFFile(product).get_section_by_name(".debug_info")


def test_stack_is_not_executable(elf: ELFFile) -> None:
    (stack,) = (segment for segment in elf.iter_segments() if segment.header.p_type == "PT_GNU_STACK")
    assert not stack.header.p_flags & 1


@pytest.mark.timeout(CROSS_TIMEOUT_S + 20)
def test_compiles_for_aarch64(root: Path) -> None:
    programs = Path(sys.executable).parent
    if not (programs / CROSS_COMPILER).exists():
        pytest.skip(f"{CROSS_COMPILER} is not there: PyPI's ziglang was out of reach")
    words = [f"-j{os.cpu_count()}", "VARIANT=cross", "WERROR=1", "OPT=-O0", f"CC={CROSS_COMPILER}", "all"]
    done = subprocess.run(
        ["make", "-C", str(root / "plugin"), *words],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=CROSS_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    with (root / "plugin" / "build" / "cross" / "libnccl-net.so").open("rb") as file:
        assert ELFFile(file).get_machine_arch() == "AArch64"
