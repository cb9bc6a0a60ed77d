# SPDX-License-Identifier: Apache-2.0
"""The plugin file that `harpctl install` puts on a host: given, packaged with harpctl, or built beside it."""

from __future__ import annotations

import io
from importlib import resources
from pathlib import Path

from harpctl.build_info import BUILD_DIR
from harpctl.errors import ExitCode, HarpError
from harpctl.facts.elf import inspect_elf
from harpctl.facts.plugin_files import NAME
from harpctl.host.host import Host
from harpctl.plugin.compat import platform_of, why_incompatible
from harpctl.plugin.switch import Source

VARIANTS = ("", "portable", "aarch64")  # folders of build/: for this machine, for old glibc, for ARM


def _make_source(path: str, data: bytes, host_path: str = "") -> Source:
    return Source(path=path, data=data, elf=inspect_elf(io.BytesIO(data), path), host_path=host_path)


def own_sources() -> list[Source]:
    """Read the plugins that come with this harpctl, the preferred one first."""
    packaged = resources.files("harpctl") / "data"
    files = [packaged / NAME, *(BUILD_DIR / variant / NAME for variant in VARIANTS)]
    return [_make_source(str(file), file.read_bytes()) for file in files if file.is_file()]


def own_path(host: Host) -> str:
    """Return where the plugin that comes with this harpctl lies, if it fits this machine; "" for a tree."""
    platform = platform_of(host)
    fitting = (source.path for source in own_sources() if not why_incompatible(source.elf, platform))
    return next(fitting, "") if host.is_real else ""


def read_source(host: Host, file: Path) -> Source:
    """Read a plugin file of this machine. Raises HarpError when it cannot be read or is no shared library."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise HarpError(
            f"{file} cannot be read ({error.strerror}).",
            "Give the path of a libnccl-net.so.",
            ExitCode.MISSING,
        ) from None
    path = file.resolve()
    host_path = f"/{path.relative_to(host.root)}" if path.is_relative_to(host.root) else ""
    return _make_source(str(file), data, host_path)


def find_source(host: Host, given: Path | None) -> Source:
    """Return the plugin to install: the given one, else the first of our own that fits, else the first."""
    if given is not None:
        return read_source(host, given)
    sources = own_sources()
    if not sources:
        raise HarpError(
            "This harpctl comes without a plugin.",
            "Build it with `./harp_setup build`, or name one: harpctl install --plugin FILE",
            ExitCode.MISSING,
        )
    platform = platform_of(host)
    return next((source for source in sources if not why_incompatible(source.elf, platform)), sources[0])
