# SPDX-License-Identifier: Apache-2.0
"""Describes in the words of the Container Device Interface what a container gets of HARP."""

from __future__ import annotations

import msgspec

from harpctl.confs.conf import CONF_DIR
from harpctl.confs.files import find_confs
from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host
from harpctl.node.profile import library_path, profile_path
from harpctl.plugin.settings import parse_conf

VERSION = "0.4.0"  # the first with everything used here
READ_ONLY = ("ro", "nosuid", "nodev", "bind")


class Mount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A directory of the host in the container, under its own path."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = READ_ONLY


class Edits(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Additions to a container."""

    env: tuple[str, ...]
    mounts: tuple[Mount, ...]


class Device(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One device."""

    name: str
    container_edits: Edits


class Spec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The document."""

    cdi_version: str
    kind: str
    devices: tuple[Device, ...]


def describe_folder(host: Host, folder: str) -> Spec:
    """Describe the folder that `harpctl node` made, and the conf files where there are some."""
    if not host.is_file(library_path(folder)):
        raise HarpError(
            f"HARP is not installed for containers: there is no {library_path(folder)}.",
            "Run: harpctl node",
            ExitCode.MISSING,
        )
    settings = parse_conf(host.read_text(profile_path(folder)) or "")
    paths = [folder, *([CONF_DIR] if find_confs(host) else [])]
    edits = Edits(
        env=tuple(f"{name}={value}" for name, value in settings.items()),
        mounts=tuple(Mount(host_path=path, container_path=path) for path in paths),
    )
    return Spec(cdi_version=VERSION, kind="harp/net", devices=(Device(name="all", container_edits=edits),))
