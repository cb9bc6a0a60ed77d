# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of packages: all packages built once, hosts of Debian, a host that has no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dist.names import DEBIAN, HERE

TOOLS = (  # what a host surely has: no Python among it
    *("bash", "sh", "cat", "chmod", "cut", "grep", "gzip", "head", "id", "ls", "mkdir", "mktemp", "mv"),
    *("readlink", "rm", "rmdir", "sed", "sha256sum", "sync", "tail", "tar", "tr", "uname", "wc"),
)
PASSED = ("var/lib/dpkg", "var/log", "var/cache", "var/lib/apt", "proc", "sys", "dev", "tmp", "run")
ENTER = """\
{before}ip link set lo up && mount -t proc proc "$0/proc" &&
{sys} "$0/sys" && mount --rbind /dev "$0/dev" &&
exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME={home} chroot {user}"$0" "$@"
"""
INTERFACE = """\
ip link add eth0 type veth peer name other && ip addr add 192.0.2.1/24 dev eth0 &&
ip link set eth0 up && ip link set other up && """
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && '


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Provide the environment of a host without Python."""
    folder = tmp_path_factory.mktemp("path")
    for name in TOOLS:
        (folder / name).symlink_to(shutil.which(name) or pytest.fail(f"no {name} here"))
    return {"PATH": str(folder), "TMPDIR": str(folder.parent)}


@pytest.fixture(scope="session")
def out(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide all packages, as `make dist` makes them."""
    run_command("make", "-s", "-C", root, "dist")
    return shutil.copytree(root / "dist" / "out", tmp_path_factory.mktemp("packages") / "out")


def files_for(out: Path, pattern: str, machine: str = HERE) -> list[Path]:
    """Return the files that fit a pattern, without those for other machines."""
    others = [word for name, debian in DEBIAN.items() if name != machine for word in (name, debian)]
    return sorted(file for file in out.glob(pattern) if not any(word in file.name for word in others))


def only_file_for(out: Path, pattern: str, machine: str = HERE) -> Path:
    """Return the only file that fits a pattern and a machine."""
    (found,) = files_for(out, pattern, machine)
    return found


def run_command(*words: str | Path, code: int = 0) -> str:
    """Run a command that ends with a code; return its standard output, and where it fails its errors too."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout + (done.stderr if code else "")


class Chroot:
    """A host of a Debian release, without a network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, file: Path, name: str = "") -> str:
        """Copy a file into its /tmp; return the path there."""
        shutil.copy(file, self.folder / "tmp" / (name or file.name))
        return f"/tmp/{name or file.name}"

    def run(self, *words: str, code: int = 0, read_only: bool = False, uid: int = 0) -> str:
        """Run a command there, with a loopback interface and nothing else; as a user, with a NIC."""
        before = (READ_ONLY if read_only else "") + (INTERFACE if uid else "")
        user = f"--userspec={uid}:{uid} " if uid else ""
        home, sys = ("/tmp", "mount -t sysfs sysfs") if uid else ("/root", "mount --rbind /sys")
        script = ENTER.format(before=before, home=home, user=user, sys=sys)
        return run_command(
            *("unshare", "--net", "--mount", "--pid", "--fork", "sh", "-c", script, self.folder),
            *words,
            code=code,
        )

    def files(self) -> set[str]:
        """Return the paths but for dpkg's and apt's own records and caches of the system."""
        found = set()
        for folder, folders, names in os.walk(self.folder):
            at = os.path.relpath(folder, self.folder)
            folders[:] = [name for name in folders if not f"{at}/{name}".removeprefix("./").startswith(PASSED)]
            found |= {f"{at}/{name}" for name in (*folders, *names)}
        return found


@pytest.fixture
def debian(root: Path, tmp_path: Path) -> Callable[[str], Chroot]:
    """Make hosts of Debian releases; each release is fetched once."""
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        pytest.skip("needs root and mmdebstrap to make a Debian")

    def make(release: str) -> Chroot:
        kept = root / ".cache" / "dist" / f"debian-{release}.tar"
        if not kept.is_file():
            kept.parent.mkdir(parents=True, exist_ok=True)
            new = kept.with_suffix(".new.tar")
            run_command(
                "mmdebstrap", "--quiet", "--variant=minbase", "--include=python3,python3-venv", release, new
            )
            new.rename(kept)
        folder = tmp_path / release
        folder.mkdir()
        run_command("tar", "-xf", kept, "-C", folder)
        return Chroot(folder)

    return make
