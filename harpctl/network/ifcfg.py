# SPDX-License-Identifier: Apache-2.0
"""Network-scripts of CentOS 7 and TencentOS 2: ifcfg-, route- and rule- files of each ENI.

An ifcfg file that is there already is replaced; rollback brings it back. NM_CONTROLLED=no, because the
NetworkManager of these releases reads neither rules nor routes in other tables from such files.
"""

from __future__ import annotations

from collections.abc import Sequence

from harpctl.change.steps import AnyStep
from harpctl.host.host import Host
from harpctl.network.manager import IFCFG_DIR
from harpctl.network.model import EniPlan
from harpctl.network.owned_files import HEAD, plan_files


def _ifcfg(eni: EniPlan) -> str:
    pairs: dict[str, str | int] = {"DEVICE": eni.name}
    if eni.mac:
        pairs["HWADDR"] = eni.mac
    pairs |= {"TYPE": "Ethernet", "ONBOOT": "yes", "NM_CONTROLLED": "no", "BOOTPROTO": "none"}
    if eni.version == 4:
        pairs |= {"IPADDR": eni.host, "PREFIX": eni.prefix, "DEFROUTE": "no", "IPV6INIT": "no"}
    else:
        pairs |= {"IPV6INIT": "yes", "IPV6ADDR": eni.address, "IPV6_AUTOCONF": "no", "IPV6_DEFROUTE": "no"}
    if eni.mtu is not None:
        pairs["MTU"] = eni.mtu
    return HEAD + "".join(f"{key}={value}\n" for key, value in pairs.items())


def _routes(eni: EniPlan) -> str:
    """Write routes as arguments of `ip route add`, which is what ifup makes of each line."""
    scope, on_link = (" scope link", " onlink") if eni.version == 4 else ("", "")
    text = f"{HEAD}{eni.subnet} dev {eni.name}{scope} table {eni.table}\n"
    if eni.gateway:
        text += f"default via {eni.gateway} dev {eni.name}{on_link} table {eni.table}\n"
    return text


def _rules(eni: EniPlan) -> str:
    return f"{HEAD}from {eni.host} lookup {eni.table} pref {eni.priority}\n"


def files(host: Host, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the files of all ENIs, and the removal of ours no longer needed."""
    wanted = {}
    for eni in enis:
        suffix = "" if eni.version == 4 else "6"
        wanted[f"{IFCFG_DIR}/ifcfg-{eni.name}"] = _ifcfg(eni)
        wanted[f"{IFCFG_DIR}/route{suffix}-{eni.name}"] = _routes(eni)
        wanted[f"{IFCFG_DIR}/rule{suffix}-{eni.name}"] = _rules(eni)
    found = [path for path in host.glob(f"{IFCFG_DIR}/*") if (host.read_text(path) or "").startswith(HEAD)]
    return plan_files(wanted, found)
