# SPDX-License-Identifier: Apache-2.0
"""A kernel command line: its words, and the three arguments that reserve hugepages.

Sizes and quotes are read as the kernel reads them (lib/cmdline.c, mm/hugetlb.c): `1G`, `1GB`, `1024M` and
`1048576K` are one size; `"` keeps blanks together; `-` and `_` are the same in a name; what follows `--`
belongs to init; a `hugepages=` without a `hugepagesz=` before it means the default size.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from harpctl.units import BYTES, GIB, MIB

DEFAULT, SIZE, COUNT = "default_hugepagesz", "hugepagesz", "hugepages"
SPELLING = {GIB: "1GB", 2 * MIB: "2M"}  # 1GB is how the original's documents write it

_WORD = re.compile(r'(?:"[^"]*(?:"|\Z)|[^\s"])+')
_SIZE = re.compile(r"(0[xX][0-9a-fA-F]+|[0-9]+)([kKmMgGtT]?)")


class Word(NamedTuple):
    """One word of a text, and where it stands there."""

    text: str
    start: int
    end: int


class HugepageArgs(msgspec.Struct, frozen=True, kw_only=True):
    """Hugepages to be reserved at boot: their size in bytes, and how many."""

    page_size: int
    count: int
    kernel_default: int = 2 * MIB  # the size of pages that are counted without one

    def words(self) -> tuple[str, str, str]:
        """Return the three arguments in the order in which the kernel must see them."""
        size = size_argument(self.page_size)
        return f"{DEFAULT}={size}", f"{SIZE}={size}", f"{COUNT}={self.count}"

    def __str__(self) -> str:
        return " ".join(self.words())


def size_argument(size: int) -> str:
    """Return a page size as an argument."""
    return SPELLING.get(size, f"{size >> 10}K")


def split_words(text: str, start: int = 0, end: int | None = None) -> list[Word]:
    """Split a command line, or a part of a text that holds one, into words; quotes stay in them."""
    matches = _WORD.finditer(text, start, len(text) if end is None else end)
    return [Word(match.group(), *match.span()) for match in matches]


def parse_size(text: str) -> int | None:
    """Return the bytes that a size argument means; None for what the kernel would not take."""
    match = _SIZE.match(text)
    if not match:
        return None
    digits, unit = match.groups()
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xX"
    try:
        return int(digits, 8 if is_octal else 0) * BYTES[unit.upper()]
    except ValueError:
        return None


def parse_argument(word: str) -> tuple[str, str]:
    """Return a word's name, as the kernel compares it, and its value."""
    name, _equals, value = word.strip('"').partition("=")
    return name.replace("-", "_"), value.strip('"')


def find_surplus(words: Sequence[str], wanted: HugepageArgs) -> list[bool]:
    """Return for each word whether it must go before `wanted` is added.

    What goes is every `default_hugepagesz`, every pair of the wanted size, and the three arguments in a row
    as we write them, whatever their size: they are an earlier setup's. Pairs of other sizes stay.
    """
    part = _kernel_part(words)
    kept = [(at, *parse_argument(word)) for at, word in enumerate(words[:part])]
    bare = _bare_size(words, wanted)
    while goes := _surplus_once(kept, wanted, bare):
        kept = [found for found in kept if found[0] not in goes]
    stays = {at for at, _name, _value in kept}
    return [at < part and at not in stays for at in range(len(words))]


def _surplus_once(arguments: Sequence[tuple[int, str, str]], wanted: HugepageArgs, bare: int) -> set[int]:
    """Return the numbers of the arguments that must go; without them others may have become surplus."""
    goes: set[int] = set()
    for three in zip(arguments, arguments[1:], arguments[2:], strict=False):
        names = [name for _at, name, _value in three]
        default, size = (parse_size(value) for _at, _name, value in three[:2])
        if names == [DEFAULT, SIZE, COUNT] and default is not None and default == size:
            goes.update(at for at, _name, _value in three)
    goes_with_size = bare == wanted.page_size
    for at, name, value in arguments:
        if name == DEFAULT:
            goes.add(at)
        elif name == SIZE:
            if parse_size(value) == wanted.page_size:
                goes.add(at)
            goes_with_size = at in goes
        elif name == COUNT and goes_with_size:
            goes.add(at)
    return goes


def _bare_size(words: Sequence[str], wanted: HugepageArgs) -> int:
    """Return the size of pages whose count comes before any size: the default's, whatever its place."""
    found = (
        parse_size(value) for name, value in map(parse_argument, words[: _kernel_part(words)]) if name == DEFAULT
    )
    return next((size for size in found if size), wanted.kernel_default)


def add_sizes(words: Sequence[str], wanted: HugepageArgs) -> list[str]:
    """Return the words, a count before any size with the size that it means.

    The kernel's default size changes when `wanted` is added, and the count would mean other pages.
    """
    part, bare = _kernel_part(words), size_argument(_bare_size(words, wanted))
    names = [parse_argument(word)[0] for word in words[:part]]
    end = names.index(SIZE) if SIZE in names else part
    return [f"{SIZE}={bare} {word}" if at < end and names[at] == COUNT else word for at, word in enumerate(words)]


def other_arguments(words: Sequence[str], wanted: HugepageArgs) -> tuple[str, ...]:
    """Return the hugepage arguments that stay beside `wanted`, each count with its size before it."""
    kept = [
        word for word, goes in zip(add_sizes(words, wanted), find_surplus(words, wanted), strict=True) if not goes
    ]
    return hugepage_words(" ".join(kept).split())


def hugepage_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return the hugepage arguments among the words, in their order."""
    kernel = words[: _kernel_part(words)]
    return tuple(word for word in kernel if parse_argument(word)[0] in {DEFAULT, SIZE, COUNT})


def reserved_pages(cmdline: str, kernel_default: int = 2 * MIB) -> dict[int, int]:
    """Return the hugepages that a command line reserves, by size; `hugepages=0:25,1:25` names nodes."""
    words = [word.text for word in split_words(cmdline)]
    size: int | None = _bare_size(words, HugepageArgs(page_size=0, count=0, kernel_default=kernel_default))
    found: dict[int, int] = {}
    for name, value in map(parse_argument, words[: _kernel_part(words)]):
        if name == SIZE:
            size = parse_size(value)
        elif name == COUNT and size:
            counts = [part.rpartition(":")[2] for part in value.split(",")]
            found[size] = sum(int(count) for count in counts if count.isdecimal())
    return found


def spans_to_cut(words: Sequence[Word], drop: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the spans to cut so that the words to drop go with the blanks that held them apart."""
    spans = []
    at = 0
    while at < len(words):
        if not drop[at]:
            at += 1
            continue
        last = at
        while last + 1 < len(words) and drop[last + 1]:
            last += 1
        if at > 0:
            spans.append((words[at - 1].end, words[last].end))
        elif last + 1 < len(words):
            spans.append((words[0].start, words[last + 1].start))
        else:
            spans.append((words[0].start, words[last].end))
        at = last + 1
    return spans


def rewrite_text(text: str, words: Sequence[Word], end: int, wanted: HugepageArgs, lead: str = "") -> str:
    """Return a text in which the command line, made of `words` and ending at `end`, passes `wanted`.

    `lead` is put before ours where the command line has no words.
    """
    texts = [word.text for word in words]
    drop, with_sizes = find_surplus(texts, wanted), add_sizes(texts, wanted)
    edits = [(start, stop, "") for start, stop in spans_to_cut(words, drop)]
    kept = [word for word, goes in zip(words, drop, strict=True) if not goes]
    for word, new, goes in zip(words, with_sizes, drop, strict=True):
        if new != word.text and not goes:
            edits.append((word.start, word.start, new.removesuffix(word.text)))
    part = _kernel_part([word.text for word in kept])
    if part > 0:
        edits.append((kept[part - 1].end, kept[part - 1].end, f" {wanted}"))
    elif kept:
        edits.append((kept[0].start, kept[0].start, f"{wanted} "))
    else:
        at = words[0].start if words else end
        edits.append((at, at, str(wanted) if words else f"{lead}{wanted}"))
    for start, stop, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[stop:]
    return text


def replace_arguments(cmdline: str, wanted: HugepageArgs) -> str:
    """Return the command line with `wanted` at its end instead of what reserved such pages before.

    Every other word keeps its place.
    """
    return rewrite_text(cmdline, split_words(cmdline), len(cmdline), wanted)


def reserves_exactly(cmdline: str, wanted: HugepageArgs) -> bool:
    """Return whether a kernel booted with the command line reserves exactly what is wanted."""
    words = [word.text for word in split_words(cmdline)]
    defaults: set[int | None] = set()
    counts = []
    size: int | None = wanted.page_size  # the size of a bare count, once the default is known to be the wanted one
    for name, value in map(parse_argument, words[: _kernel_part(words)]):
        if name == DEFAULT:
            defaults.add(parse_size(value))
        elif name == SIZE:
            size = parse_size(value)
        elif name == COUNT and size == wanted.page_size:
            counts.append(value)
    return defaults == {wanted.page_size} and counts == [str(wanted.count)]


def _kernel_part(words: Sequence[str]) -> int:
    return list(words).index("--") if "--" in words else len(words)
