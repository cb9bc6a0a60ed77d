# SPDX-License-Identifier: Apache-2.0
"""`harpctl preflight`: many hosts looked at together, from one terminal."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harpctl.console import ConsoleProgress, NoProgress, print_json
from harpctl.doctor.probe_packet import PORT, PORT_MAX, PORT_MIN
from harpctl.errors import ExitCode, HarpError
from harpctl.fleet import find_remote
from harpctl.option_types import AsJson, Hosts, RemotePath
from harpctl.perf.sizes import parse_sizes
from harpctl.preflight.agent import serve_agent
from harpctl.preflight.diagnosis import UNREACHED
from harpctl.preflight.rates import SOCKET
from harpctl.preflight.run import PreflightOptions, run_preflight
from harpctl.preflight.show import show
from harpctl.ssh import parse_hosts

HOSTS_MIN = 2
SIZES = "8,4K,64K,512K,1M"
WITHIN_S = 120.0
WITHIN_MAX_S = 3600.0


def preflight(
    *,
    hosts: Hosts = None,
    remote: RemotePath = None,
    port: Annotated[
        int,
        typer.Option("--port", min=PORT_MIN, max=PORT_MAX, help="Where hosts answer probes."),
    ] = PORT,
    time_s: Annotated[
        float, typer.Option("--time", metavar="S", min=0.05, max=60, help="Seconds of each measurement.")
    ] = 0.5,
    against: Annotated[
        str,
        typer.Option(
            metavar="socket|none|FILE",
            help="Compare HARP with NCCL's own sockets, with nothing, or with this plugin.",
        ),
    ] = SOCKET,
    nccl_lib: Annotated[
        str,
        typer.Option(
            "--nccl-lib", metavar="PATH", help="The libnccl.so.2 on the hosts whose sockets are measured."
        ),
    ] = "",
    sizes: Annotated[str, typer.Option(help="Message sizes of the comparison.")] = SIZES,
    within: Annotated[
        float,
        typer.Option("--within", metavar="S", min=1, max=WITHIN_MAX_S, help="Time limit in seconds."),
    ] = WITHIN_S,
    agent: Annotated[bool, typer.Option("--agent", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Check whether hosts are fit for HARP together, and what HARP gains on them; changes nothing.

    Checks builds, wire versions, conf files, MTU and UDP and TCP ports of all pairs, measures all pairs in
    rounds, and one pair against NCCL's own sockets. Exit code 0: all hosts are fit. 1: the hosts named are
    not, or time ran out. 4: a host cannot be reached.
    """
    if agent:
        serve_agent(port, int(within), sys.stdin.buffer, sys.stdout.buffer)
        return
    names = parse_hosts(hosts or [])
    if len(names) < HOSTS_MIN:
        raise HarpError("A preflight takes two hosts at least.", "-H host1,host2", ExitCode.USAGE)
    options = PreflightOptions(
        port=port,
        time_s=time_s,
        against=against,
        nccl=nccl_lib,
        sizes=parse_sizes(sizes),
        within_s=within,
    )
    progress = NoProgress() if as_json else ConsoleProgress()
    report = run_preflight(names, find_remote(remote), options, progress)
    if as_json:
        print_json(report)
    else:
        show(report, options.other)
    if any(one.check == UNREACHED for one in report.problems):
        raise typer.Exit(int(ExitCode.MISSING))
    if not report.ok:
        raise typer.Exit(int(ExitCode.FAILED))
