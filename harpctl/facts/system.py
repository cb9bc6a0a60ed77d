# SPDX-License-Identifier: Apache-2.0
"""The distribution, its family, the C library, and whether we are in a container."""

from __future__ import annotations

import os
import platform
import re
import shlex

from harpctl.facts import text
from harpctl.facts.library_dirs import LOADERS, TRIPLETS
from harpctl.facts.model import System
from harpctl.host.host import Host

OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")
FAMILIES = {
    "debian": ("debian", "ubuntu"),
    "rhel": (
        *("rhel", "fedora", "centos", "rocky", "almalinux", "ol", "amzn", "openeuler"),
        *("tencentos", "tlinux", "opencloudos", "anolis", "alinux"),
    ),
}
LIBC = ("/lib/{0}-linux-gnu/libc.so.6", "/usr/lib/{0}-linux-gnu/libc.so.6", "/lib64/libc.so.6")
LIBC_BANNER = re.compile(rb"GNU C Library [^\n]{0,200}?version ([0-9]+\.[0-9]+)")
LDD_VERSION = re.compile(r"ldd \(.*\) ([0-9]+\.[0-9]+)")
UNIT_FOLDERS = ("/usr/lib/systemd/system", "/lib/systemd/system")
SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CGROUP_MARKS = {  # what /proc/self/cgroup matches -> the kind of container
    r"/kubepods": "kubernetes",
    r"/docker[/-][0-9a-f]": "docker",
    r"/libpod-": "podman",
    r"/lxc[./]": "lxc",
    r"/cri-containerd-": "containerd",
}


def os_release(host: Host) -> dict[str, str]:
    """Read os-release(5); empty where there is none."""
    values: dict[str, str] = {}
    path = next((path for path in OS_RELEASE if host.is_file(path)), OS_RELEASE[0])
    for line in text.read_lines(host, path):
        name, equals, value = line.strip().partition("=")
        if equals and re.fullmatch(r"[A-Z0-9_]+", name):
            try:
                values[name] = " ".join(shlex.split(value))
            except ValueError:  # an open quote
                values[name] = value.strip("\"'")
    return values


def family_of(release: dict[str, str]) -> str:
    """Return "debian" or "rhel" by ID, else by ID_LIKE; "" for neither."""
    for name in (release.get("ID", ""), *release.get("ID_LIKE", "").split()):
        for family, ids in FAMILIES.items():
            if name.lower() in ids:
                return family
    return ""


def collect_system(host: Host, unknown: list[str]) -> System:
    """Gather the facts of the system; what cannot be determined is listed in `unknown`."""
    release = os_release(host)
    family = family_of(release)
    if not release:
        unknown.append("The distribution is unknown: neither /etc/os-release nor /usr/lib/os-release can be read.")
    elif not family:
        name = release.get("ID", "") or release.get("NAME", "") or "without a name"
        unknown.append(f"The distribution {name} belongs neither to Debian's nor to Red Hat's family.")
    arch = _read_arch(host)
    return System(
        id=release.get("ID", "").lower(),
        version=release.get("VERSION_ID", ""),
        name=release.get("PRETTY_NAME", "") or release.get("NAME", ""),
        family=family,
        kernel=os.uname().release if host.is_real else text.read_word(host, "/proc/sys/kernel/osrelease"),
        arch=arch,
        glibc=_read_glibc(host, arch),
        init=_find_init(host),
        container=find_container(host),
        is_root=os.geteuid() == 0,
        python=platform.python_version(),
    )


def _read_arch(host: Host) -> str:
    if host.is_real:
        return os.uname().machine
    for arch, triplet in TRIPLETS.items():
        if host.exists(LOADERS[arch]) or host.exists(f"/usr/lib/{triplet}"):
            return arch
    return "x86_64" if host.is_dir("/usr/lib64") else ""


def _read_glibc(host: Host, arch: str) -> str:
    """Return the version of the host's C library, from its own banner, else from the text of its ldd."""
    for pattern in LIBC:
        if match := LIBC_BANNER.search(host.read_bytes(pattern.format(arch)) or b""):
            return match[1].decode()
    match_ldd = LDD_VERSION.search(text.read_clean(host, "/usr/bin/ldd"))
    return match_ldd[1] if match_ldd else ""


def _find_init(host: Host) -> str:
    """Return "systemd" where it runs the host, or will run a directory tree; else ""."""
    if host.is_dir("/run/systemd/system"):
        return "systemd"
    is_there = not host.is_real and any(host.is_dir(folder) for folder in UNIT_FOLDERS)
    return "systemd" if is_there else ""


def find_container(host: Host) -> str:
    """Return the kind of container we are in, by its manager's marker files; "" outside."""
    if host.exists(SERVICE_ACCOUNT) or (host.is_real and "KUBERNETES_SERVICE_HOST" in os.environ):
        return "kubernetes"
    if host.exists("/run/.containerenv"):
        return "podman"
    if host.exists("/.dockerenv"):
        return "docker"
    if name := text.read_word(host, "/run/systemd/container"):
        return name.split()[0]
    if match := re.search(r"(?:^|\0)container=([^\0]+)", (host.read_text("/proc/1/environ") or "")):
        return text.clean_text(match[1].encode("utf-8", "surrogateescape"))
    groups = text.read_clean(host, "/proc/self/cgroup")
    return next((name for mark, name in CGROUP_MARKS.items() if re.search(mark, groups)), "")
