# SPDX-License-Identifier: Apache-2.0
"""A loader sees nine tables of the right sizes in the built plugin, and nothing that runs by itself.

The demands on glibc and the libraries are in test_portable.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, SymbolTableSection

TABLE_BYTES = {4: 128, 5: 128, 6: 136, 7: 152, 8: 152, 9: 160, 10: 160, 11: 176, 12: 176}
POINTER_BYTES = 8
DF_TEXTREL, DF_BIND_NOW, DF_1_NOW = 0x4, 0x8, 0x1
ISA_NEEDED = 0xC0008002  # to older versions of pyelftools the note has no name
FORBIDDEN_CALLS = {
    "atexit": "it would outlive a dlclose",
    "on_exit": "it would outlive a dlclose",
    "signal": "signals are the trainer's",
    "exit": "a plugin must not end the trainer",
    "_exit": "a plugin must not end the trainer",
    "system": "a plugin runs no programs",
    "popen": "a plugin runs no programs",
    "setenv": "the environment is the trainer's",
    "dlopen": "libc is the only dependency",
}
# What the compiler's own start-up files put into every shared library; none of it is the plugin's.
EXIT_FUNCTIONS = {
    ".fini_array: remove_stats_at_exit",  # unlinks a file by a path in static memory
    ".fini_array: await_unused_engines",  # reads an atomic counter
}
RUNTIME_FUNCTIONS = {
    "frame_dummy",
    "__do_global_dtors_aux",
    "register_tm_clones",
    "deregister_tm_clones",
    "_init",
    "_fini",
}


@pytest.fixture
def elf(plugin_file: Path) -> Iterator[ELFFile]:
    with plugin_file.open("rb") as file:
        yield ELFFile(file)


def dynamic(elf: ELFFile) -> DynamicSection:
    (section,) = (section for section in elf.iter_sections() if isinstance(section, DynamicSection))
    return section


def tag_value(elf: ELFFile, name: str) -> int:
    return next((int(tag.entry.d_val) for tag in dynamic(elf).iter_tags(name)), 0)


def dynamic_symbols(elf: ELFFile) -> list[tuple[str, str, int, bool]]:
    """List name, type, size and whether it is defined here."""
    (table,) = (s for s in elf.iter_sections() if isinstance(s, SymbolTableSection) and s.name == ".dynsym")
    return [
        (
            symbol.name,
            symbol.entry.st_info.type,
            symbol.entry.st_size,
            symbol.entry.st_shndx != "SHN_UNDEF",
        )
        for symbol in table.iter_symbols()
        if symbol.name
    ]


def test_tables_are_data_of_the_right_size(elf: ELFFile) -> None:
    tables = {name: (kind, size) for name, kind, size, defined in dynamic_symbols(elf) if defined}
    assert tables == {f"ncclNetPlugin_v{v}": ("STT_OBJECT", size) for v, size in TABLE_BYTES.items()}


def test_tables_are_read_only_after_loading(elf: ELFFile) -> None:
    """NCCL never writes to a table; neither may a stray pointer."""
    (relro,) = (s for s in elf.iter_segments() if s.header.p_type == "PT_GNU_RELRO")
    start, end = relro.header.p_vaddr, relro.header.p_vaddr + relro.header.p_memsz
    (table,) = (s for s in elf.iter_sections() if isinstance(s, SymbolTableSection) and s.name == ".dynsym")
    for symbol in table.iter_symbols():
        if symbol.name in {f"ncclNetPlugin_v{version}" for version in TABLE_BYTES}:
            assert start <= symbol.entry.st_value < end, symbol.name


def test_every_symbol_is_resolved_at_load(elf: ELFFile) -> None:
    """NCCL loads with RTLD_NOW; a missing symbol must show there and not in mid-training."""
    assert tag_value(elf, "DT_FLAGS") & DF_BIND_NOW or tag_value(elf, "DT_FLAGS_1") & DF_1_NOW


def test_text_is_not_relocated(elf: ELFFile) -> None:
    assert not list(dynamic(elf).iter_tags("DT_TEXTREL"))
    assert not tag_value(elf, "DT_FLAGS") & DF_TEXTREL
    for segment in elf.iter_segments():
        if segment.header.p_type == "PT_LOAD":
            assert segment.header.p_flags & 3 != 3, "a segment that can be written and executed"


def test_calls_nothing_that_is_the_trainers(elf: ELFFile) -> None:
    wanted = {name for name, _, _, defined in dynamic_symbols(elf) if not defined}
    assert {name: FORBIDDEN_CALLS[name] for name in wanted & FORBIDDEN_CALLS.keys()} == {}


def test_nothing_runs_at_load_or_unload(elf: ELFFile, plugin_file: Path) -> None:
    """No constructor, and no destructor that uses what service threads may still change while exit() runs."""
    with plugin_file.with_name(f"{plugin_file.name}.debug").open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        names = {symbol.entry.st_value: symbol.name for symbol in table.iter_symbols() if symbol.name}
    relocated = {
        relocation["r_offset"]: relocation["r_addend"]
        for section in elf.iter_sections()
        if isinstance(section, RelocationSection) and section.is_RELA()
        for relocation in section.iter_relocations()
    }
    found = set()
    for name in (".preinit_array", ".init_array", ".fini_array", ".ctors", ".dtors"):
        section = elf.get_section_by_name(name)
        if section is None:
            continue
        for at in range(0, int(section["sh_size"]), POINTER_BYTES):
            stored = int.from_bytes(section.data()[at : at + POINTER_BYTES], "little")
            target = relocated.get(section["sh_addr"] + at, stored)
            found.add(f"{name}: {names.get(target, hex(target))}")
    assert {entry for entry in found if entry.split()[1] not in RUNTIME_FUNCTIONS} == EXIT_FUNCTIONS


def test_no_newer_processor_is_required(elf: ELFFile) -> None:
    """An x86-64-v2 or newer note would keep the library from loading on an older machine."""
    section = elf.get_section_by_name(".note.gnu.property")
    if not isinstance(section, NoteSection):
        return
    for note in section.iter_notes():
        if note["n_type"] != "NT_GNU_PROPERTY_TYPE_0":
            continue
        for item in note["n_desc"]:
            if item.pr_type in {"GNU_PROPERTY_X86_ISA_1_NEEDED", ISA_NEEDED}:
                assert int(item.pr_data) & ~1 == 0, "needs more than the x86-64 baseline"
