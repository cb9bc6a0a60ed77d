# SPDX-License-Identifier: Apache-2.0
"""The arguments in /etc/default/grub and its drop-ins, edited in place.

grub-mkconfig sources the files in order and puts GRUB_CMDLINE_LINUX before GRUB_CMDLINE_LINUX_DEFAULT on the
line of every normal entry, so both together are what counts. Ours are added to GRUB_CMDLINE_LINUX where it
gets its value (a later `GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX more"` only extends it); stale ones are
cut wherever they stand. Bytes that need no change keep theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from harpctl.errors import ExitCode, HarpError
from harpctl.kargs import shell
from harpctl.kargs.cmdline import HugepageArgs, holds, surplus
from harpctl.kargs.shell import Assignment, Character, ShellFile

MAIN = "GRUB_CMDLINE_LINUX"
EXTRAS = ("GRUB_CMDLINE_LINUX_DEFAULT", "GRUB_CMDLINE_LINUX_RECOVERY")
OURS = {MAIN, *EXTRAS}


class Place(NamedTuple):
    """Where a character of a final value stands: file, assignment, character in it; -1 where nowhere."""

    file: int
    assignment: int
    character: int


class Piece(NamedTuple):
    """A character of a final value with its place. `text` is None where only a shell can know it."""

    text: str | None
    place: Place


BLANK = Piece(" ", Place(-1, -1, -1))


def edited_defaults(files: Sequence[tuple[str, str]], wanted: HugepageArgs | None) -> dict[str, str]:
    """Return the new texts of those of the files (path, text; in sourcing order) that must change.

    The first file is the one that gets GRUB_CMDLINE_LINUX where none sets it. Raises HarpError, naming file
    and line, for what cannot be edited safely.
    """
    sources = [shell.parse(path, text) for path, text in files]
    if _is_right(sources, wanted):
        return {}
    edits = _Edits(sources)
    for place in _stale(sources, wanted):
        edits.drop.setdefault(place[:2], set()).add(place.character)
    if wanted is not None:
        edits.add(str(wanted))
    texts = edits.texts()
    parsed = [shell.parse(path, text) for (path, _old), text in zip(files, texts, strict=True)]
    if not _is_right(parsed, wanted):
        raise HarpError(
            f"{files[0][0]}: the kernel arguments in it are set in a way that harpctl does not understand.",
            f"Set {MAIN} so that it ends in `{wanted or ''}` by hand, and run setup with --no-kernel-args.",
            ExitCode.WRONG_DATA,
        )
    return {path: new for (path, old), new in zip(files, texts, strict=True) if new != old}


def final_value(files: Sequence[tuple[str, str]], name: str) -> str:
    """Return what a variable holds after all files; what only a shell can know is left out."""
    values = _evaluate([shell.parse(path, text) for path, text in files])
    return _text(values.get(name, []))


def _evaluate(sources: Sequence[ShellFile]) -> dict[str, list[Piece]]:
    """Return the final values of all variables.

    A character that comes through `$GRUB_CMDLINE_LINUX...` keeps its place in the earlier assignment; through
    any other variable it gets the place of the `$`, because that variable may serve other ends.
    """
    values: dict[str, list[Piece]] = {}
    for file, source in enumerate(sources):
        for number, assignment in enumerate(source.assignments):
            if not assignment.is_certain:
                continue
            pieces = list(values.get(assignment.name, [])) if assignment.appends else []
            for index, character in enumerate(assignment.characters):
                pieces += _pieces(character, Place(file, number, index), values)
            values[assignment.name] = pieces
    return values


def _pieces(character: Character, place: Place, values: dict[str, list[Piece]]) -> list[Piece]:
    if not character.raw:
        return [Piece(character.text, place)]
    if character.variable not in values:
        return [Piece(None, place)]
    if character.variable in OURS:
        return values[character.variable]
    return [Piece(piece.text, place) for piece in values[character.variable]]


def _text(pieces: Sequence[Piece]) -> str:
    return "".join(piece.text or "" for piece in pieces)


def _is_right(sources: Sequence[ShellFile], wanted: HugepageArgs | None) -> bool:
    values = _evaluate(sources)
    main = _text(values.get(MAIN, []))
    lines = [main] + [f"{main} {_text(values[extra])}" for extra in EXTRAS if extra in values]
    return all(holds(line, wanted) for line in lines)


def _stale(sources: Sequence[ShellFile], wanted: HugepageArgs | None) -> set[Place]:
    """Return the places of all characters of words that must go. Raises HarpError where one can't be cut."""
    values = _evaluate(sources)
    _refuse_conditional(sources)
    found: set[Place] = set()
    for extra in EXTRAS:
        words = _words([*values.get(MAIN, []), BLANK, *values.get(extra, [])])
        for word, goes in zip(words, surplus([_text(word) for word in words], wanted), strict=True):
            if goes:
                found |= {piece.place for piece in word}
    return found


def _words(pieces: Sequence[Piece]) -> list[list[Piece]]:
    """Split as the kernel does: at blanks outside double quotes."""
    words: list[list[Piece]] = []
    is_quoted = False
    is_inside = False
    for piece in pieces:
        if piece.text == '"':
            is_quoted = not is_quoted
        if piece.text is not None and piece.text.isspace() and not is_quoted:
            is_inside = False
            continue
        if not is_inside:
            words.append([])
            is_inside = True
        words[-1].append(piece)
    return words


def _refuse_conditional(sources: Sequence[ShellFile]) -> None:
    for source in sources:
        for assignment in source.assignments:
            value = "".join(character.text for character in assignment.characters)
            matters = assignment.name == MAIN or (assignment.name in EXTRAS and "hugepages" in value)
            if matters and not assignment.is_certain:
                what = f"{assignment.name}, which is set under a condition or has a value without quotes"
                raise shell.unreadable(source.path, assignment.line, what)


class _Edits:
    """Collects what is to be cut and added, then returns the new texts."""

    def __init__(self, sources: Sequence[ShellFile]) -> None:
        self.sources = sources
        self.drop: dict[tuple[int, int], set[int]] = {}
        self.addition = ""
        self.target: tuple[int, int] | None = None

    def add(self, words: str) -> None:
        """Add words where the variable gets its value: the last assignment that extends no earlier one."""
        self.addition = words
        for file, source in enumerate(self.sources):
            for number, assignment in enumerate(source.assignments):
                if assignment.name == MAIN and not (self.target and _extends(assignment)):
                    self.target = (file, number)

    def texts(self) -> list[str]:
        """Return the new text of every file."""
        texts = []
        for file, source in enumerate(self.sources):
            text = source.text
            for number in range(len(source.assignments) - 1, -1, -1):
                key = (file, number)
                if key in self.drop or key == self.target:
                    assignment = source.assignments[number]
                    value = self._value(source, assignment, key)
                    text = text[: assignment.start] + value + text[assignment.end :]
            texts.append(text)
        if self.addition and self.target is None:
            texts[0] = _with_line(texts[0], f'{MAIN}="{self.addition}"')
        return texts

    def _value(self, source: ShellFile, assignment: Assignment, key: tuple[int, int]) -> str:
        characters = assignment.characters
        drop = _with_blanks(characters, self.drop.get(key, set()))
        kept = [character for index, character in enumerate(characters) if index not in drop]
        words = self.addition if key == self.target else ""
        if any(character.raw and not character.variable for character in characters):
            raise shell.unreadable(source.path, assignment.line, f"a command that sets {assignment.name}")
        if words and kept and not kept[-1].text.isspace():
            words = " " + words
        if words and assignment.closing < 0:
            return _rendered(kept, words)
        text = source.text
        value, at = "", assignment.start
        for index in sorted(drop):
            value += _joints(text[at : characters[index].start], is_cut=index - 1 in drop)
            at = characters[index].end
        if not words:
            return value + text[at : assignment.end]
        return value + text[at : assignment.closing] + words + text[assignment.closing : assignment.end]


def _extends(assignment: Assignment) -> bool:
    return assignment.appends or any(character.variable == MAIN for character in assignment.characters)


def _joints(between: str, *, is_cut: bool) -> str:
    """Return what stays of the bytes before a cut character: a line continued inside the cut goes too."""
    return between.replace("\\\n", "") if is_cut else between


def _with_blanks(characters: Sequence[Character], drop: set[int]) -> set[int]:
    """Extend the characters to drop by the blanks that held them apart from what stays."""
    grown = set(drop)
    for index in sorted(drop):
        before = index - 1
        while before >= 0 and before not in grown and characters[before].text.isspace():
            grown.add(before)
            before -= 1
    if grown and not set(range(min(grown))):
        after = next((index for index in range(len(characters)) if index not in grown), len(characters))
        while after < len(characters) and characters[after].text.isspace():
            grown.add(after)
            after += 1
    return grown


def _rendered(characters: Sequence[Character], words: str) -> str:
    """Write a value anew, in double quotes."""
    parts = [
        character.raw or (f"\\{character.text}" if character.text in '"\\$`' else character.text)
        for character in characters
    ]
    return f'"{"".join(parts)}{words}"'


def _with_line(text: str, line: str) -> str:
    if text and not text.endswith("\n"):
        text += "\n"  # never a CR: to the shell it would belong to the last value
    return f"{text}{line}\r\n" if "\r\n" in text else f"{text}{line}\n"
