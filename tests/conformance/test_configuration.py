# SPDX-License-Identifier: Apache-2.0
"""Configurations of a process: none, wrong ones, conf files, devices and merged devices."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.conformance import abi
from tests.conformance.child import (
    ENVIRONMENT,
    NEW_AND_OLD,
    OF_EACH_INIT,
    Start,
)
from tests.placed import pci_addresses, write_confs


@pytest.mark.parametrize("version", OF_EACH_INIT)
def test_not_configured(version: int, start: Start, tmp_path: Path) -> None:
    """Init fails with one WARN that names directory, glob and both remedies, and leaves nothing behind."""
    attempts = start("unconfigured", version, {"HARP_CONF_DIR": str(tmp_path)}).end()
    assert len(attempts) == 2
    for attempt in attempts:
        assert attempt["result"] not in (abi.SUCCESS, 7)
        (warn,) = attempt["warns"]
        for part in (str(tmp_path), "ztcp*.conf", "harpctl setup", "HARP_IFNAME", "libnccl-net.so"):
            assert part in warn
        assert attempt["context_is_null"]
        assert attempt["finalized"] == abi.SUCCESS
        assert (attempt["threads"], attempt["files"]) == (0, 0)


@pytest.mark.parametrize("version", OF_EACH_INIT)
def test_disabled(version: int, start: Start) -> None:
    """Init steps aside in one INFO line, whatever else is set, and leaves nothing behind."""
    attempts = start("unconfigured", version, {**ENVIRONMENT, "HARP_DISABLE": "1", "HARP_PATHS": "0"}).end()
    assert len(attempts) == 2
    for attempt in attempts:
        assert attempt["result"] not in (abi.SUCCESS, 7)
        assert attempt["warns"] == []
        (line,) = attempt["lines"]
        assert "is disabled by HARP_DISABLE=1" in line
        assert attempt["context_is_null"]
        assert (attempt["threads"], attempt["files"]) == (0, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HARP_DISABLE", "yes"),
        ("HARP_PATHS", "0"),
        ("HARP_IFNAME", "=nosuchinterface"),
    ],
)
def test_bad_variable(name: str, value: str, start: Start) -> None:
    """One that is read first, one of the table (tests/unit/test_env.c has them all), and the interfaces."""
    for attempt in start("unconfigured", 12, {**ENVIRONMENT, name: value}).end():
        assert attempt["result"] not in (abi.SUCCESS, 7)
        (warn,) = attempt["warns"]
        assert name in warn
        assert value.lstrip("=") in warn
        assert (attempt["threads"], attempt["files"]) == (0, 0)


@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_conf_file(version: int, start: Start, tmp_path: Path) -> None:
    """The speed is the conf file's."""
    (tmp_path / "ztcp0.conf").write_text("[eni]\ninterface = lo\nspeed_mbps = 54321\n")
    (got,) = start("properties", version, {"HARP_CONF_DIR": str(tmp_path)}).end()
    assert (got["name"], got["speed"]) == ("lo", 54321)


def test_an_assumed_speed_is_logged_as_assumed(start: Start) -> None:
    """Loopback has none."""
    (got,) = start("properties", 12).end()
    (line,) = [line for line in got["log"] if str(got["speed"]) in line]
    assert "assumed" in line


@pytest.mark.lab
def test_speed_of_the_interface(start: Start, make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec())
    name = lab.enis[0]
    shown = subprocess.run(
        lab.command(0, ["cat", f"/sys/class/net/{name}/speed"]), capture_output=True, text=True, check=True
    )
    child = start("properties", 12, {"HARP_IFNAME": f"={name}"}, prefix=lab.command(0, []))
    (got,) = child.end()
    assert (got["name"], got["speed"], got["pci_path"]) == (name, int(shown.stdout), None)


@pytest.mark.lab
@pytest.mark.parametrize("devices", ["striped", "enis"])
def test_devices(devices: str, start: Start, make_lab: Callable[[LabSpec], Lab]) -> None:
    lab = make_lab(LabSpec(enis=3))
    environment = {"HARP_IFNAME": "eni", "HARP_DEVICES": devices}
    (got,) = start("properties", 12, environment, lab.command(0, [])).end()
    striped = ["eni0+eni1+eni2", "eni1+eni2+eni0", "eni2+eni0+eni1"]
    names = {"striped": striped, "enis": ["eni0", "eni1", "eni2"]}
    assert got["devices"] == names[devices]
    assert len(set(got["guids"])) == 3


@pytest.mark.lab
@pytest.mark.parametrize("version", NEW_AND_OLD)
def test_striped_devices_share_their_engine(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab]
) -> None:
    """Each has the speed of its own ENI; connections of all of them are those of one engine."""
    lab = make_lab(LabSpec(enis=3))
    (got,) = start("striped", version, {"HARP_IFNAME": "eni"}, lab.command(0, [])).end()
    assert got == {"speeds": [10000] * 3, "threads": [1, 1, 1], "warns": []}


@pytest.mark.lab
@pytest.mark.parametrize("version", [9, 11, 12])
def test_merging_devices(version: int, start: Start, make_lab: Callable[[LabSpec], Lab], tmp_path: Path) -> None:
    """The merged device names its parts, moves data over them, and is given again for the same parts."""
    lab = make_lab(LabSpec(enis=2))
    folder = write_confs(tmp_path / "conf", pci_addresses(2))
    environment = {"HARP_CONF_DIR": str(folder), "HARP_DEVICES": "enis"}
    merged, got = start("merge", version, environment, lab.command(0, [])).end()
    speed = 2 * 10000
    assert merged == {"both": 2, "again": [0, 2], "name": "eni0+eni1", "parts": [0, 1], "speed": speed}
    assert got["warns"] == []
    assert 0 not in got["results"]
    assert "0 others" in got["refused"][0]
    assert "no device 99" in got["refused"][1]
    assert "no device -1" in got["refused"][2]


@pytest.mark.lab
@pytest.mark.parametrize("version", [11, 12])
def test_merged_devices_outlive_the_last_context(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab], tmp_path: Path
) -> None:
    """NCCL that has kept the plugin goes on with their numbers; one that has not, counts and merges anew."""
    lab = make_lab(LabSpec(enis=2))
    folder = write_confs(tmp_path / "conf", pci_addresses(2))
    environment = {"HARP_CONF_DIR": str(folder), "HARP_DEVICES": "enis"}
    (got,) = start("merge_again", version, environment, lab.command(0, [])).end()
    assert got == {"counts": [2, 3, 3], "again": [0, 2], "other": [0, 2], "name": "eni1+eni0"}


@pytest.mark.lab
@pytest.mark.parametrize("version", [9, 12])
def test_devices_without_a_place_are_not_merged(
    version: int, start: Start, make_lab: Callable[[LabSpec], Lab]
) -> None:
    """NCCL would lose them. It makes the call without need, so there is no warning."""
    lab = make_lab(LabSpec(enis=2))
    environment = {"HARP_IFNAME": "eni", "HARP_DEVICES": "enis"}
    (got,) = start("merge_unplaced", version, environment, lab.command(0, [])).end()
    assert got["several"] != 0
    assert got["single"] == 0
    assert got["warns"] == []
    assert len(got["lines"]) == 1
    assert "eni0 is not merged with others, because it has no place on the PCI bus" in got["lines"][0]


@pytest.mark.parametrize(
    ("version", "engine", "paths"),  # each two of them in all combinations
    [(4, "inline", 1), (4, "thread", 4), (12, "inline", 4), (12, "thread", 1)],
)
def test_matrix(version: int, engine: str, paths: int, start: Start) -> None:
    """Nothing to 64 MiB, in both ways to run an engine, over one path and over several."""
    environment = {"HARP_IFNAME": "=lo", "HARP_ENGINE": engine, "HARP_PATHS": str(paths)}
    assert start("matrix", version, environment).end() == [{"warns": [], "threads": 1}]
