# SPDX-License-Identifier: Apache-2.0
"""The conf files that are there: what each holds, or why it holds nothing."""

from __future__ import annotations

import msgspec

from harpctl.confs.conf import CONF_DIR, CONF_PATTERN, Conf, conf_number, parse_conf
from harpctl.errors import HarpError
from harpctl.host.host import Host


class ConfFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file that matches ztcp*.conf."""

    path: str
    number: int | None  # None: the plugin refuses the name
    conf: Conf | None = None
    wrong: str = ""  # why there is no conf, as a sentence


def find_confs(host: Host, folder: str = CONF_DIR) -> list[str]:
    """Return the paths of all files that match ztcp*.conf, sorted as text."""
    return host.glob(f"{folder}/{CONF_PATTERN}")


def read_conf(host: Host, path: str) -> ConfFile:
    """Read one file; the result holds its error, if any."""
    number, text = conf_number(path.rpartition("/")[2]), host.read_text(path)
    if text is None:
        return ConfFile(path=path, number=number, wrong=f"{path}: cannot be read.")
    try:
        return ConfFile(path=path, number=number, conf=parse_conf(text, path))
    except HarpError as error:
        return ConfFile(path=path, number=number, wrong=error.message)


def read_confs(host: Host, folder: str = CONF_DIR) -> tuple[ConfFile, ...]:
    """Read all files in the plugin's order; those whose names it refuses come last."""
    files = [read_conf(host, path) for path in find_confs(host, folder)]
    return tuple(sorted(files, key=lambda file: (file.number is None, file.number, file.path)))
