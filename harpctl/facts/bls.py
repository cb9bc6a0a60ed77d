# SPDX-License-Identifier: Apache-2.0
"""Boot loader entries as files (/boot/loader/entries/*.conf), and GRUB's environment block beside them."""

from __future__ import annotations

ENTRIES = "/boot/loader/entries/*.conf"


def value_of(text: str, key: str) -> str:
    """Return the value of a key of an entry; the lines of a key that comes several times are joined."""
    found = []
    for line in text.splitlines():
        name, _blank, rest = line.strip().replace("\t", " ").partition(" ")
        if name == key:
            found.append(rest.strip())
    return " ".join(found)


def read_env(data: bytes) -> dict[str, str]:
    """Return the variables of an environment block; what is none has no variables."""
    found = {}
    text = data.decode("utf-8", "surrogateescape").replace("\\\n", "\n")
    for line in text.splitlines():
        name, equals, rest = line.partition("=")
        if equals and not line.startswith("#"):
            found[name] = rest.replace("\\\\", "\\")
    return found
