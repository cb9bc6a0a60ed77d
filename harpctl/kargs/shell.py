# SPDX-License-Identifier: Apache-2.0
"""Reads a file of shell assignments, such as /etc/default/grub, so that single characters can be edited.

Only what the shell itself would do without running anything is understood: assignments, quotes, escapes,
continued lines, comments. Every character of a value knows where it stands in the file and in which quotes.
Other commands are skipped; assignments under a condition, or made for one command, are marked so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import msgspec

from harpctl.errors import ExitCode, HarpError

_ASSIGNMENT = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\+?)=")
_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_OPENERS = {"if", "case", "for", "while", "until", "select", "{"}
_CLOSERS = {"fi", "esac", "done", "}"}
_CLAUSES = {"then", "else", "elif", "do", "!", "time"}
_SEPARATORS = ";&|()\n"


class Character(NamedTuple):
    """One character of a value, or an expansion in it (`raw` then is its source, `text` empty)."""

    text: str
    start: int
    end: int
    quote: str  # '"', "'" or "" for none
    run: int  # characters of one quoted part of a value have the same number
    raw: str = ""
    variable: str = ""  # what is expanded; "" for a command or anything else that only a shell can know


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment of a file."""

    name: str
    appends: bool  # NAME+=value
    is_certain: bool  # it is always carried out: no condition, no command that it is only made for
    line: int  # from 1
    start: int  # of its value
    end: int
    closing: int  # where the quote stands that ends the value; -1 when it ends without one
    characters: tuple[Character, ...]


class ShellFile(msgspec.Struct, frozen=True, kw_only=True):
    """The text of a file with its assignments, in order."""

    path: str
    text: str
    assignments: tuple[Assignment, ...]


def parse(path: str, text: str) -> ShellFile:
    """Parse a file. Raises HarpError naming path and line where a quote or an expansion is not closed."""
    reader = _Reader(path, text)
    return ShellFile(path=path, text=text, assignments=tuple(reader.assignments()))


class _Word(NamedTuple):
    characters: tuple[Character, ...]
    start: int
    end: int
    closing: int


class _Command:
    """What is known of the command being read, and of the ones around it."""

    def __init__(self) -> None:
        self.pending: list[Assignment] = []
        self.depth = 0  # of if, case, loops and braces
        self.parentheses = 0
        self.is_conditional = False  # after && or ||, or in a pipe
        self.is_first = True  # the command's name is still to come
        self.is_empty = True
        self.exports = False

    @property
    def takes_assignment(self) -> bool:
        return self.is_first or self.exports

    @property
    def is_certain(self) -> bool:
        return not (self.depth or self.parentheses or self.is_conditional)

    def assign(self, assignment: Assignment) -> None:
        self.pending.append(assignment)
        self.is_empty = False

    def word(self, word: str) -> None:
        """Take a word that is no assignment; a program's name undoes the assignments made before it."""
        self.is_empty = False
        if not self.is_first:
            return
        if word in _OPENERS | _CLOSERS:
            self.depth = max(0, self.depth + (1 if word in _OPENERS else -1))
            self.is_first = word in {"if", "while", "until", "{"}
        elif word not in _CLAUSES:
            self.exports = word == "export"
            self.is_first = False
            self._mark_uncertain()

    def end(self, operator: str) -> list[Assignment]:
        """End the command; return what it assigned."""
        self.parentheses = max(0, self.parentheses + {"(": 1, ")": -1}.get(operator, 0))
        if operator in {"|", "&"}:
            self._mark_uncertain()
        goes_on = operator == "\n" and self.is_empty
        self.is_conditional = operator in {"&&", "||", "|"} or (self.is_conditional and goes_on)
        done, self.pending = self.pending, []
        self.is_first, self.is_empty, self.exports = True, True, False
        return done

    def _mark_uncertain(self) -> None:
        self.pending = [msgspec.structs.replace(lost, is_certain=False) for lost in self.pending]


class _Reader:
    """Walks over the text once, word by word."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.at = 0

    def assignments(self) -> list[Assignment]:
        """Read to the end and return what is assigned."""
        found: list[Assignment] = []
        command = _Command()
        while self._skip_blanks():
            here = self.text[self.at]
            if here in _SEPARATORS:
                operator = here * 2 if self.text.startswith(here * 2, self.at) and here in ";&|" else here
                found += command.end(operator)
                self.at += len(operator)
            elif here in "<>":
                self._skip_redirection()
            elif command.takes_assignment and (match := _ASSIGNMENT.match(self.text, self.at)):
                command.assign(self._assignment(match, is_certain=command.is_certain))
            else:
                word = self._word()
                command.word(self.text[word.start : word.end])
        return found + command.end("\n")

    def _assignment(self, match: re.Match[str], *, is_certain: bool) -> Assignment:
        self.at = match.end()
        word = self._word()
        return Assignment(
            name=match[1],
            appends=bool(match[2]),
            is_certain=is_certain,
            line=self._line(match.start()),
            start=word.start,
            end=word.end,
            closing=word.closing,
            characters=word.characters,
        )

    def _skip_blanks(self) -> bool:
        """Skip blanks, continued lines, comments and the CR of a CRLF; return whether anything is left."""
        text = self.text
        while self.at < len(text):
            if text[self.at] in " \t" or self._is_line_end_cr():
                self.at += 1
            elif text.startswith("\\\n", self.at):
                self.at += 2
            elif text[self.at] == "#":
                end = text.find("\n", self.at)
                self.at = len(text) if end < 0 else end
            else:
                return True
        return False

    def _is_line_end_cr(self) -> bool:
        return self.text[self.at] == "\r" and self.text[self.at + 1 : self.at + 2] in {"", "\n"}

    def _skip_redirection(self) -> None:
        if self.text.startswith("<<", self.at):
            raise self._error(self.at, "a here-document")
        while self.at < len(self.text) and self.text[self.at] in "<>&":
            self.at += 1
        if self._skip_blanks() and self.text[self.at] not in _SEPARATORS:
            self._word()

    def _word(self) -> _Word:
        """Read one word: up to a blank or a separator outside quotes."""
        start, characters, run, closing = self.at, list[Character](), 0, -1
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in " \t<>" or here in _SEPARATORS or self._is_line_end_cr():
                break
            run += 1
            closing = -1
            if here in "'\"":
                characters += self._quoted(here, run)
                closing = self.at - 1
            elif self.text.startswith(("$'", '$"'), self.at):
                raise self._error(self.at, "a $'...' string")
            else:
                characters += self._one("", run)
        return _Word(tuple(characters), start, self.at, closing)

    def _quoted(self, quote: str, run: int) -> list[Character]:
        opened = self.at
        self.at += 1
        characters: list[Character] = []
        while self.at < len(self.text):
            if self.text[self.at] == quote:
                self.at += 1
                return characters
            characters += self._one(quote, run)
        raise self._error(opened, f"a {quote} that is never closed")

    def _one(self, quote: str, run: int) -> list[Character]:
        """Read one character or one expansion; a continued line gives none."""
        text, start = self.text, self.at
        here = text[start]
        if quote != "'" and here == "\\":
            following = text[start + 1 : start + 2]
            self.at += 2 if following else 1
            if following == "\n":
                return []
            if following and (quote != '"' or following in '$`"\\'):
                return [Character(following, start, self.at, quote, run)]
            self.at = start + 1
            return [Character("\\", start, self.at, quote, run)]
        if quote != "'" and here in "$`":
            return [self._expansion(quote, run)]
        self.at += 1
        return [Character(here, start, self.at, quote, run)]

    def _expansion(self, quote: str, run: int) -> Character:
        text, start = self.text, self.at
        if match := _VARIABLE.match(text, start):
            self.at = match.end()
            name = match[1] or match[2]
            return Character("", start, self.at, quote, run, match.group(), name)
        if text[start] == "`":
            self._skip_to_backquote()
        elif text[start + 1 : start + 2] in {"(", "{"}:
            self.at += 1
            self._skip_bracket({"(": ")", "{": "}"}[text[self.at]])
        elif text[start + 1 : start + 2] in set("?#$!@*-0123456789"):
            self.at += 2
        else:  # a dollar sign and nothing else
            self.at += 1
            return Character("$", start, self.at, quote, run)
        return Character("", start, self.at, quote, run, text[start : self.at])

    def _skip_to_backquote(self) -> None:
        opened = self.at
        self.at += 1
        while self.at < len(self.text):
            here = self.text[self.at]
            self.at += 2 if here == "\\" else 1
            if here == "`":
                return
        raise self._error(opened, "a ` that is never closed")

    def _skip_bracket(self, closer: str) -> None:
        opened, opener = self.at, self.text[self.at]
        depth = 0
        while self.at < len(self.text):
            here = self.text[self.at]
            if here in {"'", '"'}:
                self._quoted(here, 0)
                continue
            if here == "\\":
                self.at += 1
            elif here == "`":
                self._skip_to_backquote()
                continue
            depth += (here == opener) - (here == closer)
            self.at += 1
            if depth == 0:
                return
        raise self._error(opened, f"a ${opener} that is never closed")

    def _line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def _error(self, at: int, what: str) -> HarpError:
        return unreadable(self.path, self._line(at), what)


def unreadable(path: str, line: int, what: str) -> HarpError:
    """Return the error for a file that only a shell could evaluate."""
    return HarpError(
        f"{path}:{line}: cannot be edited safely because of {what}.",
        "Correct that line, or add the arguments by hand and run setup with --no-kernel-args.",
        ExitCode.WRONG_DATA,
    )
