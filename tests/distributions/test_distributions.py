# SPDX-License-Identifier: Apache-2.0
"""A checkout on other releases of Debian: both README commands, with their own compiler and Python.

Packages on these releases: tests/harpctl/dist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGES = ("ca-certificates", "gcc", "git", "iproute2", "libc6-dev", "make", "python3", "python3-venv")
MIRROR = "http://deb.debian.org/debian"
MAKE_TIMEOUT_S = 1800
RUN_TIMEOUT_S = 2400
ENTER = """\
mount --bind "$0" "$0" && mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" &&
mount -t sysfs sys "$0/sys" && mount -t tmpfs run "$0/run" &&
for file in /etc/resolv.conf /etc/hosts; do [ ! -f "$file" ] || cat "$file" >"$0$file"; done
[ -z "$PIP_CERT" ] || { mkdir -p "$0${PIP_CERT%/*}" && cat "$PIP_CERT" >"$0$PIP_CERT"; }
exec chroot "$0" "$@"
"""
CLEAN = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8"}
PASSED_ON = ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "PIP_INDEX_URL", "http_proxy", "https_proxy", "no_proxy")
# All of it ends with its first process: what a time limit kills leaves no process, and no mount in a folder
# that pytest removes later.
APART = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
TAIL_CHARS = 3000
Run = Callable[..., subprocess.CompletedProcess[str]]


def _run_logged(
    argv: Sequence[str | Path], log: Path, limit_s: float, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command apart; what it prints goes to the log too, which stays where it is late."""
    with log.open("w") as output:
        try:
            code = subprocess.run(
                [*APART, *argv], env=env, stdout=output, stderr=output, timeout=limit_s, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            pytest.fail(f"not within {limit_s} s:\n{log.read_text(errors='replace')[-TAIL_CHARS:]}")
    return subprocess.CompletedProcess(argv, code, log.read_text(errors="replace"))


@pytest.fixture
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Run]:
    """Provide a host of a release, with this checkout's last commit and the network of this host."""
    if not request.config.getoption("--distributions"):
        pytest.skip("needs --distributions (fetches releases of Debian)")
    if os.geteuid() or not shutil.which("mmdebstrap"):
        pytest.skip("needs root and mmdebstrap")
    root, name = tmp_path / "root", request.param
    words: list[str | Path] = [
        "mmdebstrap",
        "--variant=apt",
        f"--include={','.join(PACKAGES)}",
        name,
        root,
        MIRROR,
    ]
    made = _run_logged(words, tmp_path / "mmdebstrap.log", MAKE_TIMEOUT_S)
    assert made.returncode == 0, made.stdout[-TAIL_CHARS:]
    subprocess.run(["git", "clone", "--quiet", ROOT, root / "root" / "harp"], check=True)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        passed = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        script = f"cd /root/harp && exec {' '.join(words)}"
        argv: list[str | Path] = ["sh", "-c", ENTER, root, "sh", "-c", script]
        return _run_logged(argv, tmp_path / f"{words[1]}.log", RUN_TIMEOUT_S, {"PIP_CERT": "", **CLEAN, **passed})

    yield run
    shutil.rmtree(root)


@pytest.mark.timeout(2 * RUN_TIMEOUT_S + MAKE_TIMEOUT_S)
@pytest.mark.parametrize("release", ["bookworm", "trixie"], indirect=True)
def test_a_checkout_works(release: Run) -> None:
    demo = release("./harp_setup", "demo")
    assert demo.returncode == 0, demo.stdout[-TAIL_CHARS:]
    rows = [line.split() for line in demo.stdout.splitlines() if line.split()[:1] == ["131072"]]
    assert len(rows) == 2, demo.stdout  # half round trips, and the stream
    tests = release("./harp_setup", "test", "tests/conformance", "tests/harpctl/confs")
    assert tests.returncode == 0, tests.stdout[-TAIL_CHARS:]
    assert " passed" in tests.stdout


@pytest.mark.timeout(RUN_TIMEOUT_S + MAKE_TIMEOUT_S)
@pytest.mark.parametrize("release", ["bullseye"], indirect=True)
def test_an_older_python_is_named(release: Run) -> None:
    demo = release("./harp_setup", "demo")
    assert demo.returncode == 1
    assert "is too old: harpctl needs Python 3.10 or newer" in demo.stdout
