# SPDX-License-Identifier: Apache-2.0
"""The plugin's names together: plain, second, a path, and their parked forms, under every setting.

What NCCL takes is found out here by another way than in harpctl: by its rules for one value, file by file.
tests/nccl holds these rules against official releases.
"""

from __future__ import annotations

import io
import os
import shlex
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harpctl.change.rollback import roll_back
from harpctl.console import NoProgress
from harpctl.doctor.context import Context
from harpctl.doctor.examine import run_checks
from harpctl.doctor.model import CHECKS, Finding
from harpctl.errors import HarpError
from harpctl.facts import plugin_files
from harpctl.facts.collect import collect_facts
from harpctl.facts.elf import inspect_elf
from harpctl.facts.model import Facts
from harpctl.facts.plugin_files import NAME, SUFFIXED, parked_as
from harpctl.host.host import Host
from harpctl.plugin import source
from harpctl.plugin.choice import candidate_files
from harpctl.plugin.command import SwitchResult, run_switch
from harpctl.plugin.source import read_source
from harpctl.plugin.status import read_status
from harpctl.plugin.switch import Switch, plan_disable, plan_enable, plan_install
from tests.draws import draw_examples
from tests.harpctl.plugin.conftest import TABLE, Compile, Image, make_image

OWN_PATH = "/opt/harp/net.so"
FIRST_DIR = "/opt/vendor/lib"  # the loader searches it before the library directory
VALUES: dict[str | None, tuple[str, ...]] = {  # values of NCCL_NET_PLUGIN: the files that the newest NCCL tries
    None: (NAME,),
    "": (),
    "harp": (SUFFIXED,),
    OWN_PATH: (OWN_PATH,),
    NAME: (NAME,),
    "ofi,harp": ("libnccl-net-ofi.so", SUFFIXED),
    "none": (),
}
HOLDERS = st.sampled_from(["", "harp", "other"])


@dataclass(frozen=True)
class Files:
    """A HARP that is there, a newer one to install, and another vendor's plugin; all quick to read."""

    harp: Path
    newer: Path
    other: Path

    def are_harp(self, data: bytes) -> bool:
        return data in {self.harp.read_bytes(), self.newer.read_bytes()}


@dataclass(frozen=True)
class Case:
    """Plugins on the image, who sets which NCCL_NET_PLUGIN, and what is done."""

    first: str  # who holds the plain name where the loader looks first
    plain: str
    second: str
    path: bool
    parked: tuple[bool, bool, bool]  # whether the plain name, the second one and the path are parked
    value: str | None
    setter: str
    actions: tuple[str, ...]


CASES = st.builds(
    Case,
    first=HOLDERS,
    plain=HOLDERS,
    second=HOLDERS,
    path=st.booleans(),
    parked=st.tuples(st.booleans(), st.booleans(), st.booleans()),
    value=st.sampled_from(list(VALUES)),
    setter=st.sampled_from(["/etc/nccl.conf", "/root/.nccl.conf"]),
    actions=st.lists(
        st.sampled_from(["install", "install plain", "install harp", "enable", "disable"]),
        min_size=1,
        max_size=3,
    ).map(tuple),
)


@pytest.fixture(scope="session")
def files(compile_library: Compile, harp: Path) -> Files:
    newer = compile_library("newer", TABLE.format(symbol="ncclNetPlugin_v9", name="HARP"))
    other = compile_library("other_vendor", TABLE.format(symbol="ncclNetPlugin_v8", name="Other"))
    return Files(harp, newer, other)


@pytest.fixture
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read each content once, as there are but three, and wait for no disk: both take most of the time."""
    monkeypatch.setattr(os, "fsync", lambda _file: None)
    once = cache(lambda data: inspect_elf(io.BytesIO(data), ""))
    for module in (plugin_files, source):
        monkeypatch.setattr(module, "inspect_elf", lambda file, _path: once(file.read()))


def lay_out(image: Image, case: Case, files: Files) -> None:
    folder = image.libraries
    holders = {"harp": files.harp, "other": files.other}
    parked = {parked_as(NAME): folder, parked_as(SUFFIXED): folder, "bak.net.so": "/opt/harp"}
    there = {
        f"{FIRST_DIR}/{NAME}": holders.get(case.first),
        f"{folder}/{NAME}": holders.get(case.plain),
        f"{folder}/{SUFFIXED}": holders.get(case.second),
        OWN_PATH: files.harp if case.path else None,
        **{
            f"{place}/{name}": files.harp if is_there else None
            for (name, place), is_there in zip(parked.items(), case.parked, strict=True)
        },
    }
    for path, file in there.items():
        image.at(path).parent.mkdir(parents=True, exist_ok=True)
        if file:
            image.put(file, path)
    image.put(f"{FIRST_DIR}\n".encode(), "/etc/ld.so.conf")
    if case.value is not None:
        image.put(f"NCCL_NET_PLUGIN={case.value}\n".encode(), case.setter)


def nccl_takes(image: Image, value: str | None) -> str:
    """Return the path that NCCL takes, or ""."""
    for file in VALUES[value]:
        for path in [file] if "/" in file else [f"{FIRST_DIR}/{file}", f"{image.libraries}/{file}"]:
            if image.at(path).is_file():
                return path
    return ""


def is_harp(image: Image, path: str, files: Files) -> bool:
    return bool(path) and files.are_harp(image.at(path).read_bytes())


def run_action(image: Image, action: str, make: Callable[[], Switch]) -> SwitchResult | None:
    """Carry it out, twice; None where it is refused, which must change nothing."""
    before = image.files()
    try:
        done = run_switch(image.host, action, make, NoProgress(), dry_run=False)
    except HarpError:
        assert image.files() == before
        return None
    assert not run_switch(image.host, action, make, NoProgress(), dry_run=False).changed
    return done


@cache
def facts_of_nothing(folder: Path) -> Facts:
    """Return the facts of an empty tree: the checks of names need no more, and gathering takes long."""
    return collect_facts(Host(folder))


def find_problems(image: Image) -> list[Finding]:
    """Return what the doctor finds of the plugin and of NCCL's variables."""
    found = run_checks(Context(image.host, facts_of_nothing(image.root.parent / "nothing")))
    return [finding for finding in found if finding.group in {"plugin", "nccl"}]


@pytest.mark.usefixtures("quickly")
@draw_examples(25)
@given(case=CASES)
@example(case=Case("", "", "", True, (False, False, False), OWN_PATH, "/root/.nccl.conf", ("install",)))
@example(case=Case("", "", "other", False, (False, False, False), None, "/etc/nccl.conf", ("install",)))
@example(case=Case("", "harp", "harp", False, (False, False, False), "harp", "/etc/nccl.conf", ("install",)))
@example(case=Case("other", "", "harp", True, (True, True, True), None, "/etc/nccl.conf", ("disable",)))
def test_every_name_with_every_setting(tmp_path_factory: pytest.TempPathFactory, files: Files, case: Case) -> None:
    image = make_image(tmp_path_factory.mktemp("names") / "image", "debian")
    lay_out(image, case, files)
    begin = image.files()
    vendors = {path for path, data in begin.items() if data == files.other.read_bytes()}
    check_reports(image, case, files)
    for action in case.actions:
        check_action(image, case, files, action)
        check_reports(image, case, files)
        follow_doctor(image, case, files)
        found = image.files()
        assert {path for path, data in found.items() if data == files.other.read_bytes()} == vendors
    roll_back(image.host, progress=NoProgress())
    assert image.files() == begin


def value_for_every_job(case: Case) -> str | None:
    """Return the value that holds for every job; a user's file holds for that user alone."""
    return case.value if case.setter == "/etc/nccl.conf" else None


def check_reports(image: Image, case: Case, files: Files) -> None:
    """Compare what status, doctor and validate report with what NCCL takes."""
    takes = nccl_takes(image, value_for_every_job(case))
    is_ours = is_harp(image, takes, files)
    found = read_status(image.host)
    assert (found.state == "enabled") == is_ours
    assert not is_ours or found.path == takes
    assert [file.path for file in found.files if file.is_loaded] == [takes][: bool(takes)]
    findings = find_problems(image)
    assert not takes or any(takes in finding.cause for finding in findings), "what NCCL takes is named"
    assert is_ours or any(finding.level in {"fail", "warn"} for finding in findings)
    by_setting = nccl_takes(image, case.value)
    users_own = case.value is not None and not is_harp(image, by_setting, files)
    failed = [finding for finding in findings if finding.level == "fail" and CHECKS[finding.id].validates]
    assert bool(failed) <= (not is_ours or users_own)
    assert bool(failed) >= (bool(takes) and not is_ours)
    for command in (command for finding in findings for command in finding.repair):
        word, _space, rest = command.partition(" ")
        assert word in {"harpctl", "export", "sed", "rm"}
        if word == "sed":
            assert users_own
            assert case.value not in {"harp", NAME, "ofi,harp"} or by_setting, "what names HARP stays"
            assert case.value != OWN_PATH or by_setting or not image.at("/opt/harp/bak.net.so").exists()
        if word == "rm":
            path = rest.removeprefix(str(image.root))
            assert path != takes
            assert is_harp(image, path, files)


def follow_doctor(image: Image, case: Case, files: Files) -> None:
    """Change the setting as the doctor suggests: it leads to HARP then, if one is on under a name."""
    file = image.at(case.setter)
    before = file.read_bytes() if case.value is not None else b""
    by_name = [nccl_takes(image, value) for value in (None, "harp")]
    for command in (command for finding in find_problems(image) for command in finding.repair):
        if command.startswith("sed "):
            subprocess.run(shlex.split(command), check=True)
            _name, _equals, value = file.read_text().strip().partition("=")
            takes = nccl_takes(image, value or None)
            assert is_harp(image, takes, files) or not any(is_harp(image, path, files) for path in by_name)
            file.write_bytes(before)


def check_action(image: Image, case: Case, files: Files, action: str) -> None:
    """Install, enable or disable, and look at what came of it."""
    word, _space, name = action.partition(" ")
    file = read_source(image.host, files.newer)
    before = image.files()
    ours = {path for path, data in before.items() if isinstance(data, bytes) and files.are_harp(data)}
    on = [path for path in ours if "bak." not in path and (path != OWN_PATH[1:] or case.value == OWN_PATH)]
    if word == "install":
        wanted = {"": "", "plain": NAME, "harp": SUFFIXED}[name]
        done = run_action(image, word, lambda: plan_install(image.host, file, name=wanted))
        if done is None:
            return
        assert image.at(done.path).read_bytes() == files.newer.read_bytes()
        for value in VALUES if not wanted else ():
            takes = nccl_takes(image, value)
            reached = value != OWN_PATH or case.value == OWN_PATH
            assert not (reached and is_harp(image, takes, files)) or (
                image.at(takes).read_bytes() == files.newer.read_bytes()
            ), "no name leads to the old one"
    elif word == "enable":
        done = run_action(image, word, lambda: plan_enable(image.host))
        assert done is None or not on or not done.changed
    else:
        done = run_action(image, word, lambda: plan_disable(image.host))
        assert done is None or done.ok
        for value in VALUES if done else ():
            reached = value != OWN_PATH or case.value == OWN_PATH
            assert not (reached and is_harp(image, nccl_takes(image, value), files))


def test_enable_undoes_disable_of_both_names(image: Image, harp: Path) -> None:
    for name in (NAME, SUFFIXED):
        image.put(harp, f"{image.libraries}/{name}")
    before = image.files()
    run_action(image, "disable", lambda: plan_disable(image.host))
    assert read_status(image.host).state == "disabled"
    run_action(image, "enable", lambda: plan_enable(image.host))
    assert {path: data for path, data in image.files().items() if "lib/harp/" not in path} == before


@pytest.mark.parametrize("path", [OWN_PATH, f"/lib/x86_64-linux-gnu/{SUFFIXED}", "/mnt/harp.so"])
def test_a_path_is_turned_off_and_on(image: Image, harp: Path, path: str) -> None:
    image.put(harp, path)
    image.put(f"NCCL_NET_PLUGIN={path}\n".encode(), "/etc/nccl.conf")
    assert read_status(image.host).state == "enabled"
    before = image.files()
    assert run_action(image, "disable", lambda: plan_disable(image.host))
    assert read_status(image.host).state == "disabled"
    assert not image.at(path).exists()
    assert run_action(image, "enable", lambda: plan_enable(image.host))
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
    assert candidate_files(value, nccl) == files


def test_an_nccl_that_takes_no_path_is_named(image: Image, harp: Path, make_nccl: Callable[[str], Path]) -> None:
    image.put(harp, OWN_PATH)
    image.put(f"NCCL_NET_PLUGIN={OWN_PATH}\n".encode(), "/etc/nccl.conf")
    image.put(make_nccl("2.19.3"), f"{image.libraries}/libnccl.so.2")
    found = read_status(image.host)
    assert any("makes NCCL 2.19.3 look for libnccl-net-/opt/harp/net.so.so" in note for note in found.notes)
    assert [one.plugin for one in found.libraries] == [""]
