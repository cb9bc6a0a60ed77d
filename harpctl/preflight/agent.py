# SPDX-License-Identifier: Apache-2.0
"""The agent of a preflight on each host: describes the host, answers the others' probes, probes and measures.

It is started over ssh and writes JSON lines: the host's state; then for each request, a line, the results in
the order of what is asked for. It ends with its standard input, and after its time in any case.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO

import msgspec

from harpctl.build_info import build_version, built_file
from harpctl.doctor.context import Context, DoctorOptions, real_context
from harpctl.doctor.examine import run_checks
from harpctl.doctor.machine import Machine
from harpctl.doctor.model import Finding
from harpctl.doctor.path_probe import ProbeResult
from harpctl.doctor.peer_probes import MTU_DEFAULT, ephemeral_ports, run_probes
from harpctl.doctor.responder import Responder
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.collect import collect_facts
from harpctl.facts.elf import inspect_elf, version_key
from harpctl.facts.plugin_files import find_libraries
from harpctl.host.host import open_host
from harpctl.ip import family_of, first_address
from harpctl.preflight.model import EniState, HostFinding, HostState, Outcome, RateRequest, Request

PERF, PLUGIN = "harp-perf", "libnccl-net.so"
# Both ways at once, for a time; many messages before that would take long where an ENI is slow.
TRAFFIC = (
    *("--mode", "bidir", "--sizes", str(128 << 10), "--connections", "2", "--inflight", "4"),
    *("--no-check", "--interval-ms", "10", "--warmup", "4"),
)
STDERR_LINES = 12
NCCL_SINCE = (2, 30, 3)  # the first release whose sockets the baseline can show
TRIED = 6  # ports of each ENI: the ends of its range, and some between; as many as kernels refuse at once
# The groups of checks that must pass before measuring; failures of other groups are only reported.
NEEDED = ("confs",)


def serve_agent(port: int, seconds: int, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer requests until they end."""
    signal.alarm(seconds)
    state = describe_host()
    stopped = threading.Event()
    with Responder([eni.address for eni in state.enis], port) as responder:
        thread = threading.Thread(target=responder.run, args=(seconds, stopped.is_set))
        thread.start()
        try:
            _write_answer(state, answers)
            for line in requests:
                _write_answer(_answer_request(state, msgspec.json.decode(line, type=Request)), answers)
        finally:
            stopped.set()
            thread.join()


def _answer_request(state: HostState, request: Request) -> list[ProbeResult] | list[Outcome]:
    if isinstance(request, RateRequest):
        return _measure_rates(state, request)
    return [one.result for one in run_probes(Machine(), request.port, request.probes)]


def _measure_rates(state: HostState, request: RateRequest) -> list[Outcome]:
    """Run harp-perf on the first ENIs at once, each with the ENI of the same number of the other host."""
    host = open_host(None)
    os.environ["HARP_DEVICES"] = "enis"
    os.environ["NCCL_SOCKET_IFNAME"] = "=" + ",".join(eni.name for eni in state.enis)
    fixed = ["--plugin", state.plugin, "--nranks", "2", "--rank", str(request.rank), *TRAFFIC]
    fixed += ["--time", f"{request.time_s:g}", *(("--json", "-") if request.rank == 0 else ())]

    def run(device: int) -> Outcome:
        own = ["--dev", str(device), "--rendezvous", request.meetings[device]]
        done = host.run([state.perf, *fixed, *own], request.limit_s)
        lines = done.stderr.strip().splitlines()[-STDERR_LINES:]
        error = " ".join([f"exit code {done.code}", *lines]) if done.code else ""
        return Outcome(report=done.stdout.strip(), error=error)

    with ThreadPoolExecutor(max(len(request.meetings), 1)) as pool:
        return list(pool.map(run, range(len(request.meetings))))


def _write_answer(value: object, answers: BinaryIO) -> None:
    answers.write(msgspec.json.encode(value) + b"\n")
    answers.flush()


def describe_host() -> HostState:
    """Return the state of this host. Raises HarpError where no plugin is here at all."""
    host = open_host(None)
    context = real_context(host, collect_facts(host), DoctorOptions())
    findings = run_checks(context, only_validating=True)
    copy = context.plugin
    path = copy.path if copy else str(built_file(PLUGIN))
    file = host.open_file(path)
    if file is None:
        raise HarpError(f"There is no plugin here: no {path}.", "Install HARP.", ExitCode.MISSING)
    with file:
        elf = inspect_elf(file, path)
    return HostState(
        harpctl=build_version(),
        plugin=path,
        is_installed=copy is not None,
        version=elf.version,
        build=elf.build,
        wire=elf.wire,
        perf=_find_perf(),
        nccl=_find_nccl(context),
        ephemeral=ephemeral_ports(host),
        boot=host.read_word("/proc/sys/kernel/random/boot_id"),
        network=host.read_link("/proc/self/ns/net") or "",
        machine_id=host.read_word("/etc/machine-id"),
        enis=tuple(_describe_enis(context)),
        failed=_failed_findings(findings, needed=True),
        warned=_failed_findings(findings, needed=False),
    )


def _find_perf() -> str:
    built = built_file(PERF)
    return str(built) if os.access(built, os.X_OK) else shutil.which(PERF) or ""


def _find_nccl(context: Context) -> str:
    """Return the newest NCCL whose sockets the baseline knows how to find."""
    if context.facts.system.arch != "x86_64":
        return ""
    known = [one for one in find_libraries(context.host) if one.version and not one.is_rccl]
    known.sort(key=lambda one: version_key(one.version))
    return known[-1].path if known and version_key(known[-1].version) >= NCCL_SINCE else ""


def _failed_findings(findings: Iterable[Finding], *, needed: bool) -> tuple[HostFinding, ...]:
    failed = (one for one in findings if one.level == "fail" and (one.group in NEEDED) == needed)
    return tuple(HostFinding(id=one.id, cause=one.cause, repair=one.repair) for one in failed)


def _describe_enis(context: Context) -> Iterable[EniState]:
    for _path, conf, eni in context.pairs:
        address = conf.address or first_address(eni.addresses)
        ports = conf.ports or ephemeral_ports(context.host)
        yield EniState(
            name=eni.name,
            address=address,
            mtu=conf.mtu or eni.mtu or MTU_DEFAULT,
            speed_mbps=conf.speed_mbps or eni.speed_mbps,
            ports=ports,
            tried=free_ports(address, ports),
            mac=eni.mac,
        )


def free_ports(address: str, ports: tuple[int, int], count: int = TRIED) -> tuple[int, ...]:
    """Return some ports of a range, evenly spaced, that nobody has: one in use would seem to be blocked."""
    low, high = ports
    steps = [low + (high - low) * step // (count - 1) for step in range(count)]
    found = (next((port for port in range(at, high + 1) if _is_free(address, port)), 0) for at in steps)
    return tuple(sorted({port for port in found if port}))


def _is_free(address: str, port: int) -> bool:
    with suppress(OSError), socket.socket(family_of(address), socket.SOCK_DGRAM) as one:
        one.bind((address, port))
        return True
    return False
