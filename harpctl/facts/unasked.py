# SPDX-License-Identifier: Apache-2.0
"""The interfaces that the plugin uses where HARP was asked for by name and nobody names them.

The rules are those of plugin/src/host/choice.h.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from harpctl.confs.table import BOUNDS
from harpctl.facts.model import Eni

# Kinds of interfaces that may be used, in sets from the best; interfaces of other kinds never are.
KINDS = ({"", "bond", "team", "vlan"}, {"macvlan", "ipvlan"}, {"veth"})
SLOW_PARTS = 4  # an interface slower than a fourth of the fastest one is left out: it is for management


def _is_global(address: str) -> bool:
    ip = ipaddress.ip_interface(address).ip
    return not (ip.is_link_local or ip.is_loopback)


def _why_unfit(eni: Eni) -> str:
    """Return why an interface is never used; "" where it may be."""
    if not eni.is_up:
        return "down"
    if not eni.has_link:
        return "no link"
    if not any(_is_global(address) for address in eni.addresses):
        return "no address"
    return "" if any(eni.kind in kinds for kinds in KINDS) else eni.kind


def why_left_out(enis: Sequence[Eni]) -> dict[str, str]:
    """Return for each interface, by its name, why it is left out; "" for those that are used."""
    why = {eni.name: _why_unfit(eni) for eni in enis}

    def remaining() -> list[Eni]:
        return [eni for eni in enis if not why[eni.name]]

    best: set[str] = next((kinds for kinds in KINDS if any(eni.kind in kinds for eni in remaining())), set())
    why |= {eni.name: eni.kind for eni in remaining() if eni.kind not in best}
    used = {eni.name for eni in remaining()}
    why |= {eni.name: "its lower interface is used" for eni in remaining() if used & set(eni.lower)}
    most = max((eni.speed_mbps for eni in remaining()), default=0)
    why |= {eni.name: "slow" for eni in remaining() if 0 < eni.speed_mbps < most // SLOW_PARTS}
    why |= {eni.name: "too many" for eni in remaining()[BOUNDS.conf_files_max :]}
    return why
