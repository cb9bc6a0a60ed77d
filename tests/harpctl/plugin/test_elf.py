# SPDX-License-Identifier: Apache-2.0
"""Shared libraries are read, and damaged ones are refused by name."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harpctl.errors import ExitCode, HarpError
from harpctl.facts.elf import inspect_elf, version_key
from tests.harpctl.plugin.conftest import OTHER_MACHINE, TABLE, Compile, read_elf


def test_our_plugin(plugin_file: Path) -> None:
    elf = read_elf(plugin_file)
    assert elf.is_harp
    assert elf.name == "HARP"
    assert elf.machine == os.uname().machine
    assert elf.abis == (12, 11, 10, 9, 8, 7, 6, 5, 4)
    assert elf.soname == ""
    assert "libc.so.6" in elf.needed
    assert elf.glibc


def test_the_plugin_names_no_soname(plugin_file: Path) -> None:
    assert read_elf(plugin_file).soname == "", "ldconfig would bring a disabled plugin back"


def test_another_plugin_is_named(foreign: Path) -> None:
    elf = read_elf(foreign)
    assert (elf.name, elf.abis, elf.is_harp) == ("AWS Libfabric", (8,), False)
    assert elf.soname == "libnccl-net.so"


def test_a_name_that_is_packed_relative_is_read(compile_library: Compile) -> None:
    code = TABLE.format(symbol="ncclNetPlugin_v9", name="Packed")
    try:
        file = compile_library("packed", code, "-Wl,-z,pack-relative-relocs")
    except Exception as error:  # noqa: BLE001
        pytest.skip(f"this linker packs no relocations: {error}")
    assert read_elf(file).name == "Packed"


def test_a_name_that_is_set_when_loaded_is_unknown(compile_library: Compile) -> None:
    code = "struct { const char *name; } ncclNetPlugin_v7; __attribute__((constructor)) static void f(void)"
    file = compile_library("late", code + '{ ncclNetPlugin_v7.name = "Late"; }')
    elf = read_elf(file)
    assert (elf.abis, elf.name) == ((7,), "")


def test_version_in_rodata(compile_library: Compile) -> None:
    code = TABLE.format(symbol="ncclNetPlugin_v8", name="HARP")
    code += 'const char mark[] = "@(#)HARP 1.2.3-rc1";'
    assert read_elf(compile_library("marked", code)).version == "1.2.3-rc1"


def test_build_is_what_the_linker_wrote(compile_library: Compile) -> None:
    code = TABLE.format(symbol="ncclNetPlugin_v8", name="HARP")
    file = compile_library("built", code, "-Wl,--build-id=0x0123456789abcdef0123")
    assert read_elf(file).build == "0123456789ab"
    assert read_elf(compile_library("unbuilt", code, "-Wl,--build-id=none")).build == ""


def test_a_table_that_is_wanted_but_not_defined_is_no_plugin(compile_library: Compile) -> None:
    code = "extern int ncclNetPlugin_v8; int *where(void) { return &ncclNetPlugin_v8; }"
    assert read_elf(compile_library("wants", code)).abis == ()


def test_versions_of_glibc_that_a_library_defines(compile_library: Compile) -> None:
    script = "GLIBC_2.2.5 { global: one; local: *; };\nGLIBC_2.17 { global: two; } GLIBC_2.2.5;\n"
    script += "GLIBC_2.4 { global: three; };\nGLIBC_PRIVATE { global: four; };\n"
    code = "\n".join(f"int {name}(void) {{ return 0; }}" for name in ("one", "two", "three", "four"))
    file = compile_library("libc", code, "-nostdlib", script=script)
    assert read_elf(file).glibc_defined == "2.17"


def test_other_machine(other_machine: Path) -> None:
    assert read_elf(other_machine).machine == OTHER_MACHINE[os.uname().machine][1]


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_called_so(plugin_file: Path, part: float) -> None:
    data = plugin_file.read_bytes()
    data = data[: int(len(data) * part)]
    with pytest.raises(HarpError, match=f"a.so is cut off: it has {len(data)} of at least") as caught:
        inspect_elf(io.BytesIO(data), "/a.so")
    assert caught.value.exit_code == ExitCode.WRONG_DATA


@pytest.mark.parametrize(
    "data", [b"", b"\x7fELF", b"#!/bin/sh\n", b"\0" * 4096, b"\x7fELF\x02\x01\x01" + b"\xff" * 57]
)
def test_what_is_no_elf_file_is_refused(data: bytes) -> None:
    with pytest.raises(HarpError, match=r"/a\.so ") as caught:
        inspect_elf(io.BytesIO(data), "/a.so")
    assert caught.value.exit_code == ExitCode.WRONG_DATA


def test_a_program_is_no_shared_library(compile_library: Compile) -> None:
    file = compile_library("program", "int main(void) { return 0; }", "-no-pie", "-r", "-nostdlib")
    with pytest.raises(HarpError, match="no shared library") as caught:
        read_elf(file)
    assert "libnccl-net.so" in caught.value.hint


@given(st.data())
def test_damage_never_ends_in_a_traceback(foreign: Path, data: st.DataObject) -> None:
    whole = bytearray(foreign.read_bytes())
    size = len(whole)
    head = st.integers(0, 63)
    places = st.one_of(head, st.integers(0, size - 1), st.integers(max(0, size - 2048), size - 1))
    for at in data.draw(st.lists(places, max_size=12)):
        whole[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.one_of(st.just(size), st.integers(0, size)))
    with contextlib.suppress(HarpError):  # and nothing else
        inspect_elf(io.BytesIO(bytes(whole[:cut])), "/a.so")


def test_versions_compare_as_numbers() -> None:
    assert version_key("2.9") < version_key("2.17") < version_key("2.17.1")
    assert version_key("") < version_key("2.0")
