# SPDX-License-Identifier: Apache-2.0
"""Random and damaged words of other hosts, users and files give a record or a HarpError, nothing else."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import tarfile
import tempfile
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.structs import replace

from harpctl.doctor.archive import read_findings
from harpctl.doctor.model import Finding
from harpctl.doctor.path_probe import ProbeResult
from harpctl.doctor.show import show_all
from harpctl.errors import HarpError
from harpctl.preflight.diagnosis import host_problems, plan_probes, probe_problems
from harpctl.preflight.model import HostFinding, HostState, Outcome, Report, Verdict
from harpctl.preflight.sessions import Deadline
from harpctl.preflight.show import show_report
from harpctl.records import decode_json
from harpctl.trace.history import counts_of, describe_losses, history_of
from harpctl.trace.rings import Recording, read_recording
from harplab.preflight.rates import rate_problems, run_rounds
from tests.harpctl.damage import damaged_bytes, damaged_data
from tests.harpctl.preflight.build import make_eni, make_state
from tests.harpctl.trace.build import Entry, pack_recording


def make_host_state(host: int) -> HostState:
    """Return what a host with one ENI says of itself."""
    one = make_eni(address=f"10.0.0.{host}", mac=f"m{host}", ports=(1024, 2048), tried=(1024,))
    return make_state(enis=(one,), warned=(HostFinding(id="a", cause="b", repair=("c",)),))


STATE = to_builtins(make_host_state(1))
RESULT = to_builtins(ProbeResult(udp="echo", ports={1024: "echo"}, tcp={1024: "silent"}))
FINDING = to_builtins(Finding(id="confs.present", title="t", group="confs", level="fail", cause="c"))
MANIFEST = {"format": 1, "host": "h", "harpctl": "1", "time": "t", "is_root": True, "files": []}
PERF: dict[str, Any] = {
    "plugin": "p",
    "name": "n",
    "abi": 8,
    "mode": "bidir",
    "nranks": 2,
    "connections": 1,
    "inflight": 1,
    "check": False,
    "results": [
        {
            "bytes": 8,
            "messages": 1,
            "seconds": 1.0,
            "algbw_gbps": 1.0,
            "busbw_gbps": 1.0,
            "wrong": 0,
            "window": {
                "start_ns": 1,
                "interval_ms": 10,
                "samples": [1],
                "failures": [],
                "undelivered": 0,
                "connections": [{"from": rank, "to": 1 - rank, "index": 0, "bytes": 9} for rank in (0, 1)],
            },
        }
    ],
}
TRACE = pack_recording(
    "here", 1, "there", 5, [Entry(10, "TX_DATA", 1, 1), Entry(11, "LOST", 1, 1), Entry(12, "PTO")]
)


@given(damaged_data(STATE), damaged_data([RESULT]))
def test_what_an_agent_says(said: Any, probed: Any) -> None:
    with contextlib.suppress(HarpError):
        states = {"a": decode_json(json.dumps(said), HostState, "It"), "b": make_host_state(2)}
        problems = host_problems(states)
        results = decode_json(json.dumps(probed), tuple[ProbeResult, ...], "It")
        planned = plan_probes(states)
        found = {
            host: tuple(replace(probe, result=one) for probe, one in zip(probes, results, strict=False))
            for host, probes in planned.items()
        }
        problems += probe_problems(states, found)
        verdict = Verdict(use=False, text="no")
        show_report(Report(ok=False, verdict=verdict, problems=tuple(problems), hosts=states), "Socket")


def make_report(bytes_: int) -> dict[str, Any]:
    """Return a report of a connection over which so many bytes came."""
    (result,) = PERF["results"]
    connection = {**result["window"]["connections"][0], "bytes": bytes_}
    window = {**result["window"], "connections": [connection]}
    return {**PERF, "results": [{**result, "window": window}]}


@given(damaged_data(PERF))
@example({**PERF, "results": []})
@example(make_report(10**400))
@example(make_report(10**300))
def test_what_harp_perf_says_between_two_hosts(said: Any) -> None:
    states = {"a": make_host_state(1), "b": make_host_state(2)}
    outcomes: dict[str, tuple[Outcome, ...]] = {"a": (Outcome(report=json.dumps(said)),), "b": (Outcome(),)}
    _planned, _done, found, faults = run_rounds(states, lambda *_: outcomes, 0.1, Deadline(60))
    assert len(found) == 2 or len(faults) == 1
    rate_problems(found)


@given(damaged_data(MANIFEST), damaged_data([FINDING]), st.data())
def test_a_bundle(
    tmp_path_factory: pytest.TempPathFactory, manifest: Any, findings: Any, data: st.DataObject
) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, value in (("manifest.json", manifest), ("doctor.json", findings)):
            content = json.dumps(value).encode()
            member = tarfile.TarInfo(f"x/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    plain = packed.getvalue()[: len(packed.getvalue()) // 4]
    choice = data.draw(st.sampled_from(["whole", "tar", "gzip"]))
    content = gzip.compress(data.draw(damaged_bytes(plain)) if choice == "tar" else packed.getvalue(), 1)
    file = tmp_path_factory.getbasetemp() / "bundle.tar.gz"
    file.write_bytes(data.draw(damaged_bytes(content)) if choice == "gzip" else content)
    with contextlib.suppress(HarpError):
        show_all(read_findings(file)[1], verbose=True)


def read_bytes(data: bytes) -> Recording:
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.flush()
        return read_recording(file, "it")


@given(damaged_bytes(TRACE))
def test_a_dump(data: bytes) -> None:
    with contextlib.suppress(HarpError):
        history = history_of([read_bytes(data), read_bytes(TRACE)])
        for entry in history.events:
            assert history.text_of(entry).isprintable()
        counts_of(history)
        assert all(line.isprintable() for line in describe_losses(history))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "9" * 10_000, '"\\ud800"', "", "\0"])
def test_what_no_reader_of_json_takes_is_no_state(text: str) -> None:
    with pytest.raises(HarpError, match="It is not understood"):
        decode_json(text, HostState, "It")
