# SPDX-License-Identifier: Apache-2.0
"""Reads a shared library's ELF file: machine, exports, needs, and the name that NCCL logs for a plugin.

Read with pyelftools from the section headers. Nothing is loaded or run, so a file of another machine, a
damaged one or a hostile one is looked at as safely as our own.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO, TypeVar

import msgspec
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import NoteSection, Section, SymbolTableSection

from harpctl.errors import ExitCode, HarpError

SectionKind = TypeVar("SectionKind", bound=Section)
MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64", "EM_386": "i386", "EM_PPC64": "ppc64le"}
TABLE = re.compile(r"ncclNetPlugin_v(\d{1,3})")
GLIBC = re.compile(r"GLIBC_(\d+(?:\.\d+)+)")
MARK = re.compile(rb"@\(#\)HARP ([0-9A-Za-z.+~-]{1,40})\0")  # as what(1) finds it
WIRE = re.compile(rb"@\(#\)HARP-WIRE ([0-9]{1,3})-([0-9]{1,3})\0")
NAME = "HARP"
NAME_BYTES_MAX = 128
BUILD_DIGITS = 12  # the digits of the linker's id, as the plugin logs it
READ_BYTES_MAX = 16 << 20
# What pyelftools raises for bytes that are no ELF file, as seen in tests.
DAMAGED = (
    ELFError,
    ConstructError,
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    OSError,
    RecursionError,
    TypeError,
    ValueError,
)


class Dynamic(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that the loader reads of a library or a program; None: the file does not have the entry."""

    soname: str = ""
    needed: tuple[str, ...] = ()  # DT_NEEDED
    rpath: str | None = None  # DT_RPATH
    runpath: str | None = None  # DT_RUNPATH


class Elf(msgspec.Struct, frozen=True, kw_only=True):
    """A shared library. Versions are texts such as "2.27"; texts are empty where the file has none."""

    machine: str  # as uname -m prints it
    soname: str = ""
    needed: tuple[str, ...] = ()  # DT_NEEDED
    glibc: str = ""  # the newest symbol version of glibc that it requires
    glibc_defined: str = ""  # the newest that it provides: libc.so.6 itself
    abis: tuple[int, ...] = ()  # N of each ncclNetPlugin_vN exported, newest first
    name: str = ""  # what the newest of these tables calls itself: "Using network NAME"
    version: str = ""  # HARP's
    wire: tuple[int, ...] = ()  # the oldest and the newest wire version that HARP's speaks
    build: str = ""  # first digits of the build id, which the linker writes

    @property
    def is_harp(self) -> bool:
        """Return whether it is HARP's plugin."""
        return bool(self.abis) and self.name.upper() == NAME


def version_key(version: str) -> tuple[int, ...]:
    """Return a version's numbers, to compare by; "" is older than all."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def inspect_elf(file: BinaryIO, path: str) -> Elf:
    """Read a shared library; `path` names it in the errors for what is no such file or only a part of one."""
    try:
        elf = ELFFile(file)
        _check_whole(elf, path)
        if elf["e_type"] != "ET_DYN":
            raise HarpError(
                f"{path} is an ELF file, but no shared library.",
                "Name the shared library itself, such as libnccl-net.so.",
                ExitCode.WRONG_DATA,
            )
        return _read_elf(elf)
    except DAMAGED as error:
        reason = str(error) or type(error).__name__
        raise HarpError(
            f"{path} is no ELF file that can be read ({reason}).",
            "Get the file again: it is damaged, or something else under this name.",
            ExitCode.WRONG_DATA,
        ) from None


def _check_whole(elf: ELFFile, path: str) -> None:
    size = elf.stream_len
    ends = [elf["e_shoff"] + elf["e_shnum"] * elf["e_shentsize"]]
    ends += [elf["e_phoff"] + elf["e_phnum"] * elf["e_phentsize"]]
    if max(ends) <= size:
        ends += [part["p_offset"] + part["p_filesz"] for part in elf.iter_segments("PT_LOAD")]
    if max(ends) > size:
        raise HarpError(
            f"{path} is cut off: it has {size} of at least {max(ends)} bytes.",
            "Copy the file again.",
            ExitCode.WRONG_DATA,
        )


def _read_elf(elf: ELFFile) -> Elf:
    tables = _find_tables(elf)
    abis = tuple(sorted(tables, reverse=True))
    name = _table_name(elf, tables[abis[0]]) if abis else ""
    dynamic = _read_dynamic(elf)
    marks = _read_constants(elf) if name.upper() == NAME else b""
    version, wire = MARK.search(marks), WIRE.search(marks)
    return Elf(
        machine=MACHINES.get(elf["e_machine"], str(elf["e_machine"]).removeprefix("EM_").lower()),
        soname=dynamic.soname,
        needed=dynamic.needed,
        glibc=_newest_glibc(_versions_needed(elf)),
        glibc_defined=_newest_glibc(_versions_defined(elf)),
        abis=abis,
        name=name,
        version=version[1].decode() if version else "",
        wire=tuple(map(int, wire.groups())) if wire else (),
        build=_build_id(elf),
    )


def _find_section(elf: ELFFile, name: str, kind: type[SectionKind]) -> SectionKind | None:
    section = elf.get_section_by_name(name)
    return section if isinstance(section, kind) else None


def _find_tables(elf: ELFFile) -> dict[int, int]:
    """Return the address of each exported ncclNetPlugin_vN."""
    symbols = _find_section(elf, ".dynsym", SymbolTableSection)
    found = {}
    for symbol in symbols.iter_symbols() if symbols else ():
        match = TABLE.fullmatch(symbol.name)
        if match and symbol["st_shndx"] != "SHN_UNDEF" and symbol["st_info"]["bind"] != "STB_LOCAL":
            found[int(match[1])] = symbol["st_value"]
    return found


def _read_dynamic(elf: ELFFile) -> Dynamic:
    section = _find_section(elf, ".dynamic", DynamicSection)
    found: dict[str, list[str]] = {"soname": [], "needed": [], "rpath": [], "runpath": []}
    for tag in section.iter_tags() if section else ():
        name = str(tag["d_tag"]).removeprefix("DT_").lower()
        if name in found:
            found[name].append(getattr(tag, name, ""))
    return Dynamic(
        soname="".join(found["soname"][-1:]),
        needed=tuple(found["needed"]),
        rpath=next(iter(found["rpath"]), None),
        runpath=next(iter(found["runpath"]), None),
    )


def read_dynamic(file: BinaryIO) -> Dynamic | None:
    """Read what the loader goes by, of a library or a program; None for what is no ELF file."""
    try:
        return _read_dynamic(ELFFile(file))
    except DAMAGED:
        return None


def _versions_needed(elf: ELFFile) -> list[str]:
    section = _find_section(elf, ".gnu.version_r", GNUVerNeedSection)
    return [one.name for _file, ones in (section.iter_versions() if section else ()) for one in ones]


def _versions_defined(elf: ELFFile) -> list[str]:
    section = _find_section(elf, ".gnu.version_d", GNUVerDefSection)
    return [next(names).name for _version, names in (section.iter_versions() if section else ())]


def _newest_glibc(names: list[str]) -> str:
    versions = [match[1] for match in map(GLIBC.fullmatch, names) if match]
    return max(versions, key=version_key, default="")


def _table_name(elf: ELFFile, table: int) -> str:
    """Return the text that the first field of a table points to, as the loader would relocate it."""
    target = None
    for section in elf.iter_sections("SHT_RELA"):
        if isinstance(section, RelocationSection) and section["sh_flags"] & SH_FLAGS.SHF_ALLOC:
            for entry in section.iter_relocations():
                if entry["r_offset"] == table:
                    target = entry["r_addend"]
    if target is None:  # DT_RELR: the address stands in the table itself
        raw = _bytes_at(elf, table, elf.elfclass // 8)
        target = int.from_bytes(raw, "little" if elf.little_endian else "big")
    if target == 0:  # filled in when it is loaded
        return ""
    return _bytes_at(elf, target, NAME_BYTES_MAX).split(b"\0")[0].decode("utf-8", "replace")


def _bytes_at(elf: ELFFile, address: int, count: int) -> bytes:
    """Return up to `count` bytes of the file that are loaded at an address."""
    for part in elf.iter_segments("PT_LOAD"):
        begin = address - part["p_vaddr"]
        if 0 <= begin < part["p_filesz"]:
            elf.stream.seek(part["p_offset"] + begin)
            return bytes(elf.stream.read(min(count, part["p_filesz"] - begin)))
    return b""


def _read_constants(elf: ELFFile) -> bytes:
    """Return the bytes of .rodata, where HARP's marks are."""
    section = elf.get_section_by_name(".rodata")
    if section is None:
        return b""
    elf.stream.seek(section["sh_offset"])
    return bytes(elf.stream.read(min(section["sh_size"], READ_BYTES_MAX)))


def _build_id(elf: ELFFile) -> str:
    section = _find_section(elf, ".note.gnu.build-id", NoteSection)
    notes = (note for note in (section.iter_notes() if section else ()) if note["n_type"] == "NT_GNU_BUILD_ID")
    return next((str(note["n_desc"])[:BUILD_DIGITS] for note in notes), "")


def find_constant(file: BinaryIO, pattern: re.Pattern[bytes]) -> str:
    """Return the first group of what a pattern finds among a library's constants; "" where it finds nothing.

    Also "" where the file is damaged.
    """
    try:
        found = pattern.search(_read_constants(ELFFile(file)))
    except DAMAGED:
        return ""
    return found[1].decode() if found else ""
