# SPDX-License-Identifier: Apache-2.0
"""The ways in: launcher, TI-ACC's names, mpirun's variables; what is refused; how processes end."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightcc import launch
from lightcc.boot import take_over_mpi
from lightcc.notices import LightccError
from tests.lightcc.conftest import ROOT, Case, environment, free_port

TUTORIAL = ROOT / "docs" / "how-to" / "lightcc.md"
SHOW = """\
import os, sys, torch, lightcc, tiacc_training.torch
tiacc_training.torch.init_tiacc_training()  # again, with the same settings
try:
    lightcc.init(lightcc.Settings(streams=9))
except lightcc.LightccError as error:
    assert str(error) == "init() was called before, with other settings"
else:
    raise AssertionError("other settings are taken")
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for step in range(3):
    model(torch.ones(1, 64)).sum().backward()
steps, rank, bucket = lightcc.stats(model).get("steps"), os.environ["RANK"], model.bucket_bytes_cap
line = f"{__name__} {rank} {steps} {bucket} {sys.argv[1:]}\\n"
os.write(1, line.encode())  # one call: the ranks share a pipe
"""
ALL_RANKS = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "1"}


MPIRUN = shutil.which("mpirun")


def run(*words: str | Path, **own: str) -> subprocess.CompletedProcess[str]:
    argv = [*map(str, words)]
    return subprocess.run(
        argv, cwd=ROOT, env=environment(**own), capture_output=True, text=True, check=False, timeout=500
    )


def python(*words: str | Path, **own: str) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, *words, **own)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "show.py"
    file.write_text(SHOW, encoding="utf-8")
    return file


# ---- what is refused before any worker starts ----


@pytest.mark.parametrize(
    ("entry", "own", "words"),
    [
        ("lightcc.launch", {"LIGHT_TOPK_RATIO": "2"}, "LIGHT_TOPK_RATIO='2': must be above 0 and at most 1"),
        ("lightcc.boot", {"LIGHT_2D": "1"}, "LIGHT_2D: there is no such variable; lightcc knows "),
        (
            "lightcc.launch",
            {"LIGHT_INTER_DTYPE": "int8"},
            "LIGHT_INTER_DTYPE='int8': needs LIGHT_2D_ALLREDUCE=1",
        ),
        (
            "lightcc.boot",
            {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "4", "WORLD_SIZE": "6"},
            "LIGHT_INTRA_SIZE=4: does not divide the 6 ranks of the job",
        ),
        ("lightcc.boot", {}, "no/such/script.py: there is no such file"),
        (
            "lightcc.boot",
            {"OMPI_COMM_WORLD_RANK": "0"},
            "MASTER_ADDR is not set: give mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=PORT",
        ),
    ],
)
def test_bad_settings(entry: str, own: dict[str, str], words: str) -> None:
    done = python("-m", entry, "no/such/script.py", **own)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{entry}: {words}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("entry", ["lightcc.launch", "lightcc.boot", "tiacc_training.torch.distributed.launch"])
@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "raise ImportError('none here')",
            r"PyTorch cannot be imported \(none here\): install torch 2\.4 or newer",
        ),
        ("__version__ = '2.3.1+cu121'", r"torch 2\.3\.1\+cu121 is too old: lightcc needs 2\.4 or newer"),
    ],
)
def test_no_torch_or_an_old_one(tmp_path: Path, entry: str, code: str, words: str) -> None:
    (tmp_path / "torch.py").write_text(code, encoding="utf-8")
    done = python("-m", entry, "script.py", PYTHONPATH=f"{tmp_path}:{ROOT}")
    assert done.returncode == 2
    assert re.match(rf"lightcc\.(launch|boot): {words}", done.stderr)
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("has_torch")
@pytest.mark.parametrize(
    ("words", "own", "error"),
    [
        (
            ("--nnodes", "2", "--nproc-per-node", "3"),
            {"LIGHT_2D_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "4"},
            "LIGHT_INTRA_SIZE=4: does not divide the 6 ranks of the job",
        ),
        (("--no-python",), {}, "--no-python: only a script that Python runs can be attached"),
    ],
)
def test_a_job_that_cannot_be(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    own: dict[str, str],
    error: str,
) -> None:
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit, match="2"):
        launch.main([*words, "script.py"])
    assert capfd.readouterr() == ("", f"lightcc.launch: {error}\n")


# ---- jobs ----


@pytest.mark.usefixtures("has_torch")
def test_ti_accs_launcher(script: Path) -> None:
    """The launcher passes the local rank, and TI-ACC's variable sets the size of buckets."""
    words = ("--nproc-per-node=1", f"--master-port={free_port()}", "-m", "show", "--flag", "-m")
    own = {**ALL_RANKS, "PYTHONPATH": f"{script.parent}:{ROOT}", "TIACC_TRAINING_FUSION_THRESHOLD": "4096"}
    done = python("-m", "tiacc_training.torch.distributed.launch", *words, **own)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ 0 None 4096 ['--local-rank=0', '--flag', '-m']\n"


@pytest.mark.usefixtures("has_torch")
@pytest.mark.skipif(not MPIRUN, reason="no mpirun (Debian: openmpi-bin)")
def test_mpirun(script: Path) -> None:
    """The command of the page runs a script by mpirun."""
    (line,) = re.findall(r"`mpirun (-x .*) python -m lightcc\.boot train\.py`", TUTORIAL.read_text())
    given = line.replace("HOST", "127.0.0.1").replace("29500", str(free_port())).split()
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    words = ("--oversubscribe", "-np", "2", *given, sys.executable, "-m", "lightcc.boot", script, "argument")
    done = run(str(MPIRUN), *root, *words, **ALL_RANKS)
    assert done.returncode == 0, done.stderr
    lines = [f"__main__ {rank} 3 {25 << 20} ['argument']" for rank in range(2)]
    assert sorted(done.stdout.splitlines()) == lines


@pytest.mark.usefixtures("has_torch")
def test_ranks_that_disagree(script: Path) -> None:
    """Each rank ends with the sentence, when the script makes its first DDP."""
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "lightcc.boot", str(script)],
            cwd=ROOT,
            env=environment(**ALL_RANKS, **meeting, RANK=str(rank), LIGHT_TOPK_RATIO=ratio),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, ratio in enumerate(("0.01", "0.02"))
    ]
    wanted = "LIGHT_TOPK_RATIO is '0.02' on rank 1 and '0.01' on rank 0: it has to be the same on all ranks"
    for rank in ranks:
        assert f"lightcc.boot: {wanted}\n" in rank.communicate(timeout=500)[1]
        assert rank.returncode == 2


def test_mpiruns_variables_yield_to_torchs() -> None:
    names = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")
    mpi = {f"OMPI_COMM_WORLD_{name}": str(number) for number, name in enumerate(names, 3)}
    got = {**mpi, "MASTER_ADDR": "a", "MASTER_PORT": "1", "RANK": "9"}
    take_over_mpi(got)
    assert [got[name] for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")] == list("9456")
    with pytest.raises(LightccError, match="MASTER_PORT is not set"):
        take_over_mpi({**mpi, "MASTER_ADDR": "a"})
    plain = {"PATH": "/bin"}
    take_over_mpi(plain)
    assert plain == {"PATH": "/bin"}


@pytest.mark.usefixtures("has_torch")
def test_the_example_of_the_page() -> None:
    """The example ends with what a host sent, and what it learned."""
    (line,) = re.findall(
        r"^    (LIGHT_.*python -m lightcc\.launch .*digits\.py)$", TUTORIAL.read_text(), re.MULTILINE
    )
    variables, words = line.split(" python ")
    own = dict(word.split("=") for word in variables.split())
    port = f"--master-port={free_port()}"
    done = python("-m", "lightcc.launch", port, *words.split()[2:], "--steps", "60", **own)
    assert done.returncode == 0, done.stderr
    learned = re.fullmatch(r"([\d.]+) % of the test images recognized after 60 steps\n", done.stdout)
    assert learned, done.stdout
    assert float(learned[1]) > 60
    report = re.search(
        r"^lightcc: 60 steps; a host sent ([\d.]+) MB a step, ([\d.]+) of a ring's", done.stderr, re.MULTILINE
    )
    assert report, done.stderr
    assert float(report[2]) < 0.25
    assert "Warning" not in done.stderr


# ---- ends ----


def test_processes_end(run_case: Case, tmp_path: Path) -> None:
    """Processes end with destroy_process_group() and without it; so does a rank whose peer is gone."""
    gone = [int(each) for each in (signal.SIGKILL, signal.SIGSTOP)]
    (got,) = run_case("exits", folder=str(tmp_path), signals=[*gone, *[0] * 4]).results
    assert got["statuses"] == [[1, -9]] * 2 + [[0, 0]] * 4, got["stderr"]
    assert got["stderr"].count("Error: ") >= 2
