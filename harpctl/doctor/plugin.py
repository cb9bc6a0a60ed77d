# SPDX-License-Identifier: Apache-2.0
"""Checks of the plugin: there under its name, found first, right for this machine, loadable."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from harpctl.change.steps import WriteFile
from harpctl.doctor import needs
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, edit_command, fail, warn
from harpctl.facts.elf import version_key
from harpctl.facts.model import Library
from harpctl.facts.plugin_files import INSTALLED, SUFFIX, Copy
from harpctl.plugin.choice import explain_choice, family_of, is_loadable_harp
from harpctl.plugin.compat import abi_picked, why_incompatible
from harpctl.plugin.settings import PLUGIN_VARIABLE
from harpctl.plugin.source import own_path
from harpctl.plugin.status import export_hint, find_unchosen

READ_ALL = 0o444
NCCL_MIN = "2.8"


def library_name(library: Library) -> str:
    """Return what a library calls itself."""
    return family_of([library]).word


def installed_copies(context: Context) -> list[Copy]:
    """Return what stands under the plugin's name, in the order in which the loader finds it."""
    return [copy for copy in context.copies if copy.form == INSTALLED]


def _parked_copies(context: Context) -> list[Copy]:
    return [copy for copy in context.copies if copy.form != INSTALLED and copy.is_harp]


def _second_copy(context: Context) -> Copy | None:
    copy = find_unchosen(context.copies, context.platform, context.family)
    return copy if copy and copy.name == context.family.suffixed else None


def _taken_now(context: Context) -> str:
    """Return which file NCCL takes and why; "" where it takes none."""
    copy, by_jobs = context.nccl_copy, context.by_jobs
    return explain_choice(copy, context.settings, by_jobs.family, by_jobs.why) if copy else ""


def _choose_second(second: Copy, context: Context) -> Iterator[CheckResult]:
    """Report how to choose the second name, and what NCCL loads now."""
    takes = _taken_now(context)
    beside = f"{takes}; HARP is beside it" if takes else "HARP is installed"
    who = context.family.word
    yield fail(
        f"{beside} as {second.path}, which {who} loads only where {PLUGIN_VARIABLE} names it.",
        export_hint(SUFFIX),
    )


def _choose_packaged(packaged: Copy, context: Context) -> Iterator[CheckResult]:
    """Report how to choose what lies in the environment of Python."""
    takes = _taken_now(context)
    beside = f"{takes}; HARP" if takes else "HARP"
    yield fail(
        f"{beside} is in this Python environment as {packaged.path}, and nothing leads to it.",
        export_hint(packaged.path),
    )


@check("plugin.installed", "HARP's plugin is found under its plain name, or as the file that is chosen")
def check_installed(context: Context) -> Iterator[CheckResult]:
    """Look for the file; a host that only starts containers needs none, so this is a warning there."""
    second, packaged, plain = _second_copy(context), context.by_jobs.packaged, context.family.plain
    there = [copy for copy in installed_copies(context) if copy.is_harp or copy.problem or copy.name == plain]
    if second and context.nccl_copy is None:
        yield from _choose_second(second, context)
    elif there or context.nccl_copy:  # the other checks report what else is wrong with it
        if context.nccl_copy is None and all(copy.aliases for copy in there):
            named = ", ".join(str(one) for one in context.settings if one.name == PLUGIN_VARIABLE)
            who = context.family.word
            yield warn(f"{who} takes {there[0].path} by {named} alone.", "harpctl install --name plain")
    elif packaged:
        yield from _choose_packaged(packaged, context)
    elif parked := _parked_copies(context):
        yield warn(f"It is disabled as {parked[0].path}.", "harpctl enable")
    else:
        own = own_path(context.host) if context.is_running else ""
        hints = [f"{export_hint(own)}  # for jobs from here, without root"] if own else []
        yield warn(
            f"No {plain} is in the loader's path here; an image may carry its own.", "harpctl install", *hints
        )


@check("plugin.first", "The plugin that jobs take is HARP's")
def check_first(context: Context) -> Iterator[CheckResult]:
    """Look for another plugin before ours. It may be the image's own, so nothing is moved away."""
    first = context.nccl_copy
    if first is None:
        return
    takes = _taken_now(context)
    if first.is_harp:
        yield CheckResult("ok", f"{takes}.")
        return
    if second := _second_copy(context):
        yield from _choose_second(second, context)
        return
    if packaged := context.by_jobs.packaged:
        yield from _choose_packaged(packaged, context)
        return
    ours = next((copy.path for copy in installed_copies(context) if copy.is_harp), "")
    behind = f"; HARP's, {ours}, is behind it" if ours else ""
    yield fail(f"{takes}{behind}.", f"harpctl install --name {SUFFIX}" if ours else "harpctl install")


@check("plugin.search", "Each NCCL here takes HARP's plugin by its own search path", needs.plugin, needs.library)
def check_search(context: Context) -> Iterator[CheckResult]:
    """Follow LD_LIBRARY_PATH, RPATH, RUNPATH and the loader's cache, as each NCCL here does."""
    choose = export_hint(SUFFIX)
    for taken in context.taken:
        second = any(copy.name == taken.family.suffixed and copy.is_harp for copy in installed_copies(context))
        if is_loadable_harp(taken.copy, context.platform):
            yield CheckResult("ok", f"{taken}.")
        elif taken.copy is None:
            yield fail(f"{taken}: the loader's cache does not have it.", "ldconfig")
        else:
            yield fail(f"{taken}.", *(() if second else (f"harpctl install --name {SUFFIX}",)), choose)


@check("plugin.once", "HARP's plugin is there once", needs.plugin, validates=False)
def check_once(context: Context) -> Iterator[CheckResult]:
    """Look for several installed ones, and for one that is installed and disabled."""
    ours = [copy for copy in context.copies if copy.is_harp]
    extra = (
        [copy for copy in ours if copy is not context.plugin and copy.name == context.plugin.name]
        if context.plugin
        else []
    )
    if context.plugin and extra:
        yield warn(
            f"Beside {context.plugin.path} there is {', '.join(copy.path for copy in extra)}: turned off, the"
            " next one is found.",
            *(edit_command(copy.path, "--delete") for copy in extra),
        )


@check("plugin.readable", "Everyone may read the plugin", needs.plugin)
def check_readable(context: Context) -> Iterator[CheckResult]:
    """Look at the mode: training jobs need not run as root."""
    for copy in installed_copies(context):
        file = context.host.leads_to(copy.path)
        status = context.host.stat(file) if file else None
        data = context.host.read_bytes(copy.path)
        if copy.is_harp and status and data and status.st_mode & READ_ALL != READ_ALL:
            mode = status.st_mode & 0o7777
            step = WriteFile(path=copy.path, data=data, mode=mode | READ_ALL, why="jobs of any user load it")
            repair = shlex.join(["chmod", "a+r", copy.path])
            yield fail(f"{copy.path} has mode {mode:04o}.", repair, steps=[step])


@check("plugin.sound", "The installed plugin is a whole NCCL plugin")
def check_sound(context: Context) -> Iterator[CheckResult]:
    """Look at the file's own structure."""
    for copy in installed_copies(context):
        if copy.problem:
            yield fail(copy.problem, "harpctl install")


@check("plugin.fits", "The plugin is for this machine and needs no newer glibc than it has")
def check_fits(context: Context) -> Iterator[CheckResult]:
    """Hold the ELF machine, and the newest symbol version that it requires, against the host's."""
    for copy in installed_copies(context):
        if copy.elf and copy.is_harp and (unfit := why_incompatible(copy.elf, context.platform)):
            yield fail(f"{copy.path} {unfit}.", "harpctl install")


@check("plugin.soname", "ldconfig cannot turn a disabled plugin on again", validates=False)
def check_soname(context: Context) -> Iterator[CheckResult]:
    """Look for a SONAME: with one, ldconfig links the plugin's name to any parked lib* file."""
    for copy in context.copies:
        if copy.elf and copy.is_harp and copy.elf.soname:
            yield warn(
                f"{copy.path} has the SONAME {copy.elf.soname}: ldconfig links that to any such file.",
                "harpctl install",
            )


@check("plugin.loads", "The plugin loads", needs.machine, needs.plugin)
def check_loads(context: Context) -> Iterator[CheckResult]:
    """Load it in a child process, with its newest table."""
    copy = context.plugin
    if copy is None or copy.elf is None:
        return
    if error := context.machine.load(copy.path, (f"ncclNetPlugin_v{copy.elf.abis[0]}",)):
        yield fail(f"{copy.path} does not load: {error}.", "harpctl install")


@check(
    "plugin.interface",
    "The plugin has the interface that each NCCL here asks for",
    needs.plugin,
    needs.library,
)
def check_interface(context: Context) -> Iterator[CheckResult]:
    """Compare the exported ncclNetPlugin_vN with each libnccl.so found."""
    copy = context.plugin
    if copy is None or copy.elf is None:
        return
    for library in context.facts.libraries:
        if library.version and abi_picked(library.version, copy.elf.abis) is None:
            have = ", ".join(f"v{abi}" for abi in copy.elf.abis)
            who = f"{library_name(library)} {library.version} ({library.path})"
            yield fail(f"{who} finds no interface of its own among {have}.", "harpctl install")


@check("plugin.nccl", f"The NCCL libraries here are {NCCL_MIN} or newer", needs.library, validates=False)
def check_nccl(context: Context) -> Iterator[CheckResult]:
    """Look at the releases found; NCCL inside images is not seen from outside."""
    for library in context.facts.libraries:
        if library.version and version_key(library.version) < version_key(NCCL_MIN):
            yield warn(
                f"{library.path} is {library_name(library)} {library.version}, which HARP does not serve.",
                f"use {library_name(library)} {NCCL_MIN} or newer",
            )
