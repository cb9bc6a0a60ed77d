# SPDX-License-Identifier: Apache-2.0
"""Network interfaces: what sysfs shows, what the kernel of a real host adds, and what the operator overrides.

sysfs may show another network namespace than ours, in a pod without hostNetwork for one. An interface is then
only what the kernel reports, and those that only /sys shows are listed as foreign.
"""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Collection, Iterable

import msgspec

from harpctl.facts import netlink, pci, ssh, text, xdp
from harpctl.facts.addresses import Addresses, read_proc
from harpctl.facts.model import Eni, Overrides
from harpctl.facts.netlink import ETHERNET, IFF_UP
from harpctl.host.host import Host

CLASS = "/sys/class/net"
LOOPBACK = "lo"
PORT = "port"  # a device that a bridge or a bond holds
LOWER = "lower_"  # begins the names of links to what an interface lies on
DEPTH_MAX = 8  # the depth of interfaces upon interfaces


def collect_enis(
    host: Host, overrides: Overrides, kernel: str, unknown: list[str], only: Collection[str] | None = None
) -> tuple[tuple[Eni, ...], tuple[str, ...]]:
    """Gather the Ethernet interfaces, in the order of their indexes, and the names of the foreign ones.

    `only`: names of interfaces, alternative ones too. Of all others no more is gathered then than the kernel
    reports of all together, so that the time does not grow with their number.
    """
    live = netlink.read_netlink(only) if host.is_real else None
    names = (
        _list_names(host) if live is None or only is None else [one.name for one in live[0] if one.is_one(only)]
    )
    shown = {name: _from_sysfs(host, name, kernel) for name in names}
    foreign: tuple[str, ...] = ()
    if live is None:
        if host.is_real:
            unknown.append("Addresses and queues are known in part only: the kernel did not answer on netlink.")
        enis, addresses = list(shown.values()), read_proc(host, unknown)
    else:
        links, addresses = live
        enis = [with_link(_match_link(shown.get(link.name), link), link) for link in links]
        foreign = _foreign_names(shown, links)
    if foreign:
        unknown.append(
            f"/sys shows {', '.join(foreign)} of another network namespace than ours: this container was "
            f"started without the host's network (hostNetwork: true, docker run --net=host)."
        )
    if live is None and not enis and not overrides.enis:
        unknown.append(f"The network interfaces are unknown: {CLASS} shows none.")
    enis += [Eni(name=name) for name in overrides.enis if name not in {eni.name for eni in enis}]
    return tuple(_complete_enis(host, enis, addresses, overrides, only)), foreign


def _list_names(host: Host) -> list[str]:
    """Return the interfaces of sysfs that are Ethernet, or may be."""
    names = []
    for name in host.list_dir(CLASS):
        is_name = re.fullmatch(r"[!-~]{1,15}", name) and name != LOOPBACK and host.is_dir(f"{CLASS}/{name}")
        if is_name and text.read_count(host, f"{CLASS}/{name}/type", ETHERNET) == ETHERNET:
            names.append(name)
    return names


def _from_sysfs(host: Host, name: str, kernel: str) -> Eni:
    base = f"{CLASS}/{name}"
    address, path = pci.pci_location(host, f"{base}/device")
    driver = (host.read_link(f"{base}/device/driver") or "").rsplit("/", 1)[-1]
    queues = [queue for queue in host.list_dir(f"{base}/queues") if queue.startswith("rx-")]
    return Eni(
        name=name,
        index=text.read_count(host, f"{base}/ifindex"),
        mac=text.read_word(host, f"{base}/address"),
        driver=driver,
        kind=_interface_kind(host, base),
        lower=_lower_names(host, name),
        is_port=host.is_link(f"{base}/master"),
        is_up=bool(text.parse_number(text.read_word(host, f"{base}/flags"), 0, 16) & IFF_UP),
        has_link=text.read_word(host, f"{base}/carrier") == "1",
        mtu=text.read_count(host, f"{base}/mtu"),
        queues=len(queues),
        speed_mbps=text.read_count(host, f"{base}/speed"),
        pci=address,
        path=path,
        node=pci.node_of(host, address),
        xdp=xdp.best_mode(host, name, driver, kernel),
    )


def _interface_kind(host: Host, base: str) -> str:
    """Return "" for a device, else the kind of interface: bridge, vlan, bond, veth, virtual."""
    folder = host.leads_to(base)
    if folder is None:
        return ""
    if not folder.startswith("/sys/devices/virtual/"):
        return PORT if host.is_link(f"{base}/master") else ""
    match = re.search(r"^DEVTYPE=(\w+)$", text.read_clean(host, f"{base}/uevent"), re.MULTILINE)
    if match:
        return match[1]
    index, peer = (text.read_count(host, f"{base}/{file}") for file in ("ifindex", "iflink"))
    return "veth" if peer not in {0, index} else "virtual"


# ---- a real host: the kernel's own word ----


def _is_same(shown: Eni, link: Eni) -> bool:
    return shown.index == link.index and shown.mac == link.mac


def _match_link(shown: Eni | None, link: Eni) -> Eni:
    """Return sysfs's data of a link; the name alone where sysfs shows another namespace's interface."""
    return shown if shown is not None and _is_same(shown, link) else Eni(name=link.name)


def _foreign_names(shown: dict[str, Eni], links: Iterable[Eni]) -> tuple[str, ...]:
    ours = {link.name: link for link in links}
    return tuple(name for name, eni in shown.items() if name not in ours or not _is_same(eni, ours[name]))


def with_link(eni: Eni, link: Eni) -> Eni:
    """Return a link as the kernel reports it, with what sysfs alone shows of it."""
    return msgspec.structs.replace(
        link,
        kind=link.kind or (PORT if link.is_port else eni.kind),
        queues=link.queues or eni.queues,
        speed_mbps=eni.speed_mbps or link.speed_mbps,
        driver=eni.driver or ("veth" if link.kind == "veth" else ""),
        pci=eni.pci,
        path=eni.path,
        node=eni.node,
        xdp=eni.xdp,
        lower=eni.lower,
    )


# ---- addresses, routes and overrides ----


def _complete_enis(
    host: Host, enis: list[Eni], addresses: Addresses, overrides: Overrides, only: Collection[str] | None
) -> list[Eni]:
    defaults = _add_lower_interfaces(host, addresses.default_names())
    servers = _ssh_servers() if host.is_real else set()
    own_ends = {name for name, own in addresses.of.items() if any(_without_prefix(a) in servers for a in own)}
    sessions = _add_lower_interfaces(host, own_ends | (servers & {eni.name for eni in enis}))
    finished = []
    for eni in sorted(enis, key=lambda eni: (eni.index, eni.name)):
        own = tuple(addresses.of.get(eni.name, ()))
        if override := overrides.addresses.get(eni.name):
            own = (override,)
        finished.append(
            msgspec.structs.replace(
                eni,
                mac=overrides.macs.get(eni.name, eni.mac),
                addresses=own,
                gateway=overrides.gateways.get(eni.name) or addresses.gateway(eni.name, own),
                is_default_route=eni.name in defaults,
                carries_ssh=eni.name in sessions,
                forwards=eni.is_one(only)
                and any(
                    text.read_word(host, f"/proc/sys/net/{version}/conf/{eni.name}/forwarding") not in {"", "0"}
                    for version in ("ipv4", "ipv6")
                ),
            )
        )
    return finished


def _lower_names(host: Host, name: str) -> tuple[str, ...]:
    entries = sorted(host.list_dir(f"{CLASS}/{name}"))
    return tuple(entry.removeprefix(LOWER) for entry in entries if entry.startswith(LOWER))


def _add_lower_interfaces(host: Host, names: set[str]) -> set[str]:
    """Return these names, and those of the interfaces below: ports of a bridge or bond, the device of a vlan."""
    found = set(names)
    for _depth in range(DEPTH_MAX):
        lower = {entry for name in found for entry in _lower_names(host, name)}
        if lower <= found:
            break
        found |= lower
    return found


def _without_prefix(address: str) -> str:
    return address.partition("/")[0]


def _ssh_servers() -> set[str]:
    """Return our ends of the ssh connections that this process runs in.

    An end is an address, or the interface of a link-local one.
    """
    servers = set()
    for connection in ssh.find_connections():
        text_of, _percent, zone = connection.server.partition("%")
        with contextlib.suppress(ValueError):
            address = ipaddress.ip_address(text_of)
            mapped = address.ipv4_mapped if address.version == 6 else None
            servers.add(zone or str(mapped or address))
    return servers
