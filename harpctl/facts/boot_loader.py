# SPDX-License-Identifier: Apache-2.0
"""Finds the source of the kernel command line: the boot loader, its files, and what its entries really pass."""

from __future__ import annotations

import posixpath
import re

import msgspec

from harpctl.facts import bls, grub_menu
from harpctl.facts.model import Boot, BootEntry
from harpctl.facts.sources import DEFAULTS, DROPINS, Sources
from harpctl.host.host import Host

HARP_DROPIN = "/etc/default/grub.d/zz-harp.cfg"  # the last of them
_HARP_ARGS = re.compile(r"^harp_args='([^'\n]*)'$", re.MULTILINE)
CONFIGS = ("/boot/grub2/grub.cfg", "/boot/grub/grub.cfg")
EFI_CONFIGS = "/boot/efi/EFI/*/grub.cfg"
EFI_LINK = "/etc/grub2-efi.cfg"  # Red Hat's, to the one of EFI_CONFIGS that is read
FOLDERS = ("/boot/grub2", "/boot/grub", "/boot/loader")
SYSTEMD_BOOT = ("/boot/loader/loader.conf", "/boot/efi/loader/loader.conf", "/efi/loader/loader.conf")
EXTLINUX = ("/boot/extlinux/extlinux.conf", "/boot/syslinux/syslinux.cfg")


def collect_boot(host: Host) -> Boot:
    """Find out which boot loader starts the host, from which files, and the arguments of each entry."""
    is_efi, configs = _find_configs(host)
    config = configs[0] if configs else ""
    boot = Boot(
        defaults=DEFAULTS if host.is_file(DEFAULTS) else "",
        dropins=() if config and "/grub/" not in config else tuple(host.glob(DROPINS)),  # Debian's own idea
        harp_args=_harp_args(host),
        config=config,
        is_efi=is_efi,
        cmdline=host.read_word("/proc/cmdline"),
    )
    files = bls_entries(host, grub_variables(host, config))
    if any("ostree" in posixpath.basename(entry.source) for entry in files):
        default = max(files, key=lambda entry: _entry_version(host, entry))
        return _with_loader(
            boot, "ostree", (default,), "the entries are deployments of ostree; this is the next one"
        )
    if not configs:
        return _with_loader(boot, "", (), _why_unknown(host))
    menus = tuple(entry for path in configs for entry in menu_entries(host, path))
    if any(grub_menu.runs_blscfg(host.read_text(path) or "") for path in configs) and files:
        return _with_loader(boot, "bls", files + menus, f"{config} runs blscfg, which reads {bls.ENTRIES}")
    unread = [path for path in configs if host.read_text(path) is None]
    reason = f"{unread[0]} cannot be read; root can" if unread else f"GRUB reads {config}"
    return _with_loader(boot, "grub", menus, reason)


def _harp_args(host: Host) -> str:
    """Return what an earlier setup adds to the arguments of later kernels."""
    texts = (host.read_text(path) or "" for path in (HARP_DROPIN, DEFAULTS))
    return next((match[1] for text in texts if (match := _HARP_ARGS.search(text))), "")


def menu_entries(host: Host, config: str) -> tuple[BootEntry, ...]:
    """Return the entries of one grub.cfg."""
    values = grub_variables(host, config)
    return tuple(
        BootEntry(title=entry.title, source=config, args=grub_menu.passed_arguments(entry.raw, values))
        for entry in grub_menu.parse_entries(host.read_text(config) or "")
    )


def bls_entries(host: Host | Sources, values: dict[str, str]) -> tuple[BootEntry, ...]:
    """Return the entries in /boot/loader/entries, variables in them replaced."""
    found = []
    for path in host.glob(bls.ENTRIES):
        text = host.read_text(path)
        if text is not None and bls.value_of(text, "linux"):
            args = " ".join(grub_menu.expand_variables(bls.value_of(text, "options"), values).split())
            found.append(BootEntry(title=bls.value_of(text, "title"), source=path, args=args))
    return tuple(found)


def _entry_version(host: Host, entry: BootEntry) -> int:
    """Return an ostree entry's version: the highest is booted, the others are there to go back to."""
    version = bls.value_of(host.read_text(entry.source) or "", "version")
    return int(version) if version.isdecimal() else 0


def env_path(config: str) -> str:
    """Return where the environment block of a grub.cfg lies."""
    return posixpath.join(posixpath.dirname(config), "grubenv")


def grub_variables(host: Host | Sources, config: str) -> dict[str, str]:
    """Return GRUB's variables at the time it reads entries.

    The file's own settings take precedence over the environment block, except for kernelopts, which the file
    sets only where the block does not.
    """
    if not config:
        return {}
    env = bls.read_env(host.read_bytes(env_path(config)) or b"")
    values = {**env, **grub_menu.parse_variables(host.read_text(config) or "")}
    if env.get("kernelopts"):
        values["kernelopts"] = env["kernelopts"]
    return values


def _find_configs(host: Host) -> tuple[bool, list[str]]:
    """Return whether the host boots by EFI, and every grub.cfg with a menu that may be the one it reads.

    A directory tree does not show how it will be booted; where both kinds have a menu, both are returned.
    """
    bios = [path for path in CONFIGS if _is_menu(host, path)]
    stubs = host.glob(EFI_CONFIGS)
    efi = [path for path in stubs if _is_menu(host, path)]
    linked = host.leads_to(EFI_LINK)
    efi.sort(key=lambda path: (host.leads_to(path) != linked, path))
    if host.is_dir("/sys/firmware"):
        is_efi = host.is_dir("/sys/firmware/efi")
        return is_efi, ((efi or bios) if is_efi else (bios or efi))[:1]
    return bool(stubs), bios + efi[:1]


def _is_menu(host: Host, path: str) -> bool:
    if not host.is_file(path):
        return False
    text = host.read_text(path)
    return text is None or not grub_menu.is_stub(text)


def _with_loader(boot: Boot, loader: str, entries: tuple[BootEntry, ...], reason: str) -> Boot:
    return msgspec.structs.replace(boot, loader=loader, entries=entries, reason=reason)


def _why_unknown(host: Host) -> str:
    if loops := [path for path in (*CONFIGS, *host.glob(EFI_CONFIGS)) if host.is_loop(path)]:
        return f"the symbolic links of {loops[0]} form a loop"
    if any(host.exists(path) for path in SYSTEMD_BOOT) or host.glob(bls.ENTRIES):
        return "systemd-boot without GRUB: there are entries in a loader directory, but no grub.cfg"
    if any(host.exists(path) for path in EXTLINUX):
        return "extlinux or syslinux, which harpctl does not edit"
    if folders := [path for path in FOLDERS if host.is_dir(path)]:
        return f"{folders[0]} holds no grub.cfg, or none that this user may read; try as root"
    return "no grub.cfg and no boot loader entries; a container is prepared on its host"
