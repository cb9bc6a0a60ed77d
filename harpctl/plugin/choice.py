# SPDX-License-Identifier: Apache-2.0
"""The file that NCCL takes for its net plugin: the names that a release tries, and the files found."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from harpctl.facts.elf import version_key
from harpctl.facts.model import Library
from harpctl.facts.plugin_files import (
    INSTALLED,
    NAME,
    RCCL_NAME,
    RCCL_SUFFIXED,
    SUFFIX,
    SUFFIXED,
    Copy,
    find_copies,
)
from harpctl.host.host import Host
from harpctl.plugin.compat import Platform, why_incompatible
from harpctl.plugin.settings import (
    ENVIRONMENT,
    PLUGIN_VARIABLE,
    RCCL_SYSTEM_FILE,
    SYSTEM_FILE,
    SetVariable,
    find_settings,
)

NEWEST = "99"  # stands for an NCCL that is not seen here, such as one inside an image
SINCE = (2, 11)  # NCCL_NET_PLUGIN; before, the variable is ignored
SINCE_VERBATIM = (2, 21)  # its value is tried as a file; before, as a suffix alone
SINCE_LOOK = (2, 26)  # no suffix is tried for what is a path or looks like a library
SINCE_LIST = (2, 27)  # it may be a list; empty is a list of nothing, and before meant "not set"
SINCE_NONE = (2, 28)
RCCL_AS_NCCL = (2, 27)  # RCCL of ROCm 7.1 and 7.2 looks for NCCL's plain name


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """NCCL or RCCL, which take the same variables and interfaces and look for other files."""

    word: str
    plain: str
    suffixed: str
    conf: str  # the settings of all users

    def heeds(self, setting: SetVariable) -> bool:
        """Return whether it reads where something is set: not the files of the other one."""
        other = {SYSTEM_FILE, RCCL_SYSTEM_FILE} - {self.conf}
        return not any(setting.source.endswith(name.rpartition("/")[2]) for name in other)


NCCL = Family(word="NCCL", plain=NAME, suffixed=SUFFIXED, conf=SYSTEM_FILE)
RCCL = Family(word="RCCL", plain=RCCL_NAME, suffixed=RCCL_SUFFIXED, conf=RCCL_SYSTEM_FILE)


def has_name_of(copy: Copy, family: Family) -> bool:
    """Return whether a copy bears a name that only RCCL looks for, or else any other."""
    return (copy.name in {RCCL.plain, RCCL.suffixed}) == (family is RCCL)


def family_of(libraries: Collection[Library]) -> Family:
    """Return what the jobs of a host use: RCCL where nothing else is there."""
    return RCCL if libraries and all(library.is_rccl for library in libraries) else NCCL


def candidate_files(value: str | None, nccl: str = NEWEST, family: Family = NCCL) -> tuple[str, ...]:
    """Return the files that a release tries in turn, for an NCCL_NET_PLUGIN (None: not set)."""
    release = version_key(nccl)[:2]
    if value is None or release < SINCE or (not value and release < SINCE_LIST):
        return (NAME if release == RCCL_AS_NCCL else family.plain,)
    if value.lower() == "none" and release >= SINCE_NONE:
        return ()
    found: list[str] = []
    for word in filter(None, value.split(",")) if release >= SINCE_LIST else [value]:
        suffixed = f"{family.plain.removesuffix('.so')}-{word}.so"
        is_library = "/" in word or (word.startswith("lib") and word.endswith(".so"))
        if release < SINCE_VERBATIM:
            found.append(suffixed)
        elif release < SINCE_LOOK or not is_library:
            found += [word, suffixed]
        else:
            found.append(word)
    return tuple(found)


def named_files(settings: Iterable[SetVariable]) -> tuple[str, ...]:
    """Return all files that settings may make a release of NCCL try, beside those that HARP goes by."""
    values = [setting.value for setting in settings if setting.name == PLUGIN_VARIABLE]
    files = (f for value in values for family in (NCCL, RCCL) for f in candidate_files(value, family=family))
    return tuple(dict.fromkeys(files))


def find_all(host: Host) -> tuple[Copy, ...]:
    """Find whatever bears a name of the plugin, those that the host's settings give it among them."""
    return find_copies(host, named_files(find_settings(host)))


def loaded_copy(copies: Sequence[Copy], files: Iterable[str], platform: Platform) -> Copy | None:
    """Return the copy that the loader takes for the first of the files that it finds, loadable or not."""
    for file in files:
        for copy in copies:
            fits = file in copy.aliases if "/" in file else (copy.name == file and copy.is_searched)
            if copy.form == INSTALLED and fits and copy.is_seen_by(platform.machine):
                return copy
    return None


def deciding_setting(settings: Iterable[SetVariable], family: Family = NCCL) -> SetVariable | None:
    """Return the NCCL_NET_PLUGIN that holds for every job: of the environment, else of the system's file."""
    found = [one for one in settings if one.name == PLUGIN_VARIABLE and one.source in {ENVIRONMENT, family.conf}]
    return found[0] if found else None


def chosen_copy(
    copies: Sequence[Copy], settings: Iterable[SetVariable], platform: Platform, family: Family = NCCL
) -> Copy | None:
    """Return what the newest release takes: what the deciding setting leads to, or the plain name."""
    setting = deciding_setting(settings, family)
    files = candidate_files(setting.value if setting else None, family=family)
    return loaded_copy(copies, files, platform)


def explain_choice(copy: Copy, settings: Iterable[SetVariable], family: Family = NCCL, path: str = "") -> str:
    """Return which file NCCL takes and why, as a sentence without its end; `path` says "by ..."."""
    setting = deciding_setting(settings, family)
    why = f"by {setting}" if setting else f"as it has the plain name and {PLUGIN_VARIABLE} is not set"
    return f"{family.word} takes {copy.path}, which is {copy.what}, {why}{path and f', {path}'}"


def is_loadable_harp(copy: Copy | None, platform: Platform) -> bool:
    """Return whether a copy is a HARP that this host can load."""
    return copy is not None and copy.is_harp and copy.elf is not None and not why_incompatible(copy.elf, platform)


def find_obstacle(
    setting: SetVariable,
    copies: Sequence[Copy],
    platform: Platform,
    releases: Collection[str] = (),
    family: Family = NCCL,
) -> str:
    """Return why a setting keeps an NCCL of this host, or the newest one, from HARP; "" where it does not."""
    if setting.name != PLUGIN_VARIABLE:
        return setting.obstacle
    for nccl in sorted(set(releases) or {NEWEST}, key=version_key):
        files = candidate_files(setting.value, nccl, family)
        copy = loaded_copy(copies, files, platform)
        if is_loadable_harp(copy, platform):
            continue
        who = f"{family.word} {nccl}" if releases else family.word
        if version_key(nccl)[:2] < SINCE:
            return f"{who} ignores {setting} and takes {copy.path if copy else f'no plugin: no {family.plain}'}."
        if copy is not None:
            return f"{setting} makes {who} load {copy.path}, which is {copy.what}."
        if not files:
            return f"{setting} makes {who} load no plugin."
        return f"{setting} makes {who} look for {' and '.join(files)}, and there is none."
    return ""


def leads_to_harp(setting: SetVariable, copies: Sequence[Copy], platform: Platform, family: Family = NCCL) -> bool:
    """Return whether a NCCL_NET_PLUGIN names HARP, be it there, turned off, or not installed yet."""
    files = candidate_files(setting.value, family=family)
    own = {family.plain, family.suffixed}
    if is_loadable_harp(loaded_copy(copies, files, platform), platform) or own & set(files):
        return True
    return any(copy.is_harp and {copy.name, copy.installs_as} & set(files) for copy in copies)


def second_name_hint(family: Family = NCCL) -> str:
    """Return how NCCL is made to load HARP by its second name."""
    return f"Set {PLUGIN_VARIABLE}={SUFFIX} for the job ({family.word} 2.11 or newer)."
