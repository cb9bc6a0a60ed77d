# SPDX-License-Identifier: Apache-2.0
"""harp-perf under Open MPI's mpirun: on one host, and over namespaces that stand for hosts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bench.conftest import Ended, Perf, clean_env, free_port

FEW = ("--sizes", "8,1000,70000", "--iters", "60", "--json", "-")
LIMIT_S = 120
MPIRUN = shutil.which("mpirun")
pytestmark = pytest.mark.skipif(not MPIRUN, reason="no mpirun (Debian: openmpi-bin)")


def run_mpirun(perf: Perf, *args: str, prefix: tuple[str, ...] = (), env: dict[str, str] | None = None) -> Ended:
    """Run Open MPI's mpirun; `args` ends with harp-perf's own."""
    version = subprocess.run([str(MPIRUN), "--version"], capture_output=True, text=True, check=False).stdout
    if "Open MPI" not in version and "OpenRTE" not in version:
        pytest.skip("mpirun is not Open MPI's")
    options = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    split = args.index("--")
    argv = [*prefix, str(MPIRUN), *options, *args[:split], *perf.argv(*args[split + 1 :])]
    done = subprocess.run(
        argv,
        env=clean_env() | (env or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("ranks", ["2", "3"])
def test_one_host_needs_no_rendezvous(perf: Perf, ranks: str) -> None:
    ended = run_mpirun(perf, "--oversubscribe", "-np", ranks, "--", "--mode", "ring", *FEW)
    assert ended.code == 0, ended.err
    report = ended.json()
    assert report["nranks"] == int(ranks)
    assert [row["wrong"] for row in report["results"]] == [0, 0, 0]


def test_rendezvous_on_the_command_line(perf: Perf) -> None:
    meet = f"127.0.0.1:{free_port()}"
    ended = run_mpirun(perf, "--oversubscribe", "-np", "2", "--", "--mode", "bidir", "--rendezvous", meet, *FEW)
    assert ended.code == 0, ended.err


def test_failure_ends_the_job(perf: Perf) -> None:
    env = {"FAKENET_FAIL": "20"}
    ended = run_mpirun(perf, "--oversubscribe", "-np", "2", "--", "--mode", "ring", *FEW, env=env)
    assert ended.code != 0
    assert "told to fail in isend" in ended.err


# ---- two hosts that are namespaces; mpirun runs in a third ----

HOSTS = ("gpu1", "gpu2")
AGENT = """#!/bin/sh
# What mpirun calls in the place of ssh: agent HOST COMMAND...
host=$1
shift
exec ip netns exec "{prefix}$host" unshare --uts sh -c "hostname $host; $*"
"""


def run_ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True)


@pytest.fixture
def prefix() -> Iterator[str]:
    """Build login, gpu1 and gpu2, joined by a bridge in login."""
    if os.geteuid() != 0 or not shutil.which("ip"):
        pytest.skip("namespaces need root and ip(8)")
    name = f"hperf{os.getpid()}-"
    spaces = [name + host for host in ("login", *HOSTS)]
    made = []
    try:
        for space in spaces:
            try:
                run_ip("netns", "add", space)
            except subprocess.CalledProcessError as error:
                pytest.skip(f"namespaces can't be made here: {error.stderr.decode().strip()}")
            made.append(space)
            run_ip("-n", space, "link", "set", "lo", "up")
        run_ip("-n", spaces[0], "link", "add", "br0", "type", "bridge")
        run_ip("-n", spaces[0], "addr", "add", "10.83.7.254/24", "dev", "br0")
        run_ip("-n", spaces[0], "link", "set", "br0", "up")
        for number, space in enumerate(spaces[1:], 1):
            peer = ("peer", "name", "eth0", "netns", space)
            run_ip("-n", spaces[0], "link", "add", f"port{number}", "type", "veth", *peer)
            run_ip("-n", spaces[0], "link", "set", f"port{number}", "master", "br0", "up")
            run_ip("-n", space, "addr", "add", f"10.83.7.{number}/24", "dev", "eth0")
            run_ip("-n", space, "link", "set", "eth0", "up")
        yield name
    finally:
        for space in made:
            subprocess.run(["ip", "netns", "del", space], check=False)


@pytest.fixture
def run_on_hosts(perf: Perf, prefix: str, tmp_path: Path) -> Callable[..., Ended]:
    """Run mpirun in login, for a rank on each of the hosts."""
    agent = tmp_path / "agent"
    agent.write_text(AGENT.format(prefix=prefix))
    agent.chmod(0o755)
    hosts = ("-np", "2", "-H", ",".join(HOSTS), "--mca", "plm_rsh_agent", str(agent))

    def run(*words: str) -> Ended:
        return run_mpirun(perf, *hosts, *words, prefix=("ip", "netns", "exec", prefix + "login"))

    return run


@pytest.mark.lab
def test_two_hosts(run_on_hosts: Callable[..., Ended]) -> None:
    ended = run_on_hosts(
        *("--mca", "btl", "self,tcp", "-x", "FAKENET_IFNAME=eth0"),
        *("--", "--mode", "bidir", "--rendezvous", "10.83.7.1:29500", *FEW),
    )
    assert ended.code == 0, ended.err
    report = ended.json()
    assert report["nranks"] == 2
    assert [row["wrong"] for row in report["results"]] == [0, 0, 0]


@pytest.mark.lab
def test_two_hosts_without_rendezvous_are_refused_with_a_remedy(run_on_hosts: Callable[..., Ended]) -> None:
    ended = run_on_hosts("--", "--mode", "bidir", *FEW)
    assert ended.code != 0
    assert "Give --rendezvous HOST:PORT" in ended.err
