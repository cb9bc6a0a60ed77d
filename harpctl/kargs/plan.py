# SPDX-License-Identifier: Apache-2.0
"""Plans the kernel arguments in the place that the host really boots from.

What counts are the effective entries, so where they and the defaults for later kernels already pass what is
wanted there is nothing to do. Who changes what:

- GRUB with a generated menu: our code in GRUB's defaults (defaults.py), then update-grub or grub2-mkconfig.
- GRUB with boot loader entries (EL 8 and later, TencentOS 3 and 4): grubby changes the entries and grubenv;
  that code and /etc/kernel/cmdline are for kernels installed later. grub2-mkconfig is not run: it leaves
  literal options alone (EL 8.0, 8.1 and 9), and where it does write kernelopts it does so from
  /etc/default/grub, losing what only grubenv held.
- ostree: rpm-ostree kargs.
- A directory tree: the same files and the menu itself are edited, no command runs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

import msgspec

from harpctl.change.steps import AnyStep, Group, Run, WriteFile
from harpctl.errors import ExitCode, HarpError
from harpctl.facts import bls, grub_menu
from harpctl.facts.boot_loader import bls_entries, env_path, grub_variables
from harpctl.facts.model import Boot, BootEntry, Facts
from harpctl.facts.sources import DEFAULTS, GRUBBY_HELP, Sources
from harpctl.kargs import boot_files
from harpctl.kargs.cmdline import (
    HugepageArgs,
    hugepage_words,
    other_arguments,
    replace_arguments,
    reserves_exactly,
    split_words,
)
from harpctl.kargs.defaults import defaults_path, with_code

NAME = "kernel arguments"
KERNEL_CMDLINE = "/etc/kernel/cmdline"  # options of entries made later, EL 9 and TencentOS 4
GENERATE_TIMEOUT_S = 300.0
_ENABLES_BLSCFG = re.compile(r"""^\s*(?:export\s+)?GRUB_ENABLE_BLSCFG=["']?(\w*)""", re.MULTILINE)


def lacking_entries(boot: Boot, wanted: HugepageArgs) -> list[BootEntry]:
    """Return the boot entries that do not pass what is wanted; none means that the next boot does.

    Where no entry could be read a nameless one is given: nothing is verified then.
    """
    if not boot.entries:
        return [BootEntry(title="", source=boot.config, args="")]
    return [entry for entry in boot.entries if not reserves_exactly(entry.args, wanted)]


def plan_kernel_args(facts: Facts, sources: Sources, wanted: HugepageArgs) -> Group:
    """Plan that every entry passes `wanted` from the next boot on.

    The group is empty where that holds. Raises HarpError with the remedy where it can't be brought about.
    """
    boot = facts.boot
    if not boot.loader:
        raise _by_hand(f"The boot loader is unknown: {boot.reason or 'nothing was found'}.", wanted)
    steps = _tree_steps(boot, sources, wanted) if not sources.runs_commands else _plan_steps(boot, sources, wanted)
    _refuse_read_only(facts, boot, steps, wanted)
    return Group(name=NAME, steps=tuple(steps))


def _plan_steps(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    missing = lacking_entries(boot, wanted)
    if boot.loader == "ostree":
        return _rpm_ostree(boot, sources, wanted) if missing else []
    steps = _default_steps(boot, sources, wanted)
    if boot.loader == "bls":
        steps += _kernel_cmdline_step(sources, wanted)
        if any(entry.source != boot.config for entry in missing):
            steps += _plan_grubby(boot, sources, wanted) or _file_steps(boot, sources, wanted)
    if any(entry.source == boot.config for entry in missing):
        steps += _unread_entries_steps(boot, sources, wanted)
        steps.append(_plan_generation(boot, sources, wanted))
    return steps


def _unread_entries_steps(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan the boot loader entries that the menu does not read yet, but will once it is generated."""
    text = _read_source(sources, boot.defaults) if boot.defaults else ""
    if boot.loader != "grub" or _ENABLES_BLSCFG.findall(text)[-1:] != ["true"]:
        return []
    entries = bls_entries(sources, grub_variables(sources, boot.config))
    if all(reserves_exactly(entry.args, wanted) for entry in entries):
        return []
    later = msgspec.structs.replace(boot, entries=entries)
    steps = _kernel_cmdline_step(sources, wanted)
    return steps + (_plan_grubby(later, sources, wanted) or _file_steps(later, sources, wanted))


# ---- for kernels to come ----


def _default_steps(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan our code in GRUB's defaults, unless the operator's own lines there have done it already."""
    path = defaults_path(boot)
    if boot.loader != "grub" and not boot.defaults:
        return []
    if not lacking_entries(boot, wanted) and not boot.harp_args:
        texts = "".join(sources.read_text(file) or "" for file in (DEFAULTS, *boot.dropins))
        if all(word in texts for word in wanted.words()):
            return []
    for file in (boot.defaults, *boot.dropins):
        if problem := sources.shell_errors.get(file):
            raise HarpError(
                f"{file}: a shell can't read it: {problem}.",
                "Correct it: no boot menu can be generated as it is.",
                ExitCode.WRONG_DATA,
            )
    text = _read_source(sources, path) if sources.exists(path) else ""
    new = with_code(text, wanted)
    return [] if new == text else [_plan_write(path, new, "hugepages for kernels of every later boot")]


def _kernel_cmdline_step(sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    text = sources.read_text(KERNEL_CMDLINE)
    if text is None or reserves_exactly(text, wanted):
        return []
    return [_plan_write(KERNEL_CMDLINE, replace_arguments(text, wanted), "hugepages for kernels installed later")]


# ---- by the distribution's own commands ----


def _plan_generation(boot: Boot, sources: Sources, wanted: HugepageArgs) -> Run:
    """Plan the command that writes grub.cfg anew."""
    names = ("update-grub2", "update-grub") if "/grub/" in boot.config else ()
    argv: tuple[str, ...] = next(((name,) for name in names if name in sources.programs), ())
    if not argv:
        name = next((name for name in ("grub2-mkconfig", "grub-mkconfig") if name in sources.programs), "")
        if not name:
            raise _by_hand(f"{boot.config} cannot be generated: there is no grub2-mkconfig.", wanted)
        argv = (name, "-o", boot.config)
    return Run(
        why="hugepages from the next boot on",
        argv=argv,
        rewrites=(boot.config,),
        again=argv,
        always=True,
        timeout_s=GENERATE_TIMEOUT_S,
    )


def _plan_grubby(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan grubby for all entries; nothing where it is missing or can't express what is needed.

    grubby removes every argument of a name that it adds, so pairs of other sizes are named as well; that
    works only where all entries have the same.
    """
    kept = {_kept_arguments(entry, wanted) for entry in boot.entries}
    if "grubby" not in sources.programs or len(kept) != 1:
        return []
    usage = sources.query(GRUBBY_HELP) or ""
    option = ("--no-etc-grub-update",) if "--no-etc-grub-update" in usage else ()  # EL 8.3 and later
    new = kept.pop() + wanted.words()
    old = hugepage_words([word.text for word in split_words(boot.entries[0].args)])
    env = env_path(boot.config)  # every boot changes it, so it is only named where it matters
    has_options = "kernelopts" in bls.read_env(sources.read_bytes(env) or b"")
    files = (bls.ENTRIES, env if has_options else "", KERNEL_CMDLINE, DEFAULTS)
    return [
        Run(
            why="hugepages from the next boot on",
            argv=_grubby_argv(new) + option,
            rewrites=tuple(path for path in files if path and sources.glob(path)),
            again=_grubby_argv(old) + option,
            always=True,
        )
    ]


def _grubby_argv(words: Sequence[str]) -> tuple[str, ...]:
    names = "default_hugepagesz hugepagesz hugepages"
    argv = ("grubby", "--update-kernel=ALL", f"--remove-args={names}")
    return (*argv, f"--args={' '.join(words)}") if words else argv


def _kept_arguments(entry: BootEntry, wanted: HugepageArgs) -> tuple[str, ...]:
    return other_arguments([word.text for word in split_words(entry.args)], wanted)


def _rpm_ostree(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan a new deployment with the arguments; its undo makes one with the old ones."""
    if "rpm-ostree" not in sources.programs:
        raise _by_hand("The host is an ostree deployment without rpm-ostree.", wanted)
    first = boot.entries[0]
    old = hugepage_words([word.text for word in split_words(first.args)])
    new = _kept_arguments(first, wanted) + wanted.words()
    return [
        Run(
            why="hugepages from the next boot on, in a new deployment",
            argv=_rpm_ostree_argv(old, new),
            undo=_rpm_ostree_argv(new, old),
            always=True,
            timeout_s=GENERATE_TIMEOUT_S,
        )
    ]


def _rpm_ostree_argv(old: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Replace all hugepage arguments: their order counts, so none is left where it is."""
    deletes = tuple(f"--delete={word}" for word in old)
    return ("rpm-ostree", "kargs", *deletes, *(f"--append={word}" for word in new))


# ---- by editing ----


def _tree_steps(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan everything as edits of files, so that a directory tree boots with it."""
    if not boot.entries:
        raise _by_hand(f"No boot entry was found in the tree: {boot.reason}.", wanted)
    steps = [] if boot.loader == "ostree" else _default_steps(boot, sources, wanted)
    if boot.loader == "bls":
        steps += _kernel_cmdline_step(sources, wanted)
    if lacking_entries(boot, wanted):
        steps += _entry_steps(boot, sources, wanted, _entry_files(boot))
    return steps


def _file_steps(boot: Boot, sources: Sources, wanted: HugepageArgs) -> list[AnyStep]:
    """Plan edits of the boot loader entries, not of the menu that reads them."""
    return _entry_steps(boot, sources, wanted, [path for path in _entry_files(boot) if path.endswith(".conf")])


def _entry_files(boot: Boot) -> list[str]:
    return list(dict.fromkeys(entry.source for entry in boot.entries))


def _entry_steps(boot: Boot, sources: Sources, wanted: HugepageArgs, files: Sequence[str]) -> list[AnyStep]:
    """Plan edits of the files that hold entries, and of kernelopts where their options come from there."""
    old = {path: _read_source(sources, path) for path in files}
    new = dict(old)
    values = {path: grub_variables(sources, boot.config if path.endswith(".conf") else path) for path in old}
    steps: list[AnyStep] = []
    if any("kernelopts" in bls.value_of(text, "options") for text in old.values()):
        options = grub_variables(sources, boot.config).get("kernelopts", "")
        options = options if reserves_exactly(options, wanted) else replace_arguments(options, wanted)
        steps += _grubenv_step(env_path(boot.config), sources, options)
        old[boot.config] = _read_source(sources, boot.config)
        new[boot.config] = boot_files.edited_setting(old[boot.config], "kernelopts", wanted)
        values = {path: {**found, "kernelopts": options} for path, found in values.items()}
    for path, found in values.items():
        if not path.endswith(".conf"):
            new[path] = boot_files.edited_menu(new[path], found, wanted)
        elif not reserves_exactly(_passed_arguments(path, new[path], found)[0], wanted):
            new[path] = boot_files.edited_entry(new[path], wanted)
        _verify_lines(path, _passed_arguments(path, new[path], found), wanted)
    why = "hugepages from the next boot on"
    return steps + [_plan_write(path, text, why) for path, text in new.items() if text != old[path]]


def _passed_arguments(path: str, text: str, values: dict[str, str]) -> list[str]:
    if path.endswith(".conf"):
        return [grub_menu.expand_variables(bls.value_of(text, "options"), values)]
    return [grub_menu.passed_arguments(entry.raw, values) for entry in grub_menu.parse_entries(text)]


def _grubenv_step(path: str, sources: Sources, options: str) -> list[AnyStep]:
    data = sources.read_bytes(path)
    if data is None or "kernelopts" not in bls.read_env(data):
        return []
    new = boot_files.edited_env(path, data, "kernelopts", options)
    return [] if new == data else [WriteFile(path=path, data=new, why="hugepages from the next boot on")]


def _verify_lines(path: str, lines: Sequence[str], wanted: HugepageArgs) -> None:
    if not all(reserves_exactly(line, wanted) for line in lines):
        raise _by_hand(
            f"{path}: its entries get hugepage arguments from a variable that harpctl does not edit "
            "(a tuned profile's cmdline sets tuned_params).",
            wanted,
        )


def _read_source(sources: Sources, path: str) -> str:
    text = sources.read_text(path)
    if text is None:
        raise HarpError(f"{path} cannot be read.", "Run harpctl as root.", ExitCode.REFUSED)
    return text


def _plan_write(path: str, text: str, why: str) -> WriteFile:
    return WriteFile(path=path, data=text.encode("utf-8", "surrogateescape"), why=why)


# ---- what cannot be done ----


def _refuse_read_only(facts: Facts, boot: Boot, steps: Sequence[AnyStep], wanted: HugepageArgs) -> None:
    paths = [step.path for step in steps if isinstance(step, WriteFile)]
    if any(isinstance(step, Run) for step in steps) and boot.loader != "ostree":
        paths.append(boot.config)
    for path in paths:
        mounts = [mount for mount in facts.mounts if f"{path}/".startswith(posixpath.join(mount.path, ""))]
        mount = max(mounts, key=lambda found: len(found.path), default=None)
        if mount and "ro" in mount.options.split(","):
            raise HarpError(
                f"{path} cannot be changed: {mount.path} is mounted read-only.",
                f"Run `mount -o remount,rw {mount.path}` and setup again, or {_remedy_by_hand(wanted)}.",
                ExitCode.REFUSED,
            )


def _by_hand(message: str, wanted: HugepageArgs) -> HarpError:
    remedy = _remedy_by_hand(wanted)
    return HarpError(message, f"{remedy[0].upper()}{remedy[1:]}.", ExitCode.MISSING)


def _remedy_by_hand(wanted: HugepageArgs) -> str:
    return f"add `{wanted}` to the kernel command line by hand and run setup with --no-kernel-args"
