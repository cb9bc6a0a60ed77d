# SPDX-License-Identifier: Apache-2.0
"""The objects of wire/ and proto/ need nothing but four copying functions and the assert hook.

That is what sans-IO means: no clock, no system call, no allocation, no thread can hide there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

PLUGIN = Path(__file__).resolve().parents[2] / "plugin"
PURE = ("wire", "proto")
MAY_NEED = {"memcpy", "memmove", "memset", "memcmp", "harp_assert_failed"}
# The linker's own name, which -fPIC code refers to and nobody calls.
LINKER = {"_GLOBAL_OFFSET_TABLE_"}


def compiler_words() -> list[str]:
    return os.environ.get("CC", "cc").split()


def build_layers(layers: tuple[str, ...], out: Path) -> list[Path]:
    objects = []
    for layer in layers:
        for source in sorted((PLUGIN / "src" / layer).glob("*.c")):
            target = out / f"{layer}-{source.stem}.o"
            flags = [
                "-std=gnu11",
                "-O2",
                "-fPIC",
                "-D_GNU_SOURCE",
                '-DHARP_VERSION="0"',
                f"-I{PLUGIN / 'src'}",
            ]
            subprocess.run([*compiler_words(), *flags, "-c", "-o", str(target), str(source)], check=True)
            objects.append(target)
    return objects


def symbols_of(path: Path) -> tuple[set[str], set[str]]:
    """Return the names that an object defines and those that it needs."""
    defined: set[str] = set()
    needed: set[str] = set()
    with path.open("rb") as file:
        for section in ELFFile(file).iter_sections():
            if not isinstance(section, SymbolTableSection):
                continue
            for symbol in section.iter_symbols():
                if symbol.name and symbol["st_info"]["bind"] != "STB_LOCAL":
                    (needed if symbol["st_shndx"] == "SHN_UNDEF" else defined).add(symbol.name)
    return defined, needed


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    if not shutil.which(compiler_words()[0]):
        pytest.skip("no C compiler")
    return build_layers(("base", *PURE), tmp_path_factory.mktemp("purity"))


def test_pure_layers_need_nothing_from_outside(objects: list[Path]) -> None:
    ours: set[str] = set()
    for path in objects:
        ours |= symbols_of(path)[0]
    impure = {
        path.name: sorted(extra)
        for path in objects
        if path.name.startswith(PURE) and (extra := symbols_of(path)[1] - ours - MAY_NEED - LINKER)
    }
    assert not impure


def test_the_core_has_no_state_of_its_own(objects: list[Path]) -> None:
    """Connections of several engines share no variable: proto/ has constant data only."""
    variables: list[str] = []
    for path in objects:
        if not path.name.startswith("proto"):
            continue
        with path.open("rb") as file:
            variables.extend(
                f"{path.name}: {section.name} of {section['sh_size']} bytes"
                for section in ELFFile(file).iter_sections()
                if section.name in {".data", ".bss"} and section["sh_size"]
            )
    assert not variables


def test_the_check_can_fail(tmp_path: Path) -> None:
    source = tmp_path / "impure.c"
    source.write_text("#include <time.h>\ntime_t now(void);\ntime_t now(void) { return time(0); }\n")
    target = tmp_path / "impure.o"
    subprocess.run([*compiler_words(), "-fPIC", "-c", "-o", str(target), str(source)], check=True)
    assert "time" in symbols_of(target)[1]
