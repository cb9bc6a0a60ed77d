"""`harpctl boot`: what harp.service runs at every boot. Sets what does not survive one, then checks the host.

Sets nothing but NIC channels: there is no persistent place for them that all distributions share, and they
are not journalled, because the next boot forgets them anyway.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer

from harpctl.confs.conf import CONF_DIR, Conf, parse
from harpctl.console import OUT, print_json
from harpctl.doctor.context import Options, real_context
from harpctl.doctor.examine import examine
from harpctl.doctor.model import Finding, worst
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.collect import collect
from harpctl.facts.model import Facts
from harpctl.host.door import Host


class Channels(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one ENI's channels."""

    eni: str
    wanted: int
    error: str = ""  # "" when they are as wanted


class Booted(msgspec.Struct, frozen=True, kw_only=True):
    """What `boot --json` prints."""

    ok: bool
    channels: tuple[Channels, ...]
    failed: tuple[str, ...]  # the findings of `harpctl validate`


def read_confs(host: Host) -> list[Conf]:
    """Read the conf files that can be read; what is wrong with others the checks say."""
    confs = []
    for path in host.glob(f"{CONF_DIR}/ztcp*.conf"):
        text = host.read_text(path)
        try:
            confs.append(parse(text or "", path))
        except HarpError:
            continue
    return confs


def set_channels(host: Host, facts: Facts, confs: list[Conf]) -> list[Channels]:
    """Give each ENI the channels that its conf file asks for, where it has others."""
    done = []
    for conf in confs:
        eni = facts.eni(conf.interface)
        if conf.queues is None or eni is None or eni.queues in {0, conf.queues}:
            continue
        said = host.run(("ethtool", "-L", conf.interface, "combined", str(conf.queues)))
        done.append(Channels(eni=conf.interface, wanted=conf.queues, error=said.said if said.code else ""))
    return done


def _line(finding: Finding) -> str:
    return f"{finding.title}: {finding.cause}"


def run_boot(host: Host) -> Booted:
    """Set the channels of a host that has booted, and check it."""
    channels = set_channels(host, collect(host), read_confs(host))
    findings = examine(real_context(host, collect(host), Options()), only_validating=True)
    failed = tuple(_line(finding) for finding in findings if finding.level == "fail")
    ok = worst(findings) != "fail" and not any(channel.error for channel in channels)
    return Booted(ok=ok, channels=tuple(channels), failed=failed)


def boot(
    *, as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False
) -> None:
    """Set NIC channels and check the host: what harp.service runs at every boot."""
    result = run_boot(Host())
    if as_json:
        print_json(result)
    else:
        for channel in result.channels:
            said = (
                f"can't be set to {channel.wanted}: {channel.error}"
                if channel.error
                else f"set to {channel.wanted}"
            )
            OUT.print(f"{channel.eni}: channels {said}", markup=False)
        for line in result.failed:
            OUT.print(line, markup=False)
        OUT.print(
            "HARP is set up right." if result.ok else "Run `harpctl doctor` to see what to do.", markup=False
        )
    if not result.ok:
        raise typer.Exit(int(ExitCode.FAILED))
