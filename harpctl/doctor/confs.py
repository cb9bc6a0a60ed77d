# SPDX-License-Identifier: Apache-2.0
"""Checks of the conf files: they parse, name this host's ENIs, fit together, and share no core."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator

from harpctl.change.steps import WriteFile
from harpctl.confs.conf import TOOLS_DIR, Conf
from harpctl.confs.table import BOUNDS, JOB, KEYS
from harpctl.doctor import needs
from harpctl.doctor.context import IFNAME, Context
from harpctl.doctor.model import CheckResult, check, edit_command, fail, of_link, skip, warn
from harpctl.facts.model import Eni, Facts

OTHERS_WRITE = 0o002
STRIPED = "striped"
SETUP = "harpctl setup"


def _command_to_set(path: str, key: str, value: object) -> str:
    """Return the command that sets a key of a conf file to another value, however it is spaced."""
    return edit_command(path, "--set", f"{key}={value}")


@check("confs.present", "There are conf files")
def check_present(context: Context) -> Iterator[CheckResult]:
    """Look for ztcp*.conf; none is needed with HARP_IFNAME, or where NCCL is told to use HARP."""
    if not context.conf_files and not context.environment.get(IFNAME) and not context.asked_by:
        where = context.conf_dir
        if context.facts.system.container and not context.host.is_dir(where):
            yield fail(
                f"{where} is not in this container, so the plugin is not configured.",
                f"docker run ... -v {TOOLS_DIR}:{TOOLS_DIR}",
            )
        else:
            yield fail(f"There is no ztcp*.conf in {where}, so the plugin is not configured.", SETUP)


@check("confs.names", "Each conf file is called ztcp<N>.conf, N from 0 to 9999")
def check_names(context: Context) -> Iterator[CheckResult]:
    """Look for names that the plugin refuses."""
    free = (n for n in itertools.count() if n not in {file.number for file in context.conf_files})
    for file in context.conf_files:
        if file.number is None:
            name = f"ztcp{next(free)}.conf" if file.conf else f"bak.{file.path.rpartition('/')[2]}"
            to = f"{context.conf_dir}/{name}"
            yield fail(f"The plugin refuses the name of {file.path}.", edit_command(file.path, "--move-to", to))


@check("confs.count", f"There are at most {BOUNDS.conf_files_max} conf files")
def check_count(context: Context) -> Iterator[CheckResult]:
    """Count the files."""
    count = len(context.conf_files)
    if count > BOUNDS.conf_files_max:
        yield fail(
            f"There are {count}; the plugin refuses more than {BOUNDS.conf_files_max}.",
            *(edit_command(file.path, "--delete") for file in context.conf_files[BOUNDS.conf_files_max :]),
        )


@check("confs.parse", "Each conf file can be read and parsed")
def check_parse(context: Context) -> Iterator[CheckResult]:
    """Parse all files as the plugin does."""
    for file in context.conf_files:
        if file.wrong and file.number is not None:  # else its name is to be changed, and it is not read
            yield fail(
                file.wrong,
                edit_command(file.path, "--move-to", f"{file.path}.bak") + "  # or correct it by hand",
                SETUP,
            )


@check("confs.mode", "Nobody but their owner may write the conf files", needs.conf, validates=False)
def check_mode(context: Context) -> Iterator[CheckResult]:
    """Look at the mode bits."""
    for path, _conf in context.confs:
        status, data = context.host.stat(path), context.host.read_bytes(path)
        if status is None or data is None or not status.st_mode & OTHERS_WRITE:
            continue
        mode = status.st_mode & 0o7777 & ~OTHERS_WRITE
        step = WriteFile(path=path, data=data, mode=mode, why="only its owner may write it")
        yield warn(f"Anyone may write {path}.", shlex.join(["chmod", "o-w", path]), steps=[step])


# ---- against the host ----


@check("confs.interface", "Each conf file names an interface that is there", needs.conf)
def check_interface(context: Context) -> Iterator[CheckResult]:
    """Look the interfaces up; namespace.interfaces reports those that sysfs shows and the kernel does not."""
    known = ", ".join(eni.name for eni in context.facts.enis) or "none"
    for path, conf in context.confs:
        if context.facts.find_eni(conf.interface) is not None:
            continue
        if not context.is_running and not context.facts.enis:
            yield skip(f"{path}: the tree does not show the interfaces.")
            continue
        moved = _by_mac(context.facts, conf)
        hint = f"; its MAC {conf.mac} is {moved.name}'s: the names moved" if moved else ""
        repair = _command_to_set(path, "interface", moved.name) if moved else SETUP
        yield fail(f"{path}: there is no interface {conf.interface} (there are: {known}){hint}.", repair)


def _by_mac(facts: Facts, conf: Conf) -> Eni | None:
    return next((eni for eni in facts.enis if conf.mac and eni.mac.lower() == conf.mac), None)


@check("confs.mac", "The MAC address in each conf file is the interface's", needs.pair)
def check_mac(context: Context) -> Iterator[CheckResult]:
    """Compare mac with the interface."""
    for path, conf, eni in context.pairs:
        if conf.mac is None or not eni.mac or eni.mac.lower() == conf.mac:
            continue
        moved = _by_mac(context.facts, conf)
        whose = f"; that is {moved.name}'s, so the names moved" if moved else ", and no interface has that one"
        yield fail(f"{path}: mac = {conf.mac}, but {eni.name} has {eni.mac}{whose}.", SETUP)


@check("confs.address", "The address in each conf file is the interface's", needs.pair)
def check_address(context: Context) -> Iterator[CheckResult]:
    """Compare address with the interface; an interface without any address is reported by enis.address."""
    for path, conf, eni in context.pairs:
        have = [address.partition("/")[0] for address in eni.addresses]
        if conf.address is not None and have and conf.address not in have:
            yield fail(
                f"{path}: address = {conf.address}, but {eni.name} has {', '.join(have)}.",
                _command_to_set(path, "address", have[0]),
            )


@check("confs.mtu", "The MTU in each conf file is at most the interface's", needs.pair)
def check_mtu(context: Context) -> Iterator[CheckResult]:
    """Compare mtu with the interface."""
    for path, conf, eni in context.pairs:
        if conf.mtu is not None and eni.mtu and conf.mtu > eni.mtu:
            fits = not eni.mtu_max or conf.mtu <= eni.mtu_max
            raised = of_link(eni.name, "mtu", conf.mtu)
            repair = raised if fits and context.is_running else _command_to_set(path, "mtu", eni.mtu)
            yield fail(f"{path}: mtu = {conf.mtu}, but {eni.name} has {eni.mtu}.", repair)


@check("confs.pci", "The PCI address in each conf file is the interface's", needs.pair)
def check_pci(context: Context) -> Iterator[CheckResult]:
    """Compare pci with the interface."""
    for path, conf, eni in context.pairs:
        if conf.pci is not None and eni.pci and conf.pci != eni.pci.lower():
            yield fail(
                f"{path}: pci = {conf.pci}, but {eni.name} is at {eni.pci}.",
                _command_to_set(path, "pci", eni.pci.lower()),
            )


@check("confs.numa", "The NUMA node in each conf file is the interface's", needs.pair, validates=False)
def check_numa(context: Context) -> Iterator[CheckResult]:
    """Compare numa with sysfs: the plugin uses the file's value."""
    for path, conf, eni in context.pairs:
        if conf.numa is not None and eni.node >= 0 and conf.numa != eni.node:
            yield warn(
                f"{path}: numa = {conf.numa}, but {eni.name} is on node {eni.node}.",
                _command_to_set(path, "numa", eni.node),
            )


@check(
    "confs.queues",
    "The queues in each conf file are no more than the interface has",
    needs.pair,
    validates=False,
)
def check_queues(context: Context) -> Iterator[CheckResult]:
    """Compare queues with the driver's maximum."""
    for path, conf, eni in context.pairs:
        if conf.queues is not None and eni.queues_max and conf.queues > eni.queues_max:
            yield warn(
                f"{path}: queues = {conf.queues}, but {eni.name} has at most {eni.queues_max}.",
                _command_to_set(path, "queues", eni.queues_max),
            )


@check("confs.speed", "The speed of each ENI is known", needs.pair, validates=False)
def check_speed(context: Context) -> Iterator[CheckResult]:
    """Look for ENIs whose speed NCCL would assume."""
    silent = [
        (path, eni.name)
        for path, conf, eni in context.pairs
        if path.startswith("/") and not (conf.speed_mbps or eni.speed_mbps)
    ]
    if silent:
        names, paths = ", ".join(name for _path, name in silent), [path for path, _name in silent]
        yield warn(
            f"Unknown for {names}: the plugin reports 10000 Mbit/s to NCCL.",
            *(f"{edit_command(path, '--set', 'speed_mbps=MBPS')}  # the speed that you pay for" for path in paths),
        )


@check("confs.gpu", "The GPUs that the conf files name are there, each named once", needs.conf, validates=False)
def check_gpu(context: Context) -> Iterator[CheckResult]:
    """Compare gpu with the GPUs found."""
    count, seen = len(context.facts.gpus), dict[int, str]()
    for path, conf in context.confs:
        if conf.gpu is None:
            continue
        if count and conf.gpu >= count:
            yield warn(f"{path}: gpu = {conf.gpu}, but this host has GPUs 0 to {count - 1}.", SETUP)
        elif conf.gpu in seen:
            yield warn(f"{path}: gpu = {conf.gpu} is already in {seen[conf.gpu]}.", SETUP)
        seen.setdefault(conf.gpu, path)


# ---- together ----


@check("confs.distinct", "No two conf files name the same interface", needs.conf)
def check_distinct(context: Context) -> Iterator[CheckResult]:
    """Look for an interface that is there twice: the plugin refuses it."""
    seen: dict[str, str] = {}
    for path, conf in context.confs:
        if conf.interface in seen:
            yield fail(
                f"{path}: {conf.interface} is already in {seen[conf.interface]}.",
                edit_command(path, "--delete"),
            )
        seen.setdefault(conf.interface, path)


JOB_KEYS = {key: row for key, row in KEYS.items() if row.scope == JOB}


@check("confs.job_keys", f"{', '.join(JOB_KEYS)} are the same in all conf files that set them", needs.conf)
def check_job_keys(context: Context) -> Iterator[CheckResult]:
    """Look for values that contradict each other: the plugin refuses them."""
    for key, row in JOB_KEYS.items():
        if row.variable and context.environment.get(row.variable):
            continue
        having = [(path, value) for path, conf in context.confs if (value := conf.get(key)) is not None]
        for path, value in having[1:]:
            first, expected = having[0]
            if value != expected:
                yield fail(
                    f"{path}: {key} = {value}, but {first} has {expected}.",
                    _command_to_set(path, key, expected),
                )


@check("confs.cores", "The cores in the conf files are there", needs.conf)
def check_cores(context: Context) -> Iterator[CheckResult]:
    """Compare cores with the processors that are online."""
    online = {cpu.id for cpu in context.facts.cpus}
    for path, conf in context.confs:
        missing = sorted(set(conf.cores or ()) - online)
        if online and missing:
            yield fail(f"{path}: there is no core {_join_numbers(missing)} (cores: {_span_text(online)}).", SETUP)


@check("confs.cores_shared", "No core serves two devices", needs.conf)
def check_cores_shared(context: Context) -> Iterator[CheckResult]:
    """Look for a core that is in two files. The engines of a striped device serve all ENIs."""
    words = [context.environment.get("HARP_DEVICES"), *(conf.devices for _, conf in context.confs)]
    if next(filter(None, words), STRIPED) == STRIPED and len(context.confs) <= BOUNDS.device_enis_max:
        return
    taken: dict[int, str] = {}
    for path, conf in context.confs:
        twice = sorted(core for core in conf.cores or () if core in taken)
        if twice:
            yield fail(f"{path}: core {_join_numbers(twice)} is already in {taken[twice[0]]}.", SETUP)
        taken.update({core: path for core in conf.cores or () if core not in taken})


@check("confs.cores_apart", "Each engine has a core for itself", needs.conf, validates=False)
def check_cores_apart(context: Context) -> Iterator[CheckResult]:
    """Look for cores that are hardware threads of one: two engines would share it."""
    named = {core: path for path, conf in context.confs for core in conf.cores or ()}
    for cpu in sorted(context.facts.cpus, key=lambda cpu: cpu.id):
        both = sorted(set(cpu.core) & named.keys())
        if len(both) > 1 and cpu.id == both[0]:
            cause = "are hardware threads of one core, and an engine runs on each"
            yield warn(f"{named[both[1]]}: {_join_numbers(both)} {cause}.", SETUP)


@check("confs.cores_local", "The cores of each ENI are on its NUMA node", needs.pair, validates=False)
def check_cores_local(context: Context) -> Iterator[CheckResult]:
    """Compare the cores' nodes with the ENI's."""
    node_of = {cpu.id: cpu.node for cpu in context.facts.cpus}
    for path, conf, eni in context.pairs:
        node = eni.node if eni.node >= 0 else conf.numa
        far = [core for core in conf.cores or () if node is not None and node_of.get(core, node) != node]
        if far:
            where = node_of[far[0]]
            yield warn(f"{path}: {eni.name} is on node {node}, core {_join_numbers(far)} on node {where}.", SETUP)


def _join_numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))


def _span_text(numbers: set[int]) -> str:
    return f"{min(numbers)} to {max(numbers)}"
