# SPDX-License-Identifier: Apache-2.0
"""One preflight from start to report; each step leaves out the hosts that failed an earlier one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from msgspec.structs import replace

from harpctl import lab
from harpctl.console import Progress
from harpctl.doctor.path_probe import ProbeResult
from harpctl.fleet import Remote
from harpctl.preflight import diagnosis
from harpctl.preflight.model import Measured, PreflightOptions, ProbeRequest, Report, Verdict
from harpctl.preflight.sessions import Agents, Deadline

PROBES_S = 30.0  # how long the probes may take: silence takes about 10 s
VERDICTS = {True: "Use HARP:", False: "Do not use HARP:", None: "HARP works on these hosts."}
NOT_MEASURED = f"Nothing was measured: {lab.NO_LAB.format('preflight')}"


def run_preflight(hosts: Sequence[str], remote: Remote, options: PreflightOptions, progress: Progress) -> Report:
    """Run a preflight. Changes nothing on the hosts."""
    begin, deadline = time.monotonic(), Deadline(options.within_s)
    words = ["preflight", "--agent", f"--port={options.port}", f"--within={options.within_s:g}"]
    with Agents(hosts, remote, words, deadline) as agents:
        with progress.working(f"Asking {len(hosts)} hosts and probing between them"):
            states = agents.states
            problems = diagnosis.host_problems(states)
            planned = diagnosis.plan_probes(states)
            requests = {
                host: ProbeRequest(port=options.port, probes=probes) for host, probes in planned.items() if probes
            }
            answers = agents.ask(requests, tuple[ProbeResult, ...], min(PROBES_S, deadline.left()))
            probed = {
                host: [replace(probe, result=one) for probe, one in zip(planned[host], its, strict=False)]
                for host, its in answers.items()
            }
            problems += diagnosis.probe_problems(states, probed)
        problems = diagnosis.report_unanswered(agents.failures) + problems
        measured = Measured(worth=Verdict(use=None, text=NOT_MEASURED))
        if lab.is_there():
            fit = {host: state for host, state in states.items() if host not in diagnosis.failed_hosts(problems)}
            measure = lab.import_part("preflight.measure", "preflight").measure_fleet
            measured = measure(agents, fit, options, deadline, progress)
    problems = diagnosis.merge_notes([*problems, *measured.problems])
    unfit = diagnosis.failed_hosts(problems)
    return Report(
        ok=not any(one.level == "fail" for one in problems),
        verdict=verdict_of(unfit, measured.worth),
        problems=tuple(problems),
        hosts=states,
        rounds=measured.rounds,
        rates=measured.rates,
        pair=measured.pair,
        compared=measured.compared,
        seconds=round(time.monotonic() - begin, 1),
    )


def verdict_of(unfit: Sequence[str], worth: Verdict) -> Verdict:
    """Return the last line: whether to use HARP on these hosts, and why."""
    if unfit:
        text = f"Do not use HARP yet: not fit are {', '.join(unfit)}. {worth.text}"
        return replace(worth, use=False, text=text)
    return replace(worth, text=f"{VERDICTS[worth.use]} {worth.text}")
