# SPDX-License-Identifier: Apache-2.0
"""The context of a check: the host, its facts, its conf files, the environment, and what was requested."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence

import msgspec

from harpctl.confs.conf import CONF_DIR, Conf
from harpctl.confs.files import ConfFile, read_confs
from harpctl.doctor.machine import Machine
from harpctl.doctor.peer_probes import PeerProbe, ephemeral_ports, plan_probes, run_probes, run_sweeps
from harpctl.doctor.probe_packet import PORT
from harpctl.errors import HarpError
from harpctl.facts.elf import NAME
from harpctl.facts.model import Eni, Facts, HugeMount, Pages
from harpctl.facts.plugin_files import Copy, find_copies
from harpctl.facts.sources import RECORD, Sources, collect_sources
from harpctl.facts.unasked import why_left_out
from harpctl.host.host import Host
from harpctl.network.model import Interfaces, decode_record
from harpctl.plugin.choice import Family, named_files
from harpctl.plugin.compat import Platform, platform_of
from harpctl.plugin.search import Taken, TakenByJobs, find_taken, look_for_plugins
from harpctl.plugin.settings import SetVariable, all_settings
from harpctl.setup.choose import choose_enis
from harpctl.setup.mount import MOUNT_POINT
from harpctl.setup.options import SetupOptions
from harpctl.units import GIB, MIB

IFNAME = "HARP_IFNAME"


def selected_names(text: str, enis: Sequence[Eni]) -> list[str]:
    """Return the interfaces with addresses that a value of HARP_IFNAME selects, as the plugin does."""
    is_exclude, rest = text.startswith("^"), text.removeprefix("^")
    is_exact, words = rest.startswith("="), rest.removeprefix("=").split(",")
    entries = [entry for word in words if (entry := word.strip())]

    def matches(eni: Eni, entry: str) -> bool:
        return eni.name == entry if is_exact else eni.name.startswith(entry)

    usable = [eni for eni in enis if eni.addresses]
    if is_exclude:
        return [eni.name for eni in usable if eni.is_up and not any(matches(eni, one) for one in entries)]

    def selected(entry: str) -> list[str]:
        by_name = [eni.name for eni in usable if matches(eni, entry)]
        return by_name or [eni.name for eni in usable if entry in eni.altnames]

    return list(dict.fromkeys(name for entry in entries for name in selected(entry)))


class DoctorOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's requests to the doctor."""

    peers: tuple[str, ...] = ()  # addresses or names of the other host
    port: int = PORT  # where its responder listens
    after_boot: bool = False  # what the next boot brings counts as there


class Context:
    """Everything that checks look at."""

    def __init__(
        self,
        host: Host,
        facts: Facts,
        options: DoctorOptions | None = None,
        environment: Mapping[str, str] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.host = host
        self.facts = facts
        self.options = options or DoctorOptions()
        self.environment = dict(environment or {})
        self._machine = machine

    @property
    def conf_dir(self) -> str:
        """Return the directory that the plugin reads."""
        return (self.environment.get("HARP_CONF_DIR") or CONF_DIR).rstrip("/") or "/"

    @functools.cached_property
    def conf_files(self) -> tuple[ConfFile, ...]:
        """Read all ztcp*.conf, in the plugin's order."""
        return read_confs(self.host, self.conf_dir)

    @functools.cached_property
    def sources(self) -> Sources:
        """Return what the plan of the ENIs is made of."""
        return collect_sources(self.host, self.facts.enis)

    @property
    def record(self) -> Interfaces:
        """Return what setup recorded. Raises HarpError for a record that is damaged."""
        return decode_record(self.host.read_bytes(RECORD)).with_names(self.facts.name_of)

    @functools.cached_property
    def copies(self) -> tuple[Copy, ...]:
        """Return whatever bears one of the plugin's names, installed ones first and in the loader's order."""
        return find_copies(self.host, named_files(self.settings))

    @functools.cached_property
    def settings(self) -> tuple[SetVariable, ...]:
        """Return the NCCL_ and HARP_ variables that are set for jobs of this host."""
        found = all_settings(self.host, self.environment)
        return tuple(setting for setting in found if setting.name.startswith(("NCCL_", "HARP_")))

    @functools.cached_property
    def by_jobs(self) -> TakenByJobs:
        """Return the plugin that jobs started here load, and why."""
        return look_for_plugins(self.host, self.copies, self.settings, self.platform, self.taken)

    @property
    def family(self) -> Family:
        """Return whether jobs from here use NCCL or RCCL."""
        return self.by_jobs.family

    @property
    def nccl_copy(self) -> Copy | None:
        """Return the file that NCCL takes; None where there is none."""
        return self.by_jobs.copy

    @functools.cached_property
    def taken(self) -> tuple[Taken, ...]:
        """Return what each NCCL of the host takes by its own search path."""
        return find_taken(self.host, self.copies, self.settings, self.platform)

    @functools.cached_property
    def platform(self) -> Platform:
        """Return what the host offers a plugin."""
        return platform_of(self.host)

    @functools.cached_property
    def confs(self) -> tuple[tuple[str, Conf], ...]:
        """Return what the plugin takes: path and content of the files that hold something.

        Where HARP_IFNAME is set it reads no file: then the interfaces that the variable selects. Where
        there is no file, but NCCL is told to use HARP: those that the plugin chooses.
        """
        variable = IFNAME if IFNAME in self.environment else self.asked_by
        if variable:
            return tuple((variable, Conf(interface=name)) for name in self._names_by(variable))
        confs = ((file.path, file.conf) for file in self.conf_files if file.conf is not None)
        return tuple((path, self._with_first_name(conf)) for path, conf in confs)

    def _with_first_name(self, conf: Conf) -> Conf:
        """Replace an alternative name of an interface by its name, as the plugin does."""
        return msgspec.structs.replace(conf, interface=self.facts.name_of(conf.interface))

    @functools.cached_property
    def asked_by(self) -> str:
        """Return the variable that asks for HARP by name, where the plugin then chooses interfaces; or ""."""
        if self.conf_files or self.environment.get("HARP_CONF_DIR"):
            return ""
        values = {setting.name: setting.value for setting in self.settings}
        if values.get("NCCL_NET", "").lower() == NAME.lower():
            return "NCCL_NET"
        return "NCCL_NET_PLUGIN" if values.get("NCCL_NET_PLUGIN") and self.plugin else ""

    def _names_by(self, variable: str) -> list[str]:
        if variable == IFNAME:
            return selected_names(self.environment[IFNAME], self.facts.enis)
        wanted = {setting.name: setting.value for setting in self.settings}.get("NCCL_SOCKET_IFNAME")
        if wanted:
            return selected_names(wanted, self.facts.enis)
        return [name for name, why in why_left_out(self.facts.enis).items() if not why]

    @functools.cached_property
    def pairs(self) -> tuple[tuple[str, Conf, Eni], ...]:
        """Return that of the interfaces which exist, with the interface."""
        found = ((path, conf, self.facts.find_eni(conf.interface)) for path, conf in self.confs)
        return tuple((path, conf, eni) for path, conf, eni in found if eni is not None)

    @property
    def enis(self) -> tuple[Eni, ...]:
        """Return the interfaces that the conf files name and that exist."""
        return tuple(eni for _path, _conf, eni in self.pairs)

    @functools.cached_property
    def usual_enis(self) -> tuple[str, ...]:
        """Return the names of the ENIs that setup chooses by itself; none where it can't."""
        try:
            return tuple(eni.name for eni in choose_enis(self.facts, SetupOptions()))
        except HarpError:
            return ()

    @property
    def page_size(self) -> int:
        """Return the size of the hugepages that the conf files ask for first; 0 when they want none."""
        sizes = {conf.page_size or "auto" for _path, conf in self.confs} or {"auto"}
        if sizes & {"auto", "1G"}:
            return GIB
        return 2 * MIB if "2M" in sizes else 0

    @property
    def pages(self) -> Pages:
        """Return the host's hugepages of the wanted size."""
        found = (one for one in self.facts.memory.hugepages if one.size == self.page_size)
        return next(found, Pages(size=self.page_size, total=0, free=0))

    @property
    def mount(self) -> HugeMount | None:
        """Return the hugetlbfs that containers are given; None when it is not mounted."""
        return next((one for one in self.facts.memory.mounts if one.path == MOUNT_POINT), None)

    @functools.cached_property
    def plugin(self) -> Copy | None:
        """Return HARP's plugin where it is what NCCL's dlopen takes; None when it is not."""
        copy = self.nccl_copy
        return copy if copy is not None and copy.is_harp else None

    @functools.cached_property
    def peer_probes(self) -> tuple[PeerProbe, ...]:
        """Probe the peers."""
        targets = [address for peer in self.options.peers for address in self.machine.resolve(peer)[0]]
        pairs = [(conf, eni) for _path, conf, eni in self.pairs]
        planned = plan_probes(pairs, targets, ephemeral_ports(self.host))
        port = self.options.port
        return run_sweeps(self.machine, port, run_probes(self.machine, port, planned))

    @property
    def machine(self) -> Machine:
        """Return the running machine, for checks that need one."""
        if self._machine is None:
            raise HarpError("A directory tree does not run.")
        return self._machine

    @property
    def is_running(self) -> bool:
        """Return whether this is a running machine and not a directory tree."""
        return self._machine is not None


def real_context(host: Host, facts: Facts, options: DoctorOptions) -> Context:
    """Make the context of a host: for a tree without environment and without asking the machine."""
    if not host.is_real:
        return Context(host, facts, options)
    return Context(host, facts, options, os.environ, Machine())
