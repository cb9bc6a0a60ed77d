# SPDX-License-Identifier: Apache-2.0
"""Names the variables, keys and kernel arguments that may go into a bundle. Everything else is left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any

import msgspec

from harpctl.confs.conf import quoted_start
from harpctl.confs.table import KEYS, SECTIONS
from harpctl.confs.table import VARIABLES as HARP_VARIABLES
from harpctl.facts.model import Facts
from harpctl.plugin.settings import SetVariable

LEFT_OUT = "(left out)"
PREFIXES = ("NCCL_", "HARP_")


class _Names(msgspec.Struct, frozen=True):
    """The names in allowed.json, those of NCCL's variables without their prefix."""

    nccl: tuple[str, ...]
    others: tuple[str, ...]
    kernel_arguments: frozenset[str]


_NAMES = msgspec.json.decode((resources.files("harpctl.bundle") / "allowed.json").read_bytes(), type=_Names)
VARIABLES = {*HARP_VARIABLES, *(f"NCCL_{name}" for name in _NAMES.nccl), *_NAMES.others}
VALUE = re.compile(r"[\w.,:;/^=+%<>\[\]() -]{0,400}", re.ASCII)
SECRET_NAME = re.compile(r"TOKEN|SECRET|PASS|KEY|CREDENTIAL|AUTH", re.IGNORECASE)
SECRET_CHARS_MIN = 6
NAME = re.compile(r"\w+", re.ASCII)  # the name of a field, a variable or a process
STRUCTURE = {"id", "title", "group", "level"}  # a finding's words of harpctl's own
HOME = re.compile(r"/home/[^/\s:,;'\"]+")


class Scrubber:
    """Takes out of texts what names alone could not keep out: values of variables that stay out, home paths.

    It is the second filter: what is collected is chosen by name first.
    """

    def __init__(self) -> None:
        self._secrets: set[str] = set()

    def hide(self, *texts: str) -> None:
        """Remember texts to remove, also as harpctl's messages quote them."""
        for text in texts:
            self._secrets |= {one for one in (text, quoted_start(text)) if len(one) >= SECRET_CHARS_MIN}

    def learn(self, environment: Mapping[str, str]) -> None:
        """Remember the values of variables to remove."""
        for name, value in environment.items():
            is_allowed = name in VARIABLES and VALUE.fullmatch(value)
            if not is_allowed and (name.startswith(PREFIXES) or SECRET_NAME.search(name)):
                self.hide(value, value.strip())

    def text(self, text: str) -> str:
        """Return the text without them."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, LEFT_OUT)
        return HOME.sub("/home/USER", text)

    def data(self, value: object) -> object:
        """Return plain data whose texts are without them; names of fields and values of STRUCTURE stay."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                key if NAME.fullmatch(str(key)) else self.text(str(key)): item
                if key in STRUCTURE
                else self.data(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.data(item) for item in value]
        return value


def filter_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that may be included, and only the names of other NCCL_ and HARP_ ones."""
    allowed = {}
    for name, value in sorted(environment.items()):
        if name in VARIABLES:
            allowed[name] = value if VALUE.fullmatch(value) else LEFT_OUT
        elif name.startswith(PREFIXES) and VALUE.fullmatch(name):
            allowed[name] = LEFT_OUT
    return allowed


def kernel_arguments(text: str) -> str:
    """Return a kernel command line; of arguments that are not known only the name."""
    words = []
    for word in text.split():
        name, equals, _value = word.partition("=")
        is_known = not equals or name in _NAMES.kernel_arguments
        words.append(word if is_known and VALUE.fullmatch(word) else f"{name}={LEFT_OUT}")
    return " ".join(words)


def filter_conf(text: str, scrubber: Scrubber) -> str:
    """Return a conf file's lines that the plugin takes; comments and all else are left out, and hidden."""
    lines, section = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.strip()
        name, _, value = (part.strip() for part in words.partition("="))
        if words.startswith("[") and words.endswith("]") and words[1:-1] in SECTIONS:
            section = words[1:-1]
            lines.append(words)
        elif _is_valid(section, name, value):
            lines.append(f"{name} = {value}")
        elif words:
            what = "a comment" if words[0] in "#;" else "no key and value that the plugin takes"
            scrubber.hide(value or words, words.strip("[]"))
            lines.append(f"# line {number} is left out: {what}")
    return "\n".join(lines) + "\n"


def _is_valid(section: str, name: str, value: str) -> bool:
    row = KEYS.get(name)
    try:
        return row is not None and row.section == section and row.read(value) is not None
    except ValueError:
        return False


def filter_facts(found: Facts) -> dict[str, Any]:
    """Return facts as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(found)
    boot = plain["boot"]
    boot["cmdline"] = kernel_arguments(boot.get("cmdline", ""))
    for entry in boot.get("entries", ()):
        entry["args"] = kernel_arguments(entry.get("args", ""))
    return plain


def filter_settings(found: Iterable[SetVariable]) -> list[dict[str, str]]:
    """Return the settings that may be included."""
    allowed = []
    for setting in found:
        value = filter_variables({setting.name: setting.value}).get(setting.name)
        if value is not None:
            allowed.append({"name": setting.name, "value": value, "source": setting.source})
    return allowed
