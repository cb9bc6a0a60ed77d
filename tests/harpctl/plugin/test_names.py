# SPDX-License-Identifier: Apache-2.0
"""The plugin's names together: plain, second, a path, and their parked forms, under every setting.

What NCCL takes is found out here by another way than in harpctl: by its rules for one value, file by file.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from harpctl.change.rollback import rollback
from harpctl.console import NoProgress
from harpctl.doctor.context import Context
from harpctl.doctor.nccl import check_net_plugin
from harpctl.doctor.plugin import check_first, check_installed
from harpctl.errors import HarpError
from harpctl.facts.collect import collect
from harpctl.facts.model import Facts
from harpctl.host.door import Host
from harpctl.plugin.choice import tried
from harpctl.plugin.command import Result, run_switch
from harpctl.plugin.paths import NAME, SUFFIXED, parked_as
from harpctl.plugin.source import read_source
from harpctl.plugin.status import read_status
from harpctl.plugin.switch import Switch, plan_disable, plan_enable, plan_install
from tests.harpctl.plugin.conftest import TABLE, Compile, Image, make_image

OWN_PATH = "/opt/harp/net.so"
VALUES = {  # of NCCL_NET_PLUGIN, and the files that the newest NCCL tries for it
    "": (NAME,),
    "harp": (SUFFIXED,),
    OWN_PATH: (OWN_PATH,),
    NAME: (NAME,),
    "ofi,harp": ("libnccl-net-ofi.so", SUFFIXED),
    "none": (),
}
HOLDERS = ("", "harp", "other")  # of the plain name
PRESENT = (False, True)


@dataclass(frozen=True)
class Case:
    """What lies on the image: who holds the plain name, and which HARPs are there, on or parked."""

    plain: str
    second: bool
    path: bool
    parked_plain: bool
    parked_second: bool
    value: str

    def __str__(self) -> str:
        there = (self.second, self.path, self.parked_plain, self.parked_second)
        return f"{self.plain}-{''.join(str(int(one)) for one in there)}-{self.value}"


CASES = [Case(*one) for one in itertools.product(HOLDERS, PRESENT, PRESENT, PRESENT, PRESENT, VALUES)]


@pytest.fixture(scope="session")
def harp(compile_library: Compile) -> Path:
    """A HARP that is quick to read."""
    return compile_library("small", TABLE.format(symbol="ncclNetPlugin_v8", name="HARP"))


@pytest.fixture(scope="session")
def other(compile_library: Compile) -> Path:
    return compile_library("other_vendor", TABLE.format(symbol="ncclNetPlugin_v8", name="Other"))


def lay_out(image: Image, case: Case, harp: Path, other: Path) -> None:
    folder = image.libraries
    image.put(other, f"{folder}/libnccl-net-other.so")
    if case.plain:
        image.put(harp if case.plain == "harp" else other, f"{folder}/{NAME}")
    image.at("/opt/harp").mkdir(parents=True)
    there = {
        f"{folder}/{SUFFIXED}": case.second,
        OWN_PATH: case.path,
        f"{folder}/{parked_as(NAME)}": case.parked_plain,
        f"{folder}/{parked_as(SUFFIXED)}": case.parked_second,
    }
    for path, is_there in there.items():
        if is_there:
            image.put(harp, path)
    if case.value:
        image.put(f"NCCL_NET_PLUGIN={case.value}\n".encode(), "/etc/nccl.conf")


def nccl_takes(image: Image, value: str) -> str:
    """Return the path that NCCL takes, or ""."""
    files = (file if "/" in file else f"{image.libraries}/{file}" for file in VALUES[value])
    return next((file for file in files if image.at(file).is_file()), "")


def bytes_of(image: Image, other: Path) -> set[str]:
    vendor = other.read_bytes()
    return {path for path, data in image.files().items() if data == vendor}


def do(image: Image, action: str, make: Callable[[], Switch]) -> Result | None:
    """Carry it out; None where it is refused, which must change nothing."""
    before = image.files()
    try:
        return run_switch(image.host, action, make, NoProgress(), dry_run=False)
    except HarpError:
        assert image.files() == before
        return None


@cache
def facts_of_nothing(folder: Path) -> Facts:
    """Return the facts of an empty tree: the checks of names need no more, and gathering takes long."""
    return collect(Host(folder))


def advice(image: Image) -> list[str]:
    """Return the commands that the doctor's checks of names and settings give."""
    context = Context(image.host, facts_of_nothing(image.root.parent / "nothing"))
    said = (answer for check in (check_installed, check_first, check_net_plugin) for answer in check(context))
    return [command for answer in said for command in answer.repair]


def test_every_name_with_every_setting(
    request: pytest.FixtureRequest, tmp_path: Path, harp: Path, other: Path
) -> None:
    """Of the cases a fixed part; all of them with --draws."""
    cases = CASES if request.config.getoption("--draws") else CASES[::7]
    for number, case in enumerate(cases):
        image = make_image(tmp_path / str(number), "debian")
        lay_out(image, case, harp, other)
        examine(image, case, harp, other)


def examine(image: Image, case: Case, harp: Path, other: Path) -> None:
    ours = harp.read_bytes()
    begin, vendors = image.files(), bytes_of(image, other)
    takes = nccl_takes(image, case.value)
    is_harp = bool(takes) and image.at(takes).read_bytes() == ours
    found = read_status(image.host)
    assert (found.state == "enabled") == is_harp, case
    assert not is_harp or found.path == takes, case
    commands = advice(image)
    if (case.value and is_harp) or case.value in {"harp", NAME}:
        assert not any("sed" in command for command in commands), case
    assert not any(command.startswith(("mv", "rm")) for command in commands), case
    source = read_source(image.host, harp)
    off = do(image, "disable", lambda: plan_disable(image.host))
    if off is not None:
        for value in VALUES if not case.value else (case.value,):
            left = nccl_takes(image, value)
            by_path = value == OWN_PATH and case.value != OWN_PATH
            assert by_path or not left or image.at(left).read_bytes() != ours, case
        assert off.ok, case
        do(image, "enable", lambda: plan_enable(image.host))
    done = do(image, "install", lambda: plan_install(image.host, source))
    if done is not None and case.value in {"", "harp", NAME}:
        assert done.ok, case
        assert image.at(done.path).read_bytes() == ours, case
    assert bytes_of(image, other) == vendors, case
    rollback(image.host, progress=NoProgress())
    assert image.files() == begin, case


def test_enable_undoes_disable_of_both_names(image: Image, harp: Path) -> None:
    for name in (NAME, SUFFIXED):
        image.put(harp, f"{image.libraries}/{name}")
    before = image.files()
    do(image, "disable", lambda: plan_disable(image.host))
    assert read_status(image.host).state == "disabled"
    do(image, "enable", lambda: plan_enable(image.host))
    assert {path: data for path, data in image.files().items() if "lib/harp/" not in path} == before


@pytest.mark.parametrize("path", [OWN_PATH, f"/lib/x86_64-linux-gnu/{SUFFIXED}", "/mnt/harp.so"])
def test_a_path_is_turned_off_and_on(image: Image, harp: Path, path: str) -> None:
    image.put(harp, path)
    image.put(f"NCCL_NET_PLUGIN={path}\n".encode(), "/etc/nccl.conf")
    assert read_status(image.host).state == "enabled"
    before = image.files()
    assert do(image, "disable", lambda: plan_disable(image.host))
    assert read_status(image.host).state == "disabled"
    assert not image.at(path).exists()
    assert do(image, "enable", lambda: plan_enable(image.host))
    assert {path: data for path, data in image.files().items() if "lib/harp/" not in path} == before


@pytest.mark.parametrize(
    ("nccl", "value", "files"),
    [
        ("2.10.3", "harp", (NAME,)),
        ("2.32.3", None, (NAME,)),
        ("2.25.1", "", (NAME,)),
        ("2.27.7", "", ()),
        ("2.13.4", "harp", (SUFFIXED,)),
        ("2.19.3", "/x/y.so", ("libnccl-net-/x/y.so.so",)),
        ("2.21.5", "harp", ("harp", SUFFIXED)),
        ("2.21.5", "/x/y.so", ("/x/y.so", "libnccl-net-/x/y.so.so")),
        ("2.26.2", "/x/y.so", ("/x/y.so",)),
        ("2.26.2", "a,b", ("a,b", "libnccl-net-a,b.so")),
        ("2.27.7", "a,libb.so", ("a", "libnccl-net-a.so", "libb.so")),
        ("2.27.7", "none", ("none", "libnccl-net-none.so")),
        ("2.28.3", "None", ()),
    ],
)
def test_what_each_release_tries(nccl: str, value: str | None, files: tuple[str, ...]) -> None:
    assert tried(value, nccl) == files


def test_an_nccl_that_takes_no_path_is_named(
    image: Image, harp: Path, make_nccl: Callable[[str], Path]
) -> None:
    image.put(harp, OWN_PATH)
    image.put(f"NCCL_NET_PLUGIN={OWN_PATH}\n".encode(), "/etc/nccl.conf")
    image.put(make_nccl("2.19.3"), f"{image.libraries}/libnccl.so.2")
    found = read_status(image.host)
    assert any("makes NCCL 2.19.3 look for libnccl-net-/opt/harp/net.so.so" in note for note in found.notes)
    assert [one.plugin for one in found.libraries] == [""]
