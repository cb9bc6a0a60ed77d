# SPDX-License-Identifier: Apache-2.0
"""Gathers the contents of a bundle. What cannot be read is listed with the reason."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from harpctl.build_info import build_version
from harpctl.bundle import allow
from harpctl.confs.conf import CONF_DIR
from harpctl.confs.files import find_confs
from harpctl.console import to_json
from harpctl.doctor.archive import FORMAT
from harpctl.doctor.context import DoctorOptions, real_context
from harpctl.doctor.examine import run_checks
from harpctl.doctor.model import to_plain
from harpctl.errors import HarpError
from harpctl.facts.collect import collect_facts
from harpctl.host.host import Host
from harpctl.plugin.settings import all_settings
from harpctl.plugin.status import read_status
from harpctl.stats.files import NAME as STATS_NAME
from harpctl.stats.files import find_processes, statistics_directories
from harpctl.stats.layout import MAGIC
from harpctl.stats.nested import make_document

DUMP_NAME = re.compile(
    r"harp-.*\.trace"
)  # a dump of the flight recorder, in HARP_DUMP_DIR or beside the statistics
FILE_BYTES_MAX = 64 << 20
TOTAL_BYTES_MAX = 256 << 20
PROCESSES_MAX = 1024
DUMPS_MAX = 64  # as many as the plugin keeps of a user
AS_ROOT = "run harpctl report as root, outside of containers"


class Bundle:
    """The files of a bundle, by name, and what could not be read."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files: dict[str, bytes] = {}
        self.unread: list[dict[str, str]] = []
        self.scrubber = allow.Scrubber()
        self._room = TOTAL_BYTES_MAX

    def add(self, name: str, data: bytes) -> None:
        """Add a file."""
        self.files[name] = data
        self._room -= len(data)

    def add_json(self, name: str, data: object) -> None:
        """Add plain data, cleaned."""
        self.add(name, to_json(self.scrubber.data(data)))

    def add_missing(self, what: str, why: str) -> None:
        """List what could not be read, with the reason."""
        self.unread.append({"what": self.scrubber.text(what), "why": self.scrubber.text(why)})

    def add_output(self, name: str, make: Callable[[], object]) -> None:
        """Add the output of a part of harpctl; where it fails, only that part is missing."""
        try:
            self.add_json(name, make())
        except HarpError as error:
            self.add_missing(name, str(error.message))
        except Exception as error:  # noqa: BLE001
            self.add_missing(name, f"a defect of harpctl: {type(error).__name__}")

    def add_statistics(self, name: str, path: str) -> None:
        """Add a statistics file or a dump, if it is one."""
        file = self.host.open_file(path)
        if file is None:
            self.add_missing(path, f"it is not readable: {AS_ROOT}")
            return
        with file:
            data = file.read(min(FILE_BYTES_MAX, max(self._room, 0)) + 1)
        if not data.startswith(MAGIC):
            self.add_missing(path, "it does not begin as a file of HARP does")
        elif len(data) > FILE_BYTES_MAX or len(data) > self._room:
            self.add_missing(path, "there is no room for it in the bundle")
        else:
            self.add(name, data)


def _read_environments(bundle: Bundle) -> dict[int, dict[str, str]]:
    """Read the environments of all processes that may be read and have variables of NCCL or HARP."""
    found: dict[int, dict[str, str]] = {}
    refused = 0
    for name in bundle.host.list_dir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        environment = bundle.host.environment(name)
        if environment is None:
            refused += bool(bundle.host.read_text(f"/proc/{name}/cmdline"))  # the kernel's threads have none
            continue
        bundle.scrubber.learn(environment)
        if any(key.startswith(allow.PREFIXES) for key in environment) and len(found) < PROCESSES_MAX:
            found[int(name)] = environment
    if refused:
        bundle.add_missing(f"the environment of {refused} processes", f"they are not readable: {AS_ROOT}")
    return found


def _dump_directories(host: Host, environments: list[dict[str, str]]) -> Iterator[str]:
    for environment in environments:
        named = environment.get("HARP_DUMP_DIR", "")
        yield from [named] if named.startswith("/") else statistics_directories(host, environment)


def _add_all_statistics(bundle: Bundle, environments: list[dict[str, str]]) -> None:
    host = bundle.host
    stats = {folder for environment in environments for folder in statistics_directories(host, environment)}
    for folder in sorted({*stats, *_dump_directories(host, environments)}):
        if host.is_dir(folder) and not host.list_dir(folder) and not os.access(folder, os.R_OK) and host.is_real:
            bundle.add_missing(folder, f"it is not readable: {AS_ROOT}")
        names = [
            name
            for name in host.list_dir(folder)
            if not host.is_link(f"{folder}/{name}") and host.is_file(f"{folder}/{name}")
        ]
        for name in names if folder in stats else ():
            if STATS_NAME.fullmatch(name):
                bundle.add_statistics(f"statistics/{name}", f"{folder}/{name}")
        _add_dumps(bundle, folder, [name for name in names if DUMP_NAME.fullmatch(name)])


def _add_dumps(bundle: Bundle, folder: str, names: list[str]) -> None:
    """Add the newest dumps of a directory; one sentence tells of the others."""
    times = {name: status.st_mtime for name in names if (status := bundle.host.stat(f"{folder}/{name}"))}
    newest = sorted(times, key=lambda name: times[name], reverse=True)
    for name in newest[:DUMPS_MAX]:
        bundle.add_statistics(f"dumps/{name}", f"{folder}/{name}")
    if older := len(newest[DUMPS_MAX:]):
        bundle.add_missing(f"{older} dumps in {folder}", f"only the {DUMPS_MAX} newest are included")


def _add_confs(bundle: Bundle, environments: list[dict[str, str]]) -> None:
    folders = [CONF_DIR, *(environment.get("HARP_CONF_DIR", "") for environment in environments)]
    for number, folder in enumerate(dict.fromkeys(folder.rstrip("/") for folder in folders)):
        for path in find_confs(bundle.host, folder) if folder.startswith("/") else ():
            text = bundle.host.read_text(path)
            if text is None:
                bundle.add_missing(path, f"it is not readable: {AS_ROOT}")
                continue
            name = f"confs/{'' if not number else f'{number}-'}{path.rpartition('/')[2]}"
            text = f"# {path}\n{allow.filter_conf(text, bundle.scrubber)}"
            bundle.add(name, bundle.scrubber.text(text).encode("utf-8", "replace"))


def _read_status(host: Host) -> dict[str, Any]:
    status: dict[str, Any] = msgspec.to_builtins(read_status(host))
    status.pop("settings")  # environment.json has them
    return status


def gather_bundle(host: Host) -> Bundle:
    """Gather all that a bundle holds; works without root and in a container."""
    bundle = Bundle(host)
    own = dict(os.environ) if host.is_real else {}
    bundle.scrubber.learn(own)
    processes = _read_environments(bundle)
    set_ = all_settings(host, own)
    bundle.scrubber.learn({setting.name: setting.value for setting in set_})
    facts = collect_facts(host)
    environments = [own, *processes.values()]
    _add_confs(bundle, environments)  # before what may quote them
    bundle.add_output(
        "doctor.json",
        lambda: [to_plain(one) for one in run_checks(real_context(host, facts, DoctorOptions()))],
    )
    bundle.add_output("facts.json", lambda: allow.filter_facts(facts))
    bundle.add_output("status.json", lambda: _read_status(host))
    bundle.add_output(
        "environment.json",
        lambda: {
            "settings": allow.filter_settings(set_),
            "processes": {str(pid): allow.filter_variables(found) for pid, found in processes.items()},
        },
    )
    bundle.add_output("versions.json", lambda: _read_versions(bundle.host))
    found = find_processes(host)
    for unread in found.unread:
        bundle.add_missing(unread.file, unread.error)
    bundle.add_output("statistics.json", lambda: _without_commands(make_document(found)))
    _add_all_statistics(bundle, environments)
    return bundle


def _read_versions(host: Host) -> dict[str, str]:
    versions = {"harpctl": build_version(), "python": sys.version.split()[0]}
    return {**versions, "kernel": platform.release()} if host.is_real else versions


def _without_commands(data: object) -> object:
    """Leave out the command lines of processes: nobody knows what users put there."""
    if isinstance(data, dict):
        return {key: _without_commands(value) for key, value in data.items() if key != "command"}
    if isinstance(data, list):
        return [_without_commands(value) for value in data]
    return data


def make_manifest(bundle: Bundle, name: str) -> bytes:
    """Return the manifest: what the bundle holds, for its reader."""
    text = {
        "format": FORMAT,
        "host": name,
        "harpctl": build_version(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "is_root": os.geteuid() == 0,
        "files": sorted(bundle.files),
        "unread": bundle.unread,
    }
    return to_json(text)
