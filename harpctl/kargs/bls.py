# SPDX-License-Identifier: Apache-2.0
"""Boot loader entries as files (/boot/loader/entries/*.conf), and GRUB's environment block beside them."""

from __future__ import annotations

from harpctl.errors import ExitCode, HarpError
from harpctl.kargs.cmdline import HugepageArgs, Word, rewritten, split

ENTRIES = "/boot/loader/entries/*.conf"
ENV_SIZE = 1024
ENV_HEAD = "# GRUB Environment Block\n"


def value(text: str, key: str) -> str:
    """Return what an entry says of a key; the lines of a key that comes several times are joined."""
    found = []
    for line in text.splitlines():
        name, _blank, rest = line.strip().replace("\t", " ").partition(" ")
        if name == key:
            found.append(rest.strip())
    return " ".join(found)


def edited_entry(text: str, wanted: HugepageArgs | None) -> str:
    """Return the entry with its options edited; one without options gets a line of them."""
    lines = text.splitlines(keepends=True)
    numbers = [number for number, line in enumerate(lines) if line.split(maxsplit=1)[:1] == ["options"]]
    if not numbers:
        if wanted is None:
            return text
        return text + ("" if text.endswith("\n") or not text else "\n") + f"options {wanted}\n"
    words: list[Word] = []
    for line in numbers[1:]:  # one line is easier to edit than several, and means the same
        words += split(lines[line])[1:]
        lines[line] = ""
    first = lines[numbers[0]].rstrip()
    first = " ".join([first, *(word.text for word in words)])
    end = lines[numbers[0]][len(lines[numbers[0]].rstrip("\r\n")) :]
    lines[numbers[0]] = rewritten(first, split(first)[1:], len(first), wanted, " ") + end
    return "".join(lines)


def read_env(data: bytes) -> dict[str, str]:
    """Return the variables of an environment block; what is none has no variables."""
    found = {}
    text = data.decode("utf-8", "surrogateescape").replace("\\\n", "\n")
    for line in text.splitlines():
        name, equals, rest = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = rest.replace("\\\\", "\\")
    return found


def edited_env(path: str, data: bytes, name: str, new: str) -> bytes:
    """Return the block with a variable set, as long as before: GRUB writes it in place."""
    lines = data.decode("utf-8", "surrogateescape").rstrip("#").splitlines(keepends=True)
    line = f"{name}={new.replace(chr(92), chr(92) * 2)}\n"
    where = [number for number, old in enumerate(lines) if old.startswith(f"{name}=")]
    if where:
        lines[where[0]] = line
    else:
        lines.append(line)
    block = "".join(lines).encode("utf-8", "surrogateescape")
    if len(block) > len(data):
        raise HarpError(
            f"{path}: the kernel arguments no longer fit into its {len(data)} bytes.",
            "Take arguments that are not needed out of it (grub2-editenv - list), then run setup again.",
            ExitCode.WRONG_DATA,
        )
    return block + b"#" * (len(data) - len(block))
