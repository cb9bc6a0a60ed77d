# SPDX-License-Identifier: Apache-2.0
"""Ranks with exactly the rights of the pods in docs/how-to/deploy: they connect, and every byte is right."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harplab.lab.commands import Command
from harplab.lab.lab import Lab, run_command
from harplab.lab.privileges import DEFAULT_BUFFER_BYTES, unprivileged_words
from harplab.lab.spec import LabSpec
from tests.lab.job import ALL_SIZES, Job

pytestmark = pytest.mark.lab
MakeLab = Callable[[LabSpec], Lab]

USER = 65534  # confined.c's
BUFFER = f"{DEFAULT_BUFFER_BYTES >> 10} KiB socket buffer"
WITH_TCP = re.compile(r"connected to .* path\(s\) of datagrams, [1-9]\d* of TCP")


class Rights:
    """The rights of a pod without privileges; its files lie where any user may read them."""

    def __init__(self, plugin: Path, folder: Path, confined: Path) -> None:
        folder.chmod(0o755)
        self.plugin = folder / plugin.name
        for file in (plugin, plugin.parent / "harp-perf"):
            shutil.copy(file, folder / file.name)
        (preload,) = [word for word in unprivileged_words() if word.startswith("LD_PRELOAD=")]
        buffers = folder / "buffers.so"
        shutil.copy(preload.partition("=")[2], buffers)
        buffers.chmod(0o755)
        self.words = (str(confined), "env", f"LD_PRELOAD={buffers}")


@pytest.fixture
def rights(plugin_file: Path, compile_c: Callable[..., Path]) -> Iterator[Rights]:
    with tempfile.TemporaryDirectory() as folder:
        yield Rights(plugin_file, Path(folder), compile_c("confined"))


def test_process_has_the_rights_of_the_pod(make_lab: MakeLab, rights: Rights) -> None:
    lab = make_lab(LabSpec())
    output = run_command(
        Command(tuple(lab.command(0, [*rights.words, "cat", "/proc/self/status", "/proc/self/limits"])))
    )
    found = {line.partition(":")[0]: line.partition(":")[2].split() for line in output.splitlines()}
    for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert found[name] == ["0" * 16]
    assert found["Uid"] == found["Gid"] == [str(USER)] * 4
    assert found["Groups"] == []
    assert (found["NoNewPrivs"], found["Seccomp"]) == (["1"], ["2"])
    limits = [line.split() for line in output.splitlines() if line.startswith("Max locked memory")]
    assert limits == [["Max", "locked", "memory", "65536", "65536", "bytes"]]
    refused = [*rights.words, "unshare", "--user", "true"]
    denied = run_command(Command(("sh", "-c", f"{' '.join(lab.command(0, refused))} 2>&1 || true")))
    assert "Operation not permitted" in denied


@pytest.mark.parametrize(("carrier", "engine"), [("auto", "inline"), ("udp", "thread")])
def test_all_sizes_arrive(make_lab: MakeLab, rights: Rights, carrier: str, engine: str) -> None:
    lab = make_lab(LabSpec(enis=2))
    words = ("--iters", "20", "--warmup", "2", "--connections", "2")
    env = {"HARP_DRIVER": carrier, "HARP_ENGINE": engine}
    with Job(
        lab, rights.plugin, mode="bidir", sizes=ALL_SIZES, words=words, env=env, start_by=rights.words
    ) as job:
        job.finish()
        assert all(job.driver_mode(rank) == "udp gso+gro" for rank in range(2))
        assert all(bool(WITH_TCP.search(job.log(rank))) is (carrier == "auto") for rank in range(2))
        assert all(BUFFER in job.log(rank) for rank in range(2))
        counted = job.statistics()
    assert counted["messages_sent"] == counted["messages_received"] > 0
