# SPDX-License-Identifier: Apache-2.0
"""The state of the ENIs in the running kernel: the steps that make it what model.py describes, each undoable.

setup and `harpctl boot` carry these steps out; the doctor reports them. Nothing is emitted for what holds.
What is there is read from facts and from `ip`, whose plain output has been the same since long before
`ip -json`, which CentOS 7 and Ubuntu 18.04 lack.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Sequence

from harpctl.change.steps import AnyStep, Run, SetControl
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Eni, Facts
from harpctl.facts.sources import ADDRESSES, ROUTES, RULES, Sources, of_ip
from harpctl.network.model import RULE_PRIORITY_FIRST, TABLE_COUNT, TABLE_FIRST, EniPlan

PRIORITIES = range(RULE_PRIORITY_FIRST, RULE_PRIORITY_FIRST + TABLE_COUNT)
TABLES = range(TABLE_FIRST, TABLE_FIRST + TABLE_COUNT)
Rule = tuple[int, str, str, str]  # IP version, priority, source address, table
ARP = {
    "arp_ignore": "1",  # answer only on the interface that has the address
    "arp_announce": "2",  # ask only with an address of the interface that asks
    "rp_filter": "2",  # loose: a reply may come by another interface than the main table's
}
# Words that `ip` shows, but does not take; and the remaining life of a route, which it shows as 299sec.
NOT_INPUT = {"linkdown", "dead", "pervasive", "offload", "trap", "rt_offload", "rt_trap"}
LIFE = re.compile(r"(?<= expires )(\d+)sec\b")


def _query_ip(sources: Sources, version: int, *words: str) -> list[list[str]]:
    """Return what `ip` lists, each line as words; nothing where it fails, as for a table that isn't there."""
    text = LIFE.sub(r"\1", sources.query(of_ip(version, *words)) or "")
    return [[word for word in line.split() if word not in NOT_INPUT] for line in text.splitlines() if line]


def _plan_command(why: str, argv: Sequence[str], undo: Sequence[str] = ()) -> Run:
    return Run(argv=tuple(argv), undo=tuple(undo), always=True, fleeting=True, why=why)


def require_eni(facts: Facts, eni: EniPlan) -> Eni:
    """Return the interface. Raises HarpError where it is not there, or another one has its name now."""
    found = facts.find_eni(eni.name)
    if found is None:
        raise HarpError(
            f"There is no interface {eni.name} on this host.",
            "Take the names from `harpctl facts`.",
            ExitCode.MISSING,
        )
    if eni.mac and found.mac and eni.mac.lower() != found.mac.lower():
        raise HarpError(
            f"{eni.name} has the MAC address {found.mac}, not {eni.mac}: the names moved.",
            "Set the host up for its present names: sudo harpctl setup",
            ExitCode.WRONG_DATA,
        )
    return found


def _word_after(words: Sequence[str], name: str) -> str:
    """Return the word that follows a name in what `ip` lists; "" where there is none."""
    return words[words.index(name) + 1] if name in words[:-1] else ""


# ---- link and address ----


def channels_command(found: Eni, queues: int, queues_tx: int) -> tuple[str, ...]:
    """Return the command that sets an ENI's channels; `queues_tx` counts where they receive or send."""
    words = ("rx", queues, "tx", queues_tx) if found.queues_tx else ("combined", queues)
    return ("ethtool", "-L", found.name, *map(str, words))


def _plan_channels(eni: EniPlan, found: Eni) -> list[AnyStep]:
    if eni.queues is None or {found.queues, found.queues_tx or found.queues} == {eni.queues}:
        return []
    if not found.queues:
        raise HarpError(
            f"{eni.name} does not report its channels, so they can't be set to {eni.queues}.",
            f"Look at `ethtool -l {eni.name}`, and leave --channels out.",
            ExitCode.MISSING,
        )
    undo = channels_command(found, found.queues, found.queues_tx)
    argv = channels_command(found, eni.queues, eni.queues)
    return [_plan_command(f"{eni.queues} channels for {eni.name}", argv, undo)]


def _plan_link(eni: EniPlan, found: Eni) -> list[AnyStep]:
    head = ("ip", "link", "set", "dev", eni.name)
    steps: list[AnyStep] = []
    if eni.mtu is not None and eni.mtu != found.mtu:
        undo = (*head, "mtu", str(found.mtu)) if found.mtu else ()
        steps.append(_plan_command(f"MTU {eni.mtu}", (*head, "mtu", str(eni.mtu)), undo))
    if eni.address and not found.is_up:
        steps.append(_plan_command(f"{eni.name} up", (*head, "up"), (*head, "down")))
    return steps


def _plan_arp(sources: Sources, eni: EniPlan) -> list[AnyStep]:
    """Plan what has an ENI answer for its own address only; IPv6 needs none of it."""
    if eni.version == 6:
        return []
    paths = {setting: f"/proc/sys/net/ipv4/conf/{eni.name}/{setting}" for setting in ARP}
    return [
        SetControl(path=paths[setting], value=value, why=f"{setting} {value} of {eni.name}")
        for setting, value in ARP.items()
        if sources.read_word(paths[setting]) != value
    ]


def _query_lifetime(sources: Sources, eni: EniPlan, found: Eni) -> str:
    """Return how long the ENI has its address: "forever", seconds, or "" where it has not.

    By `ip`, because facts also hold overrides.
    """
    wanted = ipaddress.ip_interface(eni.address)
    text = sources.query(of_ip(eni.version, *ADDRESSES))
    if text is None:
        return "forever" if any(ipaddress.ip_interface(own) == wanted for own in found.addresses) else ""
    for line in text.splitlines():
        words = line.split()
        address = _word_after(words, "inet" if eni.version == 4 else "inet6")
        if words[1] == eni.name and "/" in address and ipaddress.ip_interface(address) == wanted:
            return _word_after(words, "valid_lft")
    return ""


def _plan_address(sources: Sources, eni: EniPlan, found: Eni) -> list[AnyStep]:
    """Plan the address, without a route to its subnet in the main table; one with a lease is made to last."""
    lifetime = _query_lifetime(sources, eni, found)
    if lifetime == "forever":
        return []
    extra = ("noprefixroute",) if eni.version == 4 else ("noprefixroute", "nodad")
    add = of_ip(eni.version, "addr", "replace", eni.address, "dev", eni.name, *extra)
    undo = () if lifetime else of_ip(eni.version, "addr", "del", eni.address, "dev", eni.name)
    return [_plan_command(eni.address, add, undo)]


# ---- routes and rules ----


def _subnets_of_others(facts: Facts, enis: Sequence[EniPlan]) -> set[str]:
    names = {eni.name for eni in enis if eni.address}
    return {
        str(ipaddress.ip_interface(address).network)
        for found in facts.enis
        if found.name not in names
        for address in found.addresses
    }


def _plan_competing_route_removal(facts: Facts, sources: Sources, eni: EniPlan) -> list[AnyStep]:
    """Plan the removal of the main route to an ENI's subnet, which another interface has too.

    Such a route attracts what the other interface should send. DHCP clients make it, and so does Linux before
    4.4 with the address.
    """
    flush = of_ip(eni.version, "route", "flush", "exact", eni.subnet, "dev", eni.name, "table", "main")
    why = f"{eni.subnet} stays with the primary ENI"
    for line in _query_ip(sources, eni.version, *ROUTES):
        if line[0] == eni.subnet and "table" not in line and _word_after(line, "dev") == eni.name:
            return [_plan_command(why, flush, of_ip(eni.version, "route", "add", *line))]
    is_old = facts.system.kernel.startswith(("2.", "3."))
    return (
        [_plan_command(why, flush)]
        if is_old and not _query_lifetime(sources, eni, require_eni(facts, eni))
        else []
    )


def _wanted_routes(eni: EniPlan) -> list[list[str]]:
    scope, on_link = (["scope", "link"], ["onlink"]) if eni.version == 4 else ([], [])
    routes = [[eni.subnet, "dev", eni.name, *scope]]
    if eni.gateway:
        routes.append(["default", "via", eni.gateway, "dev", eni.name, *on_link])
    return routes


def _key_of_route(route: Sequence[str]) -> tuple[str, str, str]:
    """Return target, gateway and interface. `ip` shows a target of one address without its length."""
    target = route[0].removesuffix("/128" if ":" in route[0] else "/32")
    return target, _word_after(route, "via"), _word_after(route, "dev")


def _query_own_table(sources: Sources, eni: EniPlan) -> Iterator[list[str]]:
    """Yield the routes of the ENI's own table, as they are given with it."""
    for line in _query_ip(sources, eni.version, *ROUTES):
        if _word_after(line, "table") == str(eni.table):
            at = line.index("table")
            yield line[:at] + line[at + 2 :]


def _plan_routes(sources: Sources, eni: EniPlan) -> list[AnyStep]:
    """Plan the routes of the ENI's own table; other routes there are removed."""
    table = ("table", str(eni.table))
    found = {_key_of_route(line): line for line in _query_own_table(sources, eni)}
    wanted = {_key_of_route(route): route for route in _wanted_routes(eni)}

    def route_command(verb: str, route: list[str]) -> tuple[str, ...]:
        return of_ip(eni.version, "route", verb, *route, *table)

    gone = [line for key, line in found.items() if key not in wanted and key[0] != "fe80::/64"]
    new = [route for key, route in wanted.items() if key not in found]
    return [
        *(_plan_command("a stale route", route_command("del", line), route_command("add", line)) for line in gone),
        *(
            _plan_command(f"routes of {eni.host}", route_command("replace", line), route_command("del", line))
            for line in new
        ),
    ]


def _query_our_rules(sources: Sources, version: int) -> list[Rule]:
    """Return the rules that some setup made: those in our range of priorities that lead to our tables."""
    rules = []
    for line in _query_ip(sources, version, *RULES):
        priority, table = line[0].rstrip(":"), _word_after(line, "lookup")
        if priority.isdigit() and int(priority) in PRIORITIES and table.isdigit() and int(table) in TABLES:
            rules.append((version, priority, _word_after(line, "from"), table))
    return rules


def _rule_of(eni: EniPlan) -> Rule:
    return eni.version, str(eni.priority), eni.host, str(eni.table)


def _rule_command(verb: str, rule: Rule) -> tuple[str, ...]:
    version, priority, address, table = rule
    return of_ip(version, "rule", verb, "pref", priority, "from", address, "lookup", table)


def plan_state(facts: Facts, sources: Sources, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan what the ENIs lack, in the order in which it is done. Raises HarpError where one is missing."""
    steps = plan_stale_rules(sources, enis)
    for eni in enis:
        steps += plan_eni(facts, sources, eni, enis)
    return steps


def plan_each(facts: Facts, sources: Sources, enis: Sequence[EniPlan]) -> Iterator[tuple[str, list[AnyStep], str]]:
    """Yield each ENI's name, what it lacks, and why that can't be planned: one keeps no other from it."""
    for eni in enis:
        try:
            yield eni.name, plan_eni(facts, sources, eni, enis), ""
        except HarpError as error:
            yield eni.name, [], error.message


def plan_stale_rules(sources: Sources, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the removal of rules that earlier setups made, and that no ENI has."""
    wanted = [_rule_of(eni) for eni in enis if eni.address]
    return [
        _plan_command("a stale rule", _rule_command("del", rule), _rule_command("add", rule))
        for rule in _query_our_rules(sources, 4) + _query_our_rules(sources, 6)
        if rule not in wanted
    ]


def plan_eni(facts: Facts, sources: Sources, eni: EniPlan, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan what one of the ENIs lacks. Raises HarpError where it isn't there."""
    found = require_eni(facts, eni)
    steps = [*_plan_arp(sources, eni), *_plan_channels(eni, found), *_plan_link(eni, found)]
    if not eni.address:
        return steps
    steps += _plan_address(sources, eni, found)
    steps += (
        _plan_competing_route_removal(facts, sources, eni) if eni.subnet in _subnets_of_others(facts, enis) else []
    )
    steps += _plan_routes(sources, eni)
    if _rule_of(eni) not in _query_our_rules(sources, eni.version):
        add, delete = _rule_command("add", _rule_of(eni)), _rule_command("del", _rule_of(eni))
        steps.append(_plan_command(f"rule {eni.priority} for {eni.host}", add, delete))
    return steps
