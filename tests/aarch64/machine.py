# SPDX-License-Identifier: Apache-2.0
"""Runs programs for aarch64 by qemu's user mode: their libraries, a Python, and what builds them.

The libraries are Debian's, unpacked into a folder; nothing of them is installed. qemu-user passes system
calls on to the host's kernel, so sockets, threads and namespaces are the host's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from dist.make import requirements
from tests import native

NAME = "aarch64"
QEMU = "qemu-aarch64"
COMPILER = "harp-cc-aarch64"
SUITE = "bookworm"
PACKAGES = ("libc6", "libcmocka-dev", "python3")
PYTHON = "3.11"  # the suite's version
OF_TESTS = ("cffi", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
FETCH_TIMEOUT_S = 900
RUN_TIMEOUT_S = 1200  # qemu takes some thirty times as long
SCRIPT = """\
#!/bin/sh
# Python for aarch64, which starts itself by this file.
exec {qemu} -0 "$0" -L {root} -E PYTHONHOME={root}/usr -E PYTHONPATH={packages} {root}/usr/bin/python3 "$@"
"""


def why_missing() -> str:
    """Return why programs for aarch64 can't be built and run here; "" if they can."""
    if not (Path(sys.executable).parent / COMPILER).exists():
        return f"needs {COMPILER} (./harp_setup test --aarch64 makes it, with ziglang of PyPI)"
    absent = [tool for tool in (QEMU, "mmdebstrap") if not shutil.which(tool)]
    return f"needs {' and '.join(absent)} (Debian: qemu-user, mmdebstrap)" if absent else ""


class Machine(NamedTuple):
    """A machine that runs programs for aarch64."""

    root: Path  # the libraries
    python: Path  # runs as any Python does, with what the tests import

    @property
    def cross(self) -> native.Cross:
        """Return what builds the C tests and starts them."""
        libraries = self.root / "usr/lib/aarch64-linux-gnu"
        words = (
            f"CC={COMPILER}",
            f"CFLAGS=-idirafter {shlex.quote(str(self.root / 'usr/include'))}",
            f"LDFLAGS=-L{shlex.quote(str(libraries))}",
        )
        return native.Cross(words, tuple(self.words()), RUN_TIMEOUT_S)

    def words(self, *program: str | Path) -> list[str]:
        """Return the command that runs a program."""
        return [QEMU, "-L", str(self.root), *map(str, program)]

    def run(self, *program: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end, with variables of HARP or NCCL that it alone has."""
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))}
        return subprocess.run(
            self.words(*program),
            env={**clean, **variables},
            cwd=native.ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=RUN_TIMEOUT_S,
            check=False,
        )


def build_targets(*targets: str) -> Path:
    """Build targets of the plugin's folder for aarch64; return the folder of what is built."""
    words = (f"VARIANT={NAME}", f"CC={COMPILER}", *targets)
    built = native.run_make(*words)
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    return native.PLUGIN_DIR / "build" / NAME


def _package_specs() -> list[str]:
    """Return the Python packages that the tests import, in the versions that are here."""
    versions = {**requirements(), **{name: importlib.metadata.version(name) for name in OF_TESTS}}
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def _fetch(argv: list[str]) -> None:
    done = subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=FETCH_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise OSError(f"{argv[0]} failed: {done.stderr.strip()[-1000:]}")


def _fill_folder(folder: Path) -> None:
    """Unpack the libraries into root/, and the Python packages into packages/."""
    tree = [f"--include={','.join(PACKAGES)}", SUITE, str(folder / "root")]
    _fetch(["mmdebstrap", "--quiet", "--variant=extract", "--architectures=arm64", "--skip=check/qemu", *tree])
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile"]
    pip += ["--only-binary=:all:", "--target", str(folder / "packages"), "--implementation", "cp"]
    pip += ["--python-version", PYTHON, "--platform", "manylinux2014_aarch64"]
    _fetch([*pip, "--platform", "manylinux_2_17_aarch64", *_package_specs()])


def prepare_machine(cache: Path) -> Machine:
    """Return what runs programs, fetched now or before. Raises OSError where it can't be had."""
    recipe = repr((SUITE, PACKAGES, PYTHON, _package_specs()))
    done = cache / f"{SUITE}-{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not done.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="aarch64-", dir=cache) as name:
            folder = Path(name) / "machine"
            folder.mkdir()
            _fill_folder(folder)
            folder.rename(done)
    root, python = done / "root", done / "python"
    words = {"root": shlex.quote(str(root)), "packages": shlex.quote(str(done / "packages"))}
    python.write_text(SCRIPT.format(qemu=QEMU, **words), encoding="utf-8")
    python.chmod(0o755)
    return Machine(root, python)
