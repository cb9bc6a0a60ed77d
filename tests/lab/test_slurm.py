# SPDX-License-Identifier: Apache-2.0
"""docs/how-to/recipes/slurm.md on two nodes of a Slurm, each in a network namespace of its own.

Where Slurm is not installed (`apt-get install slurmctld slurmd slurm-client munge`) there is nothing to try.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lab.job import poll_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
MISSING = [name for name in PROGRAMS if not shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")]
pytestmark = [
    pytest.mark.lab,
    pytest.mark.slow,
    pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
]

ROOT = Path(__file__).resolve().parents[2]
PROLOG = ROOT / "docs" / "how-to" / "deploy" / "slurm-task-prolog.sh"
CONF = """\
ClusterName=test
SlurmctldHost={host}({address})
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog={folder}/task-prolog
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NODE = "NodeName=node{number} NodeAddr={address} NodeHostname={host} CPUs=1 RealMemory=100\n"


class Cluster:
    """A controller and a node on host 0, a node on host 1."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab = lab
        self.address = lab.address(0)
        self._folder = folder
        own = {name: value for name, value in os.environ.items() if not name.startswith(("HARP_", "NCCL_"))}
        path = f"{own['PATH']}:/usr/sbin"
        self.environment = {
            **own,
            "PATH": path,
            "SLURM_CONF": f"{folder}/slurm.conf",
            "PYTHONPATH": str(ROOT),
        }

    def configure(self) -> None:
        """Write what the daemons read."""
        host = socket.gethostname()
        conf = CONF.format(host=host, address=self.address, folder=self._folder)
        for number in range(2):
            conf += NODE.format(number=number, address=self._lab.address(number), host=host)
        (self._folder / "slurm.conf").write_text(conf)
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (self._folder / "munge.key").write_bytes(os.urandom(128))
        (self._folder / "munge.key").chmod(0o600)
        for name in ("state", "node0", "node1", "harp", "harp/lib"):
            (self._folder / name).mkdir()
        prolog = self._folder / "task-prolog"
        prolog.write_text(f"#!/bin/sh\nHARPCTL_FOLDER={self._folder}/harp exec sh {PROLOG}\n")
        prolog.chmod(0o755)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the daemons until both nodes are there; then end them."""
        munge = [f"--{word}-file={self._folder}/munge.{word}" for word in ("key", "pid", "log", "seed")]
        # A node wants a cgroup file system to be mounted, which it does not use here.
        node = "mount -t tmpfs none /sys/fs/cgroup && exec slurmd -D -N node{}"
        daemons = [
            ["munged", "--foreground", "--force", f"--socket={self._folder}/munge.socket", *munge],
            self._lab.command(0, ["slurmctld", "-D", "-c"]),
            *(self._lab.command(number, ["sh", "-c", node.format(number)]) for number in range(2)),
        ]
        with contextlib.ExitStack() as stack:
            for argv in daemons:
                log = stack.enter_context((self._folder / "daemons.log").open("ab"))
                daemon = stack.enter_context(subprocess.Popen(argv, env=self.environment, stdout=log, stderr=log))
                stack.callback(daemon.terminate)
                if argv[0] == "munged":
                    poll_until("munged listens", (self._folder / "munge.socket").exists)
            poll_until(
                "both nodes are idle", lambda: self.say(["sinfo", "-h", "-N", "-o", "%T"]) == "idle\nidle\n"
            )
            yield

    def say(self, argv: Sequence[str], **variables: str) -> str:
        """Run a command on host 0 and return what it says; "" where it fails."""
        done = subprocess.run(
            self._lab.command(0, argv),
            env={**self.environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=120,
        )
        return done.stdout if done.returncode == 0 else ""


@pytest.fixture
def cluster(make_lab: Callable[[LabSpec], Lab], tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(make_lab(LabSpec()), tmp_path)
    made.configure()
    with made.running():
        yield made


def test_two_nodes(cluster: Cluster, tmp_path: Path, plugin_file: Path) -> None:
    """Tasks get the variable of the script, or that of the prolog; a job of harp-run spans both nodes."""
    show = ["srun", "--quiet", "-N2", "sh", "-c", "echo $NCCL_NET_PLUGIN"]
    assert cluster.say(show) == "\n\n"
    path = cluster.say([sys.executable, "-m", "harp_net"]).strip()
    assert path == str(plugin_file)
    assert cluster.say(show, NCCL_NET_PLUGIN=path) == f"{path}\n{path}\n"

    perf = (
        f"exec {plugin_file.parent}/harp-perf --plugin $NCCL_NET_PLUGIN --mode pingpong --sizes 64K"
        f" --time 1 --nranks 2 --rank $SLURM_PROCID --rendezvous {cluster.address}:20501"
    )
    said = cluster.say(["srun", "--quiet", "-N2", sys.executable, "-m", "harp_net.run", "sh", "-c", perf])
    assert "# wrong: 0 OK" in said
    used = re.findall(r"^harp-run: 1 process of this host used HARP: .*, over eni0$", said, re.MULTILINE)
    assert len(used) == 2, said

    library = tmp_path / "harp" / "lib" / "libnccl-net-harp.so"
    library.symlink_to(plugin_file)
    (tmp_path / "harp" / "nccl.conf").write_text(f"NCCL_NET_PLUGIN={library}\n")
    assert cluster.say(show) == f"{library}\n{library}\n"
    assert cluster.say(show, NCCL_NET_PLUGIN="none") == "none\nnone\n"
