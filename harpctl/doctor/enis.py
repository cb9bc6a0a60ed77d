# SPDX-License-Identifier: Apache-2.0
"""Checks of the ENIs: up, addressed, alike, and what is sent from each leaves through it."""

from __future__ import annotations

import ipaddress
import itertools
import shlex
from collections.abc import Iterator

from harpctl.change.steps import Run, SetControl
from harpctl.confs.table import BOUNDS
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.drivers import configured_drivers
from harpctl.doctor.model import CheckResult, check, fail, of_link, skip, warn
from harpctl.facts.model import Eni
from harpctl.network.big_tcp import reason_against, sizes_to_raise
from harpctl.network.runtime import plan_each, plan_stale_rules

NET = "/proc/sys/net/ipv4/conf"
# name -> values that do, and what is set
ARP = {"arp_ignore": ((1, 2), 1), "arp_announce": ((2,), 2)}
STRICT = 1  # rp_filter: drop what came in by another interface than the answer would leave by
LOOSE = 2
ETHERNET_MTU = 1500
SOFTWARE = ("bridge", "dummy", "ifb", "macvlan", "ipvlan", "tun", "veth", "vxlan")


@check("enis.count", "There is one ENI per GPU", needs.gpu, needs.conf, validates=False)
def check_count(context: Context) -> Iterator[CheckResult]:
    """Count ENIs and GPUs: 8 GPUs want 8 ENIs beside the primary one."""
    gpus, enis = len(context.facts.gpus), len(context.confs)
    if gpus and enis and gpus != enis:
        more = f"bind {gpus - enis} more ENIs to this instance, then harpctl setup"
        yield warn(f"{enis} ENIs for {gpus} GPUs.", _command_to_set_up(context) if context.usual_enis else more)


def _command_to_set_up(context: Context) -> str:
    """Return the setup command with the ENIs that suit best; with too few, one that names what is lacking."""
    names = context.usual_enis
    if not names:
        return "harpctl setup --enis NAME,...  # with secondary ENIs"
    return shlex.join(["harpctl", "setup", "--enis", ",".join(names)])


@check("enis.default_route", "No ENI of HARP carries the default route", needs.pair, validates=False)
def check_default_route(context: Context) -> Iterator[CheckResult]:
    """Look for the primary interface among the conf files."""
    for path, _conf, eni in context.pairs:
        if eni.is_default_route:
            yield warn(
                f"{path}: {eni.name} carries the default route: ssh, MPI and storage share it with HARP.",
                _command_to_set_up(context),
            )


@check("enis.device", "The ENIs are devices and no software interfaces", needs.pair, validates=False)
def check_device(context: Context) -> Iterator[CheckResult]:
    """Look for bridges, veth and the like."""
    for path, _conf, eni in context.pairs:
        if eni.kind in SOFTWARE:
            yield warn(f"{path}: {eni.name} is a {eni.kind}, which costs copies.", _command_to_set_up(context))


@check("enis.up", "The ENIs are up", needs.machine, needs.pair)
def check_up(context: Context) -> Iterator[CheckResult]:
    """Look at IFF_UP."""
    for eni in context.enis:
        if not eni.is_up:
            up, down = (("ip", "link", "set", "dev", eni.name, state) for state in ("up", "down"))
            step = Run(argv=up, undo=down, always=True, fleeting=True, why=f"{eni.name} is down")
            yield fail(f"{eni.name} is down.", shlex.join(up), steps=[step])


@check("enis.link", "The ENIs have a link", needs.machine, needs.pair)
def check_link(context: Context) -> Iterator[CheckResult]:
    """Look at the carrier of what is up."""
    for eni in context.enis:
        if eni.is_up and not eni.has_link:
            yield fail(
                f"{eni.name} is up and has no link.",
                shlex.join(["ethtool", eni.name]),
                f"dmesg | {shlex.join(['grep', eni.name])}",
            )


@check("enis.address", "The ENIs have addresses", needs.machine, needs.pair)
def check_address(context: Context) -> Iterator[CheckResult]:
    """Look for an address that a peer can use."""
    for path, conf, eni in context.pairs:
        if any(_is_usable(address) for address in eni.addresses):
            continue
        known = (
            shlex.join(["harpctl", "setup", "--address", f"{eni.name}={conf.address}/24"])
            + "  # with its subnet's length"
            if conf.address
            else "harpctl setup"
        )
        yield fail(f"{path}: {eni.name} has no address that a peer can reach.", known)


def _is_usable(address: str) -> bool:
    return not ipaddress.ip_interface(address).ip.is_link_local


@check("enis.address_once", "No address is on two interfaces")
def check_address_once(context: Context) -> Iterator[CheckResult]:
    """Look for an address that two interfaces have."""
    owner: dict[str, str] = {}
    for eni in context.facts.enis:
        for address in eni.addresses:
            ip = address.partition("/")[0]
            if ip in owner and _is_usable(address):
                repair = shlex.join(["ip", "addr", "del", address, "dev", eni.name])
                yield fail(f"{ip} is on {owner[ip]} and on {eni.name}.", repair)
            owner.setdefault(ip, eni.name)


@check("enis.mtu_equal", "The ENIs have one MTU", needs.two_enis, validates=False)
def check_mtu_equal(context: Context) -> Iterator[CheckResult]:
    """Compare the MTUs: the smaller one of two ENIs holds for a connection over both."""
    enis = [eni for eni in context.enis if eni.mtu]
    if len({eni.mtu for eni in enis}) > 1:
        most = max(eni.mtu for eni in enis)
        small = [eni for eni in enis if eni.mtu < most]
        yield warn(
            ", ".join(f"{eni.name} has {eni.mtu}" for eni in enis) + ".",
            *(of_link(eni.name, "mtu", most) for eni in small if not 0 < eni.mtu_max < most),
        )


@check("enis.mtu_least", "The ENIs have an MTU of 1500 or more", needs.pair)
def check_mtu_least(context: Context) -> Iterator[CheckResult]:
    """Look for MTUs that HARP refuses, and for those below Ethernet's."""
    for _path, conf, eni in context.pairs:
        mtu, repair = conf.mtu or eni.mtu, of_link(eni.name, "mtu", ETHERNET_MTU)
        if 0 < mtu < BOUNDS.mtu_min:
            yield fail(f"{eni.name} has MTU {mtu}, and HARP needs {BOUNDS.mtu_min}.", repair)
        elif 0 < mtu < ETHERNET_MTU:
            yield warn(f"{eni.name} has MTU {mtu}: many small packets.", repair)


@check(
    "enis.big_tcp",
    "TCP may use packets of 128 KiB on the ENIs",
    needs.machine,
    needs.host,
    needs.pair,
    validates=False,
)
def check_big_tcp(context: Context) -> Iterator[CheckResult]:
    """Look for ENIs with smaller packets, where nothing speaks against larger ones."""
    drivers = dict(configured_drivers(context))
    if context.record.big_tcp is False:
        yield skip("It was set up with --no-big-tcp.")
        return
    for eni in filter(sizes_to_raise, context.enis):
        if reason := reason_against(eni, drivers[eni.name]):
            yield skip(f"No BIG TCP for {eni.name}: it {reason}.")
        else:
            yield warn(
                f"TCP uses packets of 64 KiB on {eni.name}; with 128 KiB (BIG TCP) it takes less CPU.",
                "harpctl setup --big-tcp",
            )


@check("enis.state", "The kernel has what setup recorded of the ENIs", needs.machine, needs.host)
def check_state(context: Context) -> Iterator[CheckResult]:
    """Plan what the ENIs lack of address, MTU, channels, routes, rules and ARP, as harp.service does."""
    record = context.record
    if not record.enis:
        yield skip("There is no record of the ENIs: they were set up with --no-network, or by hand.")
        return
    for name, steps, error in plan_each(context.facts, context.sources, record.enis):
        if error:
            yield fail(error, "harpctl setup")
        elif steps:
            what = ", ".join(step.why for step in steps)
            yield fail(f"{name} is not as setup recorded it; it lacks: {what}.", "harpctl boot")
    if plan_stale_rules(context.sources, record.enis):
        yield fail("There are routing rules of earlier setups.", "harpctl boot")


# ---- several ENIs on one host ----


@check("enis.egress", "What is sent from an ENI's address leaves through that ENI", needs.machine, needs.pair)
def check_egress(context: Context) -> Iterator[CheckResult]:
    """Ask the kernel for the route from each address to its subnet, its gateway and the others' subnets."""
    for eni, source, target in _address_pairs(context):
        via = context.machine.egress(source, target)
        if not via and target in _neighbour_targets(context, eni, source):
            yield fail(f"{eni.name}: the kernel has no way from {source} to {target}.", "harpctl setup")
        elif via and via != eni.name:
            yield fail(
                f"{eni.name}: from {source} to {target} the kernel sends through {via}; the answer is dropped"
                " or takes the wrong ENI.",
                "harpctl setup",
            )


def _address_pairs(context: Context) -> Iterator[tuple[Eni, str, str]]:
    """Yield ENI, source and target for each way to look at: IPv4 and IPv6 apart."""
    for eni in (eni for eni in context.enis if eni.is_up):
        for address in filter(_is_usable, eni.addresses):
            here = ipaddress.ip_interface(address)
            source = str(here.ip)
            targets = [*_another_host(context, address)]
            if eni.gateway and ipaddress.ip_address(eni.gateway).version == here.version:
                targets.append(eni.gateway)
                others = (a for other in context.enis if other != eni for a in filter(_is_usable, other.addresses))
                targets += [t for a in others if _is_apart(a, address) for t in _another_host(context, a)]
            for target in dict.fromkeys(targets):
                yield eni, source, target


def _is_apart(one: str, other: str) -> bool:
    a, b = ipaddress.ip_interface(one).network, ipaddress.ip_interface(other).network
    return a.version == b.version and not a.overlaps(b)


def _another_host(context: Context, address: str) -> list[str]:
    """Return another host's address of the same subnet, whether or not there is one; none where all are ours.

    To an address of this host the kernel sends through lo, from whichever ENI.
    """
    ours = {str(ipaddress.ip_interface(own).ip) for eni in context.facts.enis for own in eni.addresses}
    others = (str(other) for other in ipaddress.ip_interface(address).network.hosts())
    return list(itertools.islice((other for other in others if other not in ours), 1))


def _neighbour_targets(context: Context, eni: Eni, source: str) -> tuple[str, ...]:
    """Return the targets that must be reached: the others depend on the cloud's routes."""
    own = next(address for address in eni.addresses if address.partition("/")[0] == source)
    return (*_another_host(context, own), eni.gateway)


def _enis_in_shared_subnets(context: Context) -> list[Eni]:
    """Return the ENIs that share a subnet with another interface of this host, IPv4."""
    found = []
    for eni in context.enis:
        mine = [ipaddress.ip_interface(address).network for address in eni.addresses]
        others = (other for other in context.facts.enis if other.name != eni.name)
        theirs = [ipaddress.ip_interface(a).network for other in others for a in other.addresses]
        if any(a.version == 4 and b.version == 4 and a.overlaps(b) for a in mine for b in theirs):
            found.append(eni)
    return found


def effective_setting(context: Context, name: str, setting: str) -> int:
    """Return what counts for an interface: the larger one of its own value and the one for all."""
    return max(context.host.read_int(f"{NET}/{which}/{setting}", 0) for which in ("all", name))


@check(
    "enis.arp",
    "Each ENI answers ARP for its own addresses only, where several share a subnet",
    needs.machine,
    needs.pair,
)
def check_arp(context: Context) -> Iterator[CheckResult]:
    """Look at arp_ignore and arp_announce of ENIs on one subnet: else one ENI gets the others' traffic."""
    for eni in _enis_in_shared_subnets(context):
        for setting, (good, value) in ARP.items():
            have = effective_setting(context, eni.name, setting)
            if have not in good:
                yield _wrong_setting(eni, setting, have, value)


@check("enis.rp_filter", "No strict reverse-path filter drops what reaches the ENIs", needs.machine, needs.pair)
def check_rp_filter(context: Context) -> Iterator[CheckResult]:
    """Look at rp_filter: strict is only right where the main table routes each subnet to its ENI."""
    for eni in _enis_in_shared_subnets(context):
        if effective_setting(context, eni.name, "rp_filter") == STRICT:
            yield _wrong_setting(eni, "rp_filter", STRICT, LOOSE)


def _wrong_setting(eni: Eni, setting: str, have: int, value: int) -> CheckResult:
    step = SetControl(path=f"{NET}/{eni.name}/{setting}", value=str(value), why=f"{eni.name} shares a subnet")
    return fail(
        f"{eni.name} shares its subnet with another interface, and its {setting} is {have}.",
        shlex.join(["sysctl", "-w", f"net/ipv4/conf/{eni.name}/{setting}={value}"]),
        steps=[step],
    )
