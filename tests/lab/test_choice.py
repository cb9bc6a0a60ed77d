# SPDX-License-Identifier: Apache-2.0
"""Interfaces that nobody names, where HARP was asked for by name."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harplab.lab.commands import Command, ip_inside, run_inside
from harplab.lab.lab import Lab, run_command
from harplab.lab.spec import LabSpec
from tests.lab.job import Job

pytestmark = pytest.mark.lab

CHOICE = re.compile(r"neither conf files nor HARP_IFNAME name interfaces: using (.*); left out: (.*)")


@contextlib.contextmanager
def _other_end_elsewhere(lab: Lab, host: int) -> Iterator[None]:
    """Add the interface `far` to a host; its other end has the index of eni0, in another namespace."""
    shown = json.loads(run_command(run_inside(lab.hosts[host], "ip", "-json", "link", "show", "eni0")))
    elsewhere = f"{lab.hosts[host]}-far"
    run_command(Command(("ip", "netns", "add", elsewhere)))
    try:
        peer = ("peer", "name", "away", "index", str(shown[0]["ifindex"]), "netns", elsewhere)
        run_command(ip_inside(lab.hosts[host], "link", "add", "far", "type", "veth", *peer))
        run_command(ip_inside(elsewhere, "link", "set", "away", "up"))
        run_command(ip_inside(lab.hosts[host], "address", "add", "10.77.0.1/24", "dev", "far"))
        run_command(ip_inside(lab.hosts[host], "link", "set", "far", "up"))
        yield
    finally:
        run_command(Command(("ip", "netns", "delete", elsewhere)))


def test_asked_for_by_name(make_lab: Callable[[LabSpec], Lab], plugin_file: Path, tmp_path: Path) -> None:
    """The interfaces that lead out of a container are used, and a bridge within it is not."""
    lab = make_lab(LabSpec(enis=2))
    for host in lab.hosts:
        for words in (
            "add docker0 type bridge",
            "add inner type veth peer name outer",
            "set outer master docker0",
            *(f"set {name} up" for name in ("inner", "outer", "docker0")),
        ):
            run_command(ip_inside(host, "link", *words.split()))
        run_command(ip_inside(host, "address", "add", "172.17.0.1/16", "dev", "docker0"))
    env = {"HARP_IFNAME": "", "NCCL_NET": "HARP"}
    iterations = ("--iters", "200")
    with (
        _other_end_elsewhere(lab, 0),
        Job(lab, plugin_file, words=iterations, env=env, meeting=tmp_path / "meeting") as job,
    ):
        job.finish()
        for rank, used in enumerate((["eni0", "eni1", "far"], ["eni0", "eni1"])):
            assert (said := CHOICE.search(job.log(rank)))
            assert sorted(re.findall(r"(\w+)(?: \(\d+ Mbit/s\))?(?:, |$)", said[1])) == used
            assert {"lo (loopback)", "docker0 (bridge)", "outer (no address)"} <= set(said[2].split(", "))
        topo = run_command(run_inside(lab.hosts[0], sys.executable, "-m", "harpctl", "topo", "--json"))
    why = json.loads(topo)["unasked"]
    assert sorted(name for name, reason in why.items() if not reason) == ["eni0", "eni1", "far"]
    assert (why["docker0"], why["outer"]) == ("bridge", "no address")
