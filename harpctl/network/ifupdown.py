# SPDX-License-Identifier: Apache-2.0
"""Debian's ifupdown: a file of ours that /etc/network/interfaces sources.

Its stanzas are `manual` with the commands of ip, each of which may be repeated: a stanza that is there
already, such as cloud-init's, then does no harm and is not harmed.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from harpctl.change.steps import AnyStep, WriteFile
from harpctl.host.host import Host
from harpctl.network.manager import INTERFACES
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import HEAD

FOLDER = f"{INTERFACES}.d"
SOURCE = re.compile(r"^\s*source(-directory)?\s+(\S+)\s*$", re.MULTILINE)


def _stanza(eni: EniPlan) -> str:
    name, table, ip = eni.name, eni.table, f"ip -{eni.version}"
    scope, on_link, no_dad = (" scope link", " onlink", "") if eni.version == 4 else ("", "", " nodad")
    rule = f"pref {eni.priority} from {eni.host} lookup {table}"
    lines = [f"auto {name}", f"iface {name} inet{'' if eni.version == 4 else '6'} manual"]
    if eni.mtu is not None:
        lines.append(f"    pre-up ip link set dev {name} mtu {eni.mtu}")
    lines += [
        f"    up ip link set dev {name} up",
        f"    up {ip} addr replace {eni.address} dev {name} noprefixroute{no_dad}",
        f"    up {ip} route replace {eni.subnet} dev {name}{scope} table {table}",
    ]
    if eni.gateway:
        lines.append(f"    up {ip} route replace default via {eni.gateway} dev {name}{on_link} table {table}")
    lines += [
        f"    up {ip} rule del {rule} 2>/dev/null || true",
        f"    up {ip} rule add {rule}",
        f"    down {ip} rule del {rule} || true",
        f"    down {ip} addr del {eni.address} dev {name} || true",
    ]
    return "\n".join(lines) + "\n"


def _name_that_is_read(text: str) -> str | None:
    """Return the name under which a file in interfaces.d is read; None where none is."""
    for is_folder, pattern in SOURCE.findall(text):
        full = pattern if pattern.startswith("/") else f"/etc/network/{pattern}"
        if is_folder:
            if full.rstrip("/") == FOLDER:
                return "90-harp"
            continue
        for name in ("90-harp", "90-harp.cfg"):
            if fnmatch.fnmatchcase(f"{FOLDER}/{name}", full):
                return name
    return None


def files(host: Host, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the file, and the line that has it read where there is none."""
    text = host.read_text(INTERFACES) or ""
    name = _name_that_is_read(text)
    body = HEAD + "\n".join(_stanza(eni) for eni in enis)
    why = "addresses and routes of the ENIs at boot"
    path = f"{FOLDER}/{name or '90-harp'}"
    steps: list[AnyStep] = [WriteFile(path=path, data=body.encode(), mode=0o644, why=why)]
    if name is None:
        end = "" if not text or text.endswith("\n") else "\n"
        more = f"{text}{end}source {path}\n".encode("utf-8", "surrogateescape")
        steps.append(WriteFile(path=INTERFACES, data=more, why=f"{path} is read"))
    return steps
