# SPDX-License-Identifier: Apache-2.0
"""The commands that make the running host match the files, each with the command that undoes it.

Nothing is emitted for what holds already. What is there is read from facts and from `ip`, whose plain output
has been the same since long before `ip -json`, which CentOS 7 and Ubuntu 18.04 lack.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence

from harpctl.change.steps import AnyStep, Run
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.model import Eni, Facts
from harpctl.host.host import Host
from harpctl.network.model import RULE_PRIORITY_FIRST, TABLE_COUNT, TABLE_FIRST, EniPlan

PRIORITIES = range(RULE_PRIORITY_FIRST, RULE_PRIORITY_FIRST + TABLE_COUNT)
TABLES = range(TABLE_FIRST, TABLE_FIRST + TABLE_COUNT)
Rule = tuple[int, str, str, str]  # IP version, priority, source address, table
# Words that `ip` shows, but does not take.
NOT_INPUT = {"linkdown", "dead", "pervasive", "offload", "trap", "rt_offload", "rt_trap"}


def _ip(version: int, *words: str) -> tuple[str, ...]:
    return ("ip", f"-{version}", *words)


def _lines(host: Host, version: int, *words: str) -> list[list[str]]:
    """Return what `ip` lists, each line as words; nothing where it fails, as for a table that isn't there."""
    text = host.query(_ip(version, *words)) or ""
    return [[word for word in line.split() if word not in NOT_INPUT] for line in text.splitlines() if line]


def _change(why: str, argv: Sequence[str], undo: Sequence[str] = ()) -> Run:
    return Run(argv=tuple(argv), undo=tuple(undo), always=True, fleeting=True, why=why)


def _found(facts: Facts, eni: EniPlan) -> Eni:
    found = facts.eni(eni.name)
    if found is None:
        raise HarpError(
            f"There is no interface {eni.name} on this host.",
            "Take the names from `harpctl facts`.",
            ExitCode.MISSING,
        )
    return found


def _after(words: Sequence[str], name: str) -> str:
    """Return the word that follows a name in what `ip` lists; "" where there is none."""
    return words[words.index(name) + 1] if name in words[:-1] else ""


# ---- link and address ----


def _channels(eni: EniPlan, found: Eni) -> list[AnyStep]:
    if eni.queues is None or eni.queues == found.queues:
        return []
    if not found.queues:
        raise HarpError(
            f"{eni.name} does not report its channels, so they can't be set to {eni.queues}.",
            f"Look at `ethtool -l {eni.name}`, and leave --channels out.",
            ExitCode.MISSING,
        )
    head = ("ethtool", "-L", eni.name, "combined")
    undo = (*head, str(found.queues))
    return [_change(f"{eni.queues} channels for {eni.name}", (*head, str(eni.queues)), undo)]


def _link(eni: EniPlan, found: Eni) -> list[AnyStep]:
    head = ("ip", "link", "set", "dev", eni.name)
    steps: list[AnyStep] = []
    if eni.mtu is not None and eni.mtu != found.mtu:
        undo = (*head, "mtu", str(found.mtu)) if found.mtu else ()
        steps.append(_change(f"MTU {eni.mtu}", (*head, "mtu", str(eni.mtu)), undo))
    if not found.is_up:
        steps.append(_change(f"{eni.name} up", (*head, "up"), (*head, "down")))
    return steps


def _has_address(host: Host, eni: EniPlan, found: Eni) -> bool:
    """Return whether the ENI has its address: by `ip`, because facts also hold overrides."""
    argv = _ip(eni.version, "-o", "addr", "show", "dev", eni.name)
    text = host.query(argv)
    if text is None:
        addresses = list(found.addresses)
    else:
        addresses = [
            _after(line.split(), "inet" if eni.version == 4 else "inet6") for line in text.splitlines()
        ]
    wanted = ipaddress.ip_interface(eni.address)
    return any(ipaddress.ip_interface(address) == wanted for address in addresses if "/" in address)


def _address(host: Host, eni: EniPlan, found: Eni) -> list[AnyStep]:
    """Plan the address, without a route to its subnet in the main table."""
    if _has_address(host, eni, found):
        return []
    extra = ("noprefixroute",) if eni.version == 4 else ("noprefixroute", "nodad")
    add = _ip(eni.version, "addr", "add", eni.address, "dev", eni.name, *extra)
    return [_change(eni.address, add, _ip(eni.version, "addr", "del", eni.address, "dev", eni.name))]


# ---- routes and rules ----


def _subnets_of_others(facts: Facts, enis: Sequence[EniPlan]) -> set[str]:
    names = {eni.name for eni in enis}
    return {
        str(ipaddress.ip_interface(address).network)
        for found in facts.enis
        if found.name not in names
        for address in found.addresses
    }


def plan_competing_routes(facts: Facts, host: Host, enis: Sequence[EniPlan]) -> list[AnyStep]:
    """Plan the removal of main routes to an ENI's subnet where another interface has that subnet too.

    Such a route attracts what the other interface should send. Network-scripts and systemd before 248 make it
    at every boot, so the boot unit does this again.
    """
    others = _subnets_of_others(facts, enis)
    return [step for eni in enis if eni.subnet in others for step in _competing_routes(facts, host, eni)]


def _competing_routes(facts: Facts, host: Host, eni: EniPlan) -> list[AnyStep]:
    """Plan it for one ENI: where the route is there, or Linux before 4.4 will make it with the address."""
    flush = _ip(eni.version, "route", "flush", "exact", eni.subnet, "dev", eni.name, "table", "main")
    why = f"{eni.subnet} stays with the primary ENI"
    for line in _lines(host, eni.version, "route", "show", "table", "main"):
        if line[0] == eni.subnet and _after(line, "dev") == eni.name:
            return [_change(why, flush, _ip(eni.version, "route", "add", *line))]
    is_old = facts.system.kernel.startswith(("2.", "3."))
    return [_change(why, flush)] if is_old and not _has_address(host, eni, _found(facts, eni)) else []


def _wanted_routes(eni: EniPlan) -> list[list[str]]:
    scope, on_link = (["scope", "link"], ["onlink"]) if eni.version == 4 else ([], [])
    routes = [[eni.subnet, "dev", eni.name, *scope]]
    if eni.gateway:
        routes.append(["default", "via", eni.gateway, "dev", eni.name, *on_link])
    return routes


def _leads_to(route: Sequence[str]) -> tuple[str, str, str]:
    return route[0], _after(route, "via"), _after(route, "dev")


def _routes(host: Host, eni: EniPlan) -> list[AnyStep]:
    """Plan the routes of the ENI's own table; other routes there are removed."""
    table = ("table", str(eni.table))
    found = {_leads_to(line): line for line in _lines(host, eni.version, "route", "show", *table)}
    wanted = {_leads_to(route): route for route in _wanted_routes(eni)}

    def command(verb: str, route: list[str]) -> tuple[str, ...]:
        return _ip(eni.version, "route", verb, *route, *table)

    gone = [line for key, line in found.items() if key not in wanted and key[0] != "fe80::/64"]
    new = [route for key, route in wanted.items() if key not in found]
    return [
        *(_change("a stale route", command("del", line), command("add", line)) for line in gone),
        *(_change(f"routes of {eni.host}", command("add", line), command("del", line)) for line in new),
    ]


def _our_rules(host: Host, version: int) -> list[Rule]:
    """Return the rules that some setup made: those in our range of priorities that lead to our tables."""
    rules = []
    for line in _lines(host, version, "rule", "show"):
        priority, table = line[0].rstrip(":"), _after(line, "lookup")
        if priority.isdigit() and int(priority) in PRIORITIES and table.isdigit() and int(table) in TABLES:
            rules.append((version, priority, _after(line, "from"), table))
    return rules


def _rule(eni: EniPlan) -> Rule:
    return eni.version, str(eni.priority), eni.host, str(eni.table)


def _rule_command(verb: str, rule: Rule) -> tuple[str, ...]:
    version, priority, address, table = rule
    return _ip(version, "rule", verb, "pref", priority, "from", address, "lookup", table)


def commands(
    facts: Facts, host: Host, enis: Sequence[EniPlan], ups: Mapping[str, Run] | None = None
) -> list[AnyStep]:
    """Plan the commands, in the order in which they must run. Raises HarpError for what isn't there.

    Where anything but channels is to change for an ENI named in `ups`, that command is run instead.
    """
    others = _subnets_of_others(facts, enis)
    rules = _our_rules(host, 4) + _our_rules(host, 6)
    wanted = [_rule(eni) for eni in enis]
    steps: list[AnyStep] = [
        _change("a stale rule", _rule_command("del", rule), _rule_command("add", rule))
        for rule in rules
        if rule not in wanted
    ]
    for eni in enis:
        found = _found(facts, eni)
        own = _link(eni, found) + _address(host, eni, found)
        own += _competing_routes(facts, host, eni) if eni.subnet in others else []
        own += _routes(host, eni)
        if _rule(eni) not in rules:
            add, delete = _rule_command("add", _rule(eni)), _rule_command("del", _rule(eni))
            own.append(_change(f"{eni.host} by its own ENI", add, delete))
        taken = (ups or {}).get(eni.name)
        steps += [*_channels(eni, found), *([taken] if own and taken else own)]
    return steps
