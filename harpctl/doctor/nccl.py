# SPDX-License-Identifier: Apache-2.0
"""Checks of NCCL's and HARP's variables, in the environment and in nccl.conf files: NCCL would pick HARP."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from harpctl.confs.table import VARIABLES
from harpctl.doctor.context import Context
from harpctl.doctor.model import CheckResult, check, edit_command, fail, warn
from harpctl.facts.plugin_files import INSTALLED, SUFFIX
from harpctl.plugin.choice import (
    SINCE,
    candidate_files,
    deciding_setting,
    family_of,
    find_obstacle,
    is_loadable_harp,
    leads_to_harp,
    loaded_copy,
)
from harpctl.plugin.settings import ENVIRONMENT, PLUGIN_VARIABLE, SWITCH, SetVariable


def _command_to_repair(setting: SetVariable, context: Context) -> str:
    """Return the command after which each NCCL here finds the file that a setting names as HARP."""
    family = context.family
    files = candidate_files(setting.value, family=family)
    found = loaded_copy(context.copies, files, context.platform)
    if found is not None and found.name == family.suffixed and is_loadable_harp(found, context.platform):
        return f"use {family.word} {'.'.join(map(str, SINCE))} or newer, which heeds {PLUGIN_VARIABLE}"
    if any(copy.is_harp and copy.form != INSTALLED for copy in context.copies):
        return "harpctl enable"
    if any(copy.is_harp and copy.form == INSTALLED and copy.aliases for copy in context.copies):
        return (
            f"harpctl install --name {SUFFIX}  # and {PLUGIN_VARIABLE}={SUFFIX}:"
            f" an {family.word} here takes no path"
        )
    if context.by_jobs.packaged and setting.source == ENVIRONMENT:
        return f"export {PLUGIN_VARIABLE}={context.by_jobs.packaged.path}"
    return f"harpctl install --name {SUFFIX if family.suffixed in files else 'plain'}"


def _command_to_redirect(setting: SetVariable, context: Context) -> str:
    """Return the command after which a setting that leads elsewhere leads to the HARP that is on here."""
    by_name = loaded_copy(context.copies, [context.family.suffixed], context.platform)
    by_default = loaded_copy(context.copies, candidate_files(None, family=context.family), context.platform)
    if is_loadable_harp(by_default, context.platform) or not is_loadable_harp(by_name, context.platform):
        return _command_to_remove(setting)
    if setting.source == ENVIRONMENT:
        return f"export {setting.name}={SUFFIX}"
    return edit_command(setting.source, "--set", f"{setting.name}={SUFFIX}")


def _heeded_settings(context: Context, name: str) -> list[SetVariable]:
    heeded = filter(context.family.heeds, context.settings)
    return [setting for setting in heeded if setting.name == name]


def _command_to_remove(setting: SetVariable) -> str:
    if setting.source == ENVIRONMENT:
        return f"unset {setting.name}"
    return edit_command(setting.source, "--unset", setting.name)


@check("nccl.net", "NCCL_NET does not exclude HARP")
def check_net(context: Context) -> Iterator[CheckResult]:
    """Look for NCCL_NET with another network's name: NCCL then refuses HARP."""
    for setting in _heeded_settings(context, "NCCL_NET"):
        if setting.obstacle:
            yield fail(setting.obstacle, _command_to_remove(setting))


@check("nccl.net_plugin", "NCCL_NET_PLUGIN leads to HARP's plugin")
def check_net_plugin(context: Context) -> Iterator[CheckResult]:
    """Look for NCCL_NET_PLUGIN: when it is set, the default name is not tried. What names HARP stays."""
    family = context.family
    libraries = (one for one in context.facts.libraries if family_of([one]) is family)
    releases = {library.version for library in libraries if library.version}
    settled = (
        deciding_setting(context.settings, family) if context.by_jobs.is_led_to_harp(context.platform) else None
    )
    for setting in _heeded_settings(context, PLUGIN_VARIABLE):
        if setting is settled and (context.taken or not releases):
            continue
        why = find_obstacle(setting, context.copies, context.platform, releases, family)
        if why and leads_to_harp(setting, context.copies, context.platform, family):
            yield fail(why, _command_to_repair(setting, context))
        elif why:
            yield fail(why, _command_to_redirect(setting, context))


@check("nccl.disable", "HARP_DISABLE does not turn HARP off")
def check_disable(context: Context) -> Iterator[CheckResult]:
    """Look for HARP's own switch: its init then fails on purpose."""
    for setting in _heeded_settings(context, SWITCH):
        if setting.obstacle:
            yield fail(setting.obstacle, _command_to_remove(setting))


@check("nccl.socket_ifname", "NCCL_SOCKET_IFNAME names interfaces of this host", validates=False)
def check_socket_ifname(context: Context) -> Iterator[CheckResult]:
    """Look for a list of which nothing fits: NCCL's bootstrap fails with it."""
    have = [eni.name for eni in context.facts.enis]
    for setting in _heeded_settings(context, "NCCL_SOCKET_IFNAME") if have else ():
        exact, names = setting.value.startswith("="), setting.value.lstrip("=").split(",")
        fits = (one == name if exact else one.startswith(name) for one in have for name in names)
        if not setting.value.startswith("^") and not any(fits):
            yield warn(
                f"NCCL_SOCKET_IFNAME={setting.value} ({setting.source}) fits none of {', '.join(have)}.",
                _command_to_remove(setting),
            )


@check("nccl.harp_ifname", "The conf files are what the plugin reads", validates=False)
def check_ifname(context: Context) -> Iterator[CheckResult]:
    """Look for variables that override the conf files."""
    for name in ("HARP_IFNAME", "HARP_CONF_DIR"):
        for setting in _heeded_settings(context, name) if context.conf_files else ():
            yield warn(
                f"{name}={setting.value} ({setting.source}) is set, so the files that `harpctl setup` wrote"
                " are not read.",
                _command_to_remove(setting),
            )


@check("nccl.harp_values", "The HARP_ variables have values that the plugin takes")
def check_values(context: Context) -> Iterator[CheckResult]:
    """Read each variable as the plugin does; a wrong value is an error of its init."""
    for name, row in VARIABLES.items():
        for setting in _heeded_settings(context, name):
            try:
                row.read(setting.value)
            except ValueError:
                yield fail(
                    f"{name}={setting.value} ({setting.source}) is refused; expected {row.expected}.",
                    _command_to_remove(setting),
                )


@check("nccl.harp_names", "Every HARP_ variable is one that the plugin knows", validates=False)
def check_names(context: Context) -> Iterator[CheckResult]:
    """Look for variables that do nothing, most likely misspelt."""
    for setting in context.settings:
        if setting.name.startswith("HARP_") and setting.name not in VARIABLES:
            near = difflib.get_close_matches(setting.name, VARIABLES, 1)
            meant = f"; {near[0]} was probably meant" if near else ""
            yield warn(f"{setting.name} ({setting.source}) does nothing{meant}.", _command_to_remove(setting))
