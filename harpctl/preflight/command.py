# SPDX-License-Identifier: Apache-2.0
"""`harpctl preflight`: many hosts looked at together, from one terminal."""

from __future__ import annotations

import sys

import click

from harpctl import lab
from harpctl.command_line import command, flag, hosts_option, json_option, option, remote_option
from harpctl.console import ConsoleProgress, NoProgress, print_json
from harpctl.doctor.probe_packet import PORT, PORT_MAX, PORT_MIN
from harpctl.errors import ExitCode, HarpError
from harpctl.fleet import find_remote
from harpctl.preflight.agent import serve_agent
from harpctl.preflight.diagnosis import UNREACHED
from harpctl.preflight.model import SOCKET, PreflightOptions
from harpctl.preflight.run import run_preflight
from harpctl.preflight.show import show_report
from harpctl.ssh import parse_hosts

HOSTS_MIN = 2
SIZES = "8,4K,64K,512K,1M"
WITHIN_S = 120.0
WITHIN_MAX_S = 3600.0


@command()
@hosts_option
@remote_option
@option("--port", type=click.IntRange(PORT_MIN, PORT_MAX), default=PORT, help="The port of the probes.")
@option(
    "--time",
    "time_s",
    metavar="S",
    type=click.FloatRange(0.05, 60),
    default=0.5,
    help="Seconds of each measurement.",
)
@option(
    "--against",
    metavar="socket|none|FILE",
    default=SOCKET,
    help="Compare HARP with NCCL's own sockets, with nothing, or with this plugin.",
)
@option("--nccl-lib", metavar="PATH", default="", help="The libnccl.so.2 on the hosts whose sockets are measured.")
@option("--sizes", default=SIZES, help="Message sizes of the comparison.")
@option(
    "--within",
    metavar="S",
    type=click.FloatRange(1, WITHIN_MAX_S),
    default=WITHIN_S,
    help="Time limit in seconds.",
)
@flag("--agent", hidden=True)
@json_option
def preflight(
    *,
    hosts: tuple[str, ...],
    remote: str | None,
    port: int,
    time_s: float,
    against: str,
    nccl_lib: str,
    sizes: str,
    within: float,
    agent: bool,
    as_json: bool,
) -> None:
    """Check whether hosts are fit for HARP together, and what HARP gains on them; changes nothing.

    Checks builds, wire versions, conf files, MTU and UDP and TCP ports of all pairs. With the lab it measures
    all pairs in rounds, and one pair against NCCL's own sockets. Exit code 0: all hosts are fit. 1: the
    hosts named are not, or time ran out. 4: a host cannot be reached.
    """
    if agent:
        serve_agent(port, int(within), sys.stdin.buffer, sys.stdout.buffer)
        return
    names = parse_hosts(hosts)
    if len(names) < HOSTS_MIN:
        raise HarpError("A preflight takes two hosts at least.", "-H host1,host2", ExitCode.USAGE)
    options = PreflightOptions(
        port=port,
        time_s=time_s,
        against=against,
        nccl=nccl_lib,
        sizes=lab.import_part("perf.sizes", "preflight").parse_sizes(sizes) if lab.is_there() else (),
        within_s=within,
    )
    progress = NoProgress() if as_json else ConsoleProgress()
    report = run_preflight(names, find_remote(remote), options, progress)
    if as_json:
        print_json(report)
    else:
        show_report(report, options.other)
    if any(one.check == UNREACHED for one in report.problems):
        raise click.exceptions.Exit(int(ExitCode.MISSING))
    if not report.ok:
        raise click.exceptions.Exit(int(ExitCode.FAILED))
