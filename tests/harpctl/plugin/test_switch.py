# SPDX-License-Identifier: Apache-2.0
"""install, disable, enable and rollback on images of both families: what they change and what they refuse."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from harpctl.change.rollback import roll_back
from harpctl.console import NoProgress
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.plugin_files import FORMS, NAME, PARKED, SUFFIXED
from harpctl.host.host import Host
from harpctl.host.runner import Completed
from harpctl.plugin.command import SwitchResult, run_switch
from harpctl.plugin.source import find_source, read_source
from harpctl.plugin.status import read_status
from harpctl.plugin.switch import Switch, aside_as, plan_disable, plan_enable, plan_install
from tests.harpctl.machine import DEBIAN_DISTROS, DISTROS, build_machine
from tests.harpctl.plugin.conftest import TRIPLET, Compile, Image

ASIDE = aside_as(NAME)
PARKED_PLACES = [
    (folder, name)
    for folder in ("beside", "/mnt", "/root")
    for name in FORMS
    if (folder, name) != ("beside", NAME)
]


def run_action(image: Image, action: str, make: Callable[[], Switch]) -> SwitchResult:
    return run_switch(image.host, action, make, NoProgress(), dry_run=False)


def install_plugin(
    image: Image, file: Path, folder: str = "", *, name: str = "", force: bool = False
) -> SwitchResult:
    source = read_source(image.host, file)
    return run_action(image, "install", lambda: plan_install(image.host, source, folder, name=name, force=force))


def enable_plugin(image: Image, *, force: bool = False) -> SwitchResult:
    return run_action(image, "enable", lambda: plan_enable(image.host, force=force))


def disable_plugin(image: Image) -> SwitchResult:
    return run_action(image, "disable", lambda: plan_disable(image.host))


def installed_path(image: Image) -> str:
    return f"{image.libraries}/{NAME}"


def run_refused(action: Callable[[], object], image: Image) -> HarpError:
    """Run what must be refused, and see that it changed nothing."""
    before = image.files()
    with pytest.raises(HarpError) as caught:
        action()
    assert image.files() == before
    return caught.value


# ---- install ----


def test_install_and_rollback(image: Image, plugin_file: Path) -> None:
    before = image.files()
    result = install_plugin(image, plugin_file)
    assert (result.ok, result.changed, result.state, result.path) == (
        True,
        True,
        "enabled",
        installed_path(image),
    )
    assert image.at(installed_path(image)).read_bytes() == plugin_file.read_bytes()
    assert image.at(installed_path(image)).stat().st_mode & 0o777 == 0o755
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before


def test_installing_again_changes_nothing(image: Image, plugin_file: Path) -> None:
    install_plugin(image, plugin_file)
    image.at(installed_path(image)).chmod(0o644)  # as a package may have it
    before, inode = image.files(), image.at(installed_path(image)).stat().st_ino
    result = install_plugin(image, plugin_file)
    assert (result.changed, result.transaction) == (False, "")
    assert "already" in result.summary
    assert (image.files(), image.at(installed_path(image)).stat().st_ino) == (before, inode)


def test_an_upgrade_leaves_a_running_job_its_file(
    image: Image, plugin_file: Path, compile_library: Compile
) -> None:
    code = 'struct { const char *name; } ncclNetPlugin_v8 = { "HARP" };'
    old = compile_library("old", code)
    install_plugin(image, old)
    target = image.at(installed_path(image))
    with target.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert install_plugin(image, plugin_file).changed
        assert mapped[:] == old.read_bytes()
        assert os.fstat(file.fileno()).st_nlink == 0
    assert target.read_bytes() == plugin_file.read_bytes()


def test_install_replaces_harp_where_it_is(debian: Image, plugin_file: Path, compile_library: Compile) -> None:
    debian.put(b"/usr/local/lib\n", "/etc/ld.so.conf")
    old = compile_library("older", 'struct { const char *name; } ncclNetPlugin_v6 = { "HARP" };')
    debian.put(old, f"/usr/local/lib/{NAME}")
    assert install_plugin(debian, plugin_file).path == f"/usr/local/lib/{NAME}"
    assert not debian.at(installed_path(debian)).exists()


def test_install_into_a_directory_that_is_not_searched(image: Image, plugin_file: Path) -> None:
    image.at("/opt/harp").mkdir(parents=True)
    result = install_plugin(image, plugin_file, "/opt/harp")
    assert (result.ok, result.path, result.state) == (True, f"/opt/harp/{NAME}", "absent")
    assert "is not loaded by name" in result.notes[0]
    assert not install_plugin(image, plugin_file, "/opt/harp").changed


@pytest.mark.parametrize("folder", ["/opt/none", "relative", "/etc/hosts"])
def test_install_wants_a_directory(image: Image, plugin_file: Path, folder: str) -> None:
    error = run_refused(lambda: install_plugin(image, plugin_file, folder), image)
    assert error.exit_code == ExitCode.USAGE
    assert folder in error.message


def test_install_refuses_other_machines(image: Image, other_machine: Path) -> None:
    error = run_refused(lambda: install_plugin(image, other_machine), image)
    assert error.exit_code == ExitCode.REFUSED
    assert "and this host is" in error.message


def test_install_refuses_what_is_no_plugin(image: Image, other_library: Path) -> None:
    assert "no NCCL network plugin" in run_refused(lambda: install_plugin(image, other_library), image).message


def test_install_refuses_another_vendors_file(image: Image, foreign: Path) -> None:
    assert (
        "is the plugin AWS Libfabric, not HARP"
        in run_refused(lambda: install_plugin(image, foreign), image).message
    )


def test_install_refuses_a_cut_off_file(image: Image, plugin_file: Path, tmp_path: Path) -> None:
    part = tmp_path / "part.so"
    part.write_bytes(plugin_file.read_bytes()[:50_000])
    assert "is cut off" in run_refused(lambda: install_plugin(image, part), image).message


def test_install_refuses_a_missing_file(image: Image, tmp_path: Path) -> None:
    error = run_refused(lambda: install_plugin(image, tmp_path / "none.so"), image)
    assert (error.exit_code, "cannot be read" in error.message) == (ExitCode.MISSING, True)


@pytest.mark.parametrize(("version", "fits"), [("2.17", False), ("2.99", True)])
def test_install_looks_at_glibc(
    image: Image, plugin_file: Path, compile_library: Compile, version: str, fits: bool
) -> None:
    script = f"GLIBC_{version} {{ global: one; local: *; }};\n"
    libc = compile_library(f"libc{version}", "int one(void) { return 1; }", "-nostdlib", script=script)
    image.put(libc, f"{image.libraries}/libc.so.6")
    if fits:
        assert install_plugin(image, plugin_file).state == "enabled"
    else:
        error = run_refused(lambda: install_plugin(image, plugin_file), image)
        assert "needs glibc" in error.message
        assert "this host has 2.17" in error.message


def test_another_plugin_in_the_place_is_moved_aside_only_by_force(
    image: Image, plugin_file: Path, foreign: Path
) -> None:
    image.put(foreign, installed_path(image))
    before = image.files()
    error = run_refused(lambda: install_plugin(image, plugin_file, name=NAME), image)
    assert f"{installed_path(image)} (the plugin AWS Libfabric)" in error.message
    assert install_plugin(image, plugin_file, force=True).state == "enabled"
    assert image.at(f"{image.libraries}/{ASIDE}").read_bytes() == foreign.read_bytes()
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before


@pytest.mark.parametrize("place", ["libraries", "/opt/amazon/lib"])
def test_beside_another_plugin_harp_takes_the_second_name(
    image: Image, plugin_file: Path, foreign: Path, place: str
) -> None:
    image.put(b"/opt/amazon/lib\n", "/etc/ld.so.conf")
    other = f"{image.libraries if place == 'libraries' else place}/{NAME}"
    image.put(foreign, other)
    before = image.files()
    result = install_plugin(image, plugin_file)
    path = f"{image.libraries}/{SUFFIXED}"
    assert (result.ok, result.state, result.path) == (True, "beside", path)
    assert "Set NCCL_NET_PLUGIN=harp for the job" in result.notes[0]
    assert "AWS Libfabric" in result.notes[0]
    assert image.at(path).read_bytes() == plugin_file.read_bytes()
    assert not image.at(path).is_symlink()
    assert image.at(other).read_bytes() == foreign.read_bytes()
    assert not install_plugin(image, plugin_file).changed
    image.put(b"NCCL_NET_PLUGIN=harp\n", "/etc/nccl.conf")
    found = read_status(image.host)
    assert (found.state, found.path, found.notes[-1:]) == ("enabled", path, found.notes[-1:])
    assert not any("makes NCCL" in note for note in found.notes)
    image.at("/etc/nccl.conf").unlink()
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before


def test_another_plugin_that_would_be_found_first(debian: Image, plugin_file: Path, foreign: Path) -> None:
    debian.put(b"/opt/amazon/lib\n", "/etc/ld.so.conf")
    debian.put(foreign, f"/opt/amazon/lib/{NAME}")
    error = run_refused(lambda: install_plugin(debian, plugin_file, name=NAME), debian)
    assert "NCCL would load that one" in error.message
    assert install_plugin(debian, plugin_file, force=True).state == "enabled"
    assert debian.at(f"/opt/amazon/lib/{ASIDE}").is_file()


def test_another_plugin_that_is_found_later_is_left_alone(debian: Image, plugin_file: Path, foreign: Path) -> None:
    debian.put(foreign, f"/usr/lib/{NAME}")
    result = install_plugin(debian, plugin_file)
    assert result.state == "enabled"
    assert any(f"/usr/lib/{NAME} is the plugin AWS Libfabric too" in note for note in result.notes)


def test_a_directory_in_the_way(image: Image, plugin_file: Path) -> None:
    image.at(installed_path(image)).mkdir()
    error = run_refused(lambda: install_plugin(image, plugin_file), image)
    assert installed_path(image) in error.message
    assert read_status(image.host).state == "broken"
    assert install_plugin(image, plugin_file, force=True).state == "enabled"
    assert image.at(f"{image.libraries}/{ASIDE}").is_dir()


def test_force_never_overwrites_what_was_moved_aside(image: Image, plugin_file: Path, foreign: Path) -> None:
    image.put(foreign, installed_path(image))
    image.put(foreign, f"{image.libraries}/{ASIDE}")
    error = run_refused(lambda: install_plugin(image, plugin_file, force=True), image)
    assert "is there already" in error.message


@pytest.mark.parametrize(("folder", "name"), PARKED_PLACES)
def test_install_does_not_turn_on_what_was_turned_off(
    image: Image, plugin_file: Path, folder: str, name: str
) -> None:
    path = f"{image.libraries if folder == 'beside' else folder}/{name}"
    image.put(plugin_file, path)
    error = run_refused(lambda: install_plugin(image, plugin_file), image)
    assert f"HARP is disabled on this host: {path}" in error.message
    assert "harpctl enable" in error.hint
    assert install_plugin(image, plugin_file, force=True).state == "enabled"


def test_a_file_in_root_can_be_the_one_to_install(image: Image, plugin_file: Path) -> None:
    file = image.put(plugin_file, f"/root/{NAME}")
    assert install_plugin(image, file).state == "enabled"


def test_our_own_plugin_is_found_and_fits(image: Image) -> None:
    source = find_source(image.host, None)
    assert source.elf.is_harp
    assert plan_install(image.host, source).path == installed_path(image)


# ---- the loader's cache ----


class Ldconfig:
    """A runner that knows one command, and counts."""

    runs = True

    def __init__(self, cache: Path) -> None:
        self.cache = cache
        self.calls = 0

    def run(self, argv: Sequence[str], timeout_s: float = 0.0) -> Completed:
        del timeout_s
        assert tuple(argv) == ("ldconfig",)
        self.calls += 1
        self.cache.write_text(f"cache {self.calls}")
        return Completed(tuple(argv), 0)


def put_ldconfig(image: Image) -> None:
    image.put(b"", "/usr/sbin/ldconfig").chmod(0o755)


@pytest.mark.parametrize(("folder", "calls"), [("", 0), ("/usr/local/lib", 2)])
def test_folders_that_only_the_cache_knows_get_a_new_cache(
    debian: Image, plugin_file: Path, folder: str, calls: int
) -> None:
    debian.at("/usr/local/lib").mkdir(parents=True)
    debian.put(b"/usr/local/lib\n", "/etc/ld.so.conf")
    debian.put(b"cache 0", "/etc/ld.so.cache")
    put_ldconfig(debian)
    before = debian.files()
    runner = Ldconfig(debian.at("/etc/ld.so.cache"))
    host = Host(debian.root, runner)
    source = read_source(host, plugin_file)
    makes = [
        lambda: plan_install(host, source, folder),
        lambda: plan_disable(host),
        lambda: plan_enable(host),
    ]
    for make in makes:
        assert run_switch(host, "switch", make, NoProgress(), dry_run=False).changed
    assert not run_switch(host, "switch", makes[-1], NoProgress(), dry_run=False).changed
    assert runner.calls == calls
    roll_back(host, progress=NoProgress())
    assert debian.files() == before


def test_among_several_the_cache_decides(debian: Image, plugin_file: Path, foreign: Path) -> None:
    debian.put(foreign, f"/usr/lib/{NAME}")
    put_ldconfig(debian)
    runner = Ldconfig(debian.at("/etc/ld.so.cache"))
    host = Host(debian.root, runner)
    source = read_source(host, plugin_file)
    run_switch(host, "install", lambda: plan_install(host, source), NoProgress(), dry_run=False)
    assert runner.calls == 1


def test_without_ldconfig_the_library_goes_where_no_cache_is_needed(
    debian: Image, plugin_file: Path, foreign: Path
) -> None:
    debian.put(foreign, f"/usr/lib/{NAME}")
    debian.at("/usr/local/lib").mkdir(parents=True)
    debian.put(b"/usr/local/lib\n", "/etc/ld.so.conf")
    runner = Ldconfig(debian.at("/etc/ld.so.cache"))
    host = Host(debian.root, runner)
    source = read_source(host, plugin_file)
    with pytest.raises(HarpError, match="This host has no ldconfig") as caught:
        plan_install(host, source, "/usr/local/lib")
    assert caught.value.hint.endswith(f" {debian.libraries}")
    run_switch(host, "install", lambda: plan_install(host, source), NoProgress(), dry_run=False)
    assert runner.calls == 0
    assert debian.at(installed_path(debian)).is_file()


# ---- disable ----


def test_disable_and_enable_and_again(image: Image, plugin_file: Path) -> None:
    install_plugin(image, plugin_file)
    parked = f"{image.libraries}/{PARKED}"
    off = disable_plugin(image)
    assert (off.ok, off.changed, off.state, off.path) == (True, True, "disabled", parked)
    assert not image.at(installed_path(image)).exists()
    assert image.at(parked).read_bytes() == plugin_file.read_bytes()
    again = disable_plugin(image)
    assert (again.ok, again.changed, again.path) == (True, False, parked)
    on = enable_plugin(image)
    assert (on.ok, on.changed, on.state, on.path) == (True, True, "enabled", installed_path(image))
    assert not enable_plugin(image).changed
    assert not image.at(parked).exists()


def test_rollback_undoes_switches_and_install(image: Image, plugin_file: Path) -> None:
    before = image.files()
    install_plugin(image, plugin_file)
    disable_plugin(image)
    enable_plugin(image)
    disable_plugin(image)
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before


def test_disable_where_there_is_none(image: Image) -> None:
    result = disable_plugin(image)
    assert (result.ok, result.changed, result.state) == (True, False, "absent")


def test_disable_refuses_to_overwrite(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, installed_path(image))
    parked = image.put(plugin_file, f"{image.libraries}/{PARKED}")
    error = run_refused(lambda: disable_plugin(image), image)
    assert error.exit_code == ExitCode.REFUSED
    assert installed_path(image) in error.message
    assert str(parked).removeprefix(str(image.root)) in error.message
    assert error.hint.endswith(f"rm {image.libraries}/{PARKED}")


def test_disable_leaves_other_plugins_alone(image: Image, foreign: Path) -> None:
    image.put(foreign, installed_path(image))
    result = disable_plugin(image)
    assert (result.ok, result.changed, result.state) == (True, False, "foreign")


def test_disable_turns_off_every_copy_that_would_be_found(debian: Image, plugin_file: Path) -> None:
    debian.put(b"/usr/local/lib\n", "/etc/ld.so.conf")
    debian.put(plugin_file, f"/usr/local/lib/{NAME}")
    debian.put(plugin_file, installed_path(debian))
    assert disable_plugin(debian).state == "disabled"
    assert debian.at(f"/usr/local/lib/{PARKED}").is_file()
    assert debian.at(f"{debian.libraries}/{PARKED}").is_file()


def test_disable_shows_what_nccl_finds_instead(debian: Image, plugin_file: Path, foreign: Path) -> None:
    debian.put(plugin_file, installed_path(debian))
    debian.put(foreign, f"/usr/lib/{NAME}")
    result = disable_plugin(debian)
    assert (result.ok, result.state) == (True, "foreign")


def test_a_link_is_renamed_and_comes_back(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, "/opt/harp/plugin.so")
    image.at(installed_path(image)).symlink_to("/opt/harp/plugin.so")
    disable_plugin(image)
    assert image.at(f"{image.libraries}/{PARKED}").is_symlink()
    enable_plugin(image)
    assert image.at(installed_path(image)).is_symlink()


def test_rollback_finds_a_plugin_that_was_renamed_by_hand(image: Image, plugin_file: Path) -> None:
    before = image.files()
    install_plugin(image, plugin_file)
    image.at(installed_path(image)).rename(image.at(f"{image.libraries}/bak.{NAME}"))
    result = roll_back(image.host, progress=NoProgress())
    assert image.files() == before
    assert not result.kept
    assert [step.actions for step in result.reverted if step.actions] == [[f"remove {image.libraries}/bak.{NAME}"]]


def test_rollback_follows_the_plugin_through_renames(image: Image, plugin_file: Path) -> None:
    before = image.files()
    install_plugin(image, plugin_file)
    for _turn in range(5):
        image.at(installed_path(image)).rename(image.at(f"{image.libraries}/bak.{NAME}"))
        enable_plugin(image)
        disable_plugin(image)
        enable_plugin(image)
    image.at(installed_path(image)).rename(image.at(f"{image.libraries}/libncc-net.so"))
    result = roll_back(image.host, progress=NoProgress())
    assert not result.kept
    assert image.files() == before


def test_rollback_says_that_what_it_moved_is_gone(image: Image, plugin_file: Path, foreign: Path) -> None:
    image.put(foreign, installed_path(image))
    install_plugin(image, plugin_file, force=True)
    image.at(f"{image.libraries}/{ASIDE}").unlink()
    (kept,) = roll_back(image.host, progress=NoProgress()).kept
    assert kept.reason == f"it is gone, and can't be moved back to {installed_path(image)}"


# ---- enable ----


@pytest.mark.parametrize(("folder", "name"), PARKED_PLACES)
def test_enable_finds_every_form(image: Image, plugin_file: Path, folder: str, name: str) -> None:
    parked = image.put(plugin_file, f"{image.libraries if folder == 'beside' else folder}/{name}")
    before = image.files()
    result = enable_plugin(image)
    assert (result.ok, result.state, result.path) == (True, "enabled", installed_path(image))
    assert image.at(installed_path(image)).read_bytes() == plugin_file.read_bytes()
    assert not parked.exists()
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before


@pytest.mark.parametrize(("first", "second"), list(itertools.combinations(PARKED_PLACES, 2))[::5])
def test_enable_refuses_when_two_exist(
    image: Image, plugin_file: Path, first: tuple[str, str], second: tuple[str, str]
) -> None:
    paths = [f"{image.libraries if folder == 'beside' else folder}/{name}" for folder, name in (first, second)]
    for path in paths:
        image.put(plugin_file, path)
    error = run_refused(lambda: enable_plugin(image), image)
    assert error.exit_code == ExitCode.REFUSED
    assert all(path in error.message for path in paths)
    assert "rm " in error.hint


def test_enable_with_a_parked_copy_beside_reports_it(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, installed_path(image))
    image.put(plugin_file, f"{image.libraries}/{PARKED}")
    result = enable_plugin(image)
    assert (result.ok, result.changed) == (True, False)


def test_enable_where_there_is_none(image: Image) -> None:
    error = run_refused(lambda: enable_plugin(image), image)
    assert (error.exit_code, error.hint) == (ExitCode.MISSING, "Run: harpctl install")


def test_enable_refuses_other_machines(image: Image, other_machine: Path) -> None:
    image.put(other_machine, f"{image.libraries}/{PARKED}")
    assert "and this host is" in run_refused(lambda: enable_plugin(image), image).message


def test_enable_refuses_a_cut_off_file(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file.read_bytes()[:10_000], f"{image.libraries}/{PARKED}")
    error = run_refused(lambda: enable_plugin(image), image)
    assert (error.exit_code, "is cut off" in error.message) == (ExitCode.WRONG_DATA, True)


@pytest.mark.parametrize("kind", ["directory", "dangling", "text"])
def test_enable_refuses_what_is_no_plugin(image: Image, kind: str) -> None:
    parked = image.at(f"{image.libraries}/{PARKED}")
    if kind == "directory":
        parked.mkdir()
    elif kind == "dangling":
        parked.symlink_to("/nowhere")
    else:
        parked.write_text("not this\n")
    error = run_refused(lambda: enable_plugin(image), image)
    assert f"{image.libraries}/{PARKED}" in error.message


def test_enable_refuses_another_vendors_plugin_without_force(image: Image, foreign: Path) -> None:
    image.put(foreign, f"{image.libraries}/{PARKED}")
    assert "is the plugin AWS Libfabric, not HARP" in run_refused(lambda: enable_plugin(image), image).message
    result = enable_plugin(image, force=True)
    assert (result.ok, result.state) == (True, "foreign")


def test_enable_refuses_when_another_plugin_comes_before_harp(
    debian: Image, plugin_file: Path, foreign: Path
) -> None:
    debian.put(b"/opt/amazon/lib\n", "/etc/ld.so.conf")
    debian.put(foreign, f"/opt/amazon/lib/{NAME}")
    debian.put(plugin_file, installed_path(debian))
    error = run_refused(lambda: enable_plugin(debian), debian)
    assert f"/opt/amazon/lib/{NAME} (the plugin AWS Libfabric)" in error.message


def test_enable_refuses_when_another_plugin_has_the_name(image: Image, plugin_file: Path, foreign: Path) -> None:
    image.put(plugin_file, f"{image.libraries}/{PARKED}")
    image.put(foreign, installed_path(image))
    error = run_refused(lambda: enable_plugin(image), image)
    assert f"{installed_path(image)} (the plugin AWS Libfabric)" in error.message


def test_a_dry_run_changes_nothing_and_shows_the_step(image: Image, plugin_file: Path) -> None:
    image.put(plugin_file, installed_path(image))
    before = image.files()
    result = run_switch(image.host, "disable", lambda: plan_disable(image.host), NoProgress(), dry_run=True)
    assert image.files() == before
    assert (result.changed, result.state) == (True, "enabled")
    assert f"rename to {image.libraries}/{PARKED}" in result.plan


@pytest.mark.skipif(not TRIPLET.startswith("x86_64"), reason="the trees are of x86-64 machines")
@pytest.mark.parametrize("distro", DISTROS)
def test_every_distribution(tmp_path: Path, plugin_file: Path, distro: str) -> None:
    libraries = f"/usr/lib/{TRIPLET}" if distro in DEBIAN_DISTROS else "/usr/lib64"
    image = Image(build_machine(tmp_path / "image", distro, "gpu1"), libraries)
    before = image.files()
    assert install_plugin(image, plugin_file).path == installed_path(image)
    assert disable_plugin(image).path == f"{libraries}/{PARKED}"
    assert enable_plugin(image).state == "enabled"
    roll_back(image.host, progress=NoProgress())
    assert image.files() == before
