# SPDX-License-Identifier: Apache-2.0
"""The ways in: launcher, TI-ACC's names, mpirun's variables; what is refused; how processes end."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lightcc.boot import take_over_mpi
from lightcc.notices import LightccError
from tests.lightcc.conftest import ROOT, environment, free_port

TUTORIAL = ROOT / "docs" / "how-to" / "lightcc.md"
SHOW = """\
import os, sys, torch, lightcc
from torch.nn.parallel import DistributedDataParallel
torch.distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
for step in range(3):
    model(torch.ones(1, 64)).sum().backward()
stats = lightcc.stats(model)
line = f"{__name__} {stats.get('steps')} {stats.get('hops')} {os.environ['RANK']} {sys.argv[1:]}\\n"
os.write(1, line.encode())  # one call: the ranks share a pipe
"""
ALL_RANKS = {"LIGHT_TOPK_ALLREDUCE": "1", "LIGHT_INTRA_SIZE": "1"}


def python(*words: str | Path, **own: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, *map(str, words)]
    return subprocess.run(
        argv, cwd=ROOT, env=environment(**own), capture_output=True, text=True, check=False, timeout=500
    )


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


@pytest.mark.parametrize(
    "entry", ["lightcc.launch", "lightcc.boot", "tiacc_training.torch.distributed.launch"]
)
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
def test_a_job_that_cannot_be(words: tuple[str, ...], own: dict[str, str], error: str, script: Path) -> None:
    done = python("-m", "lightcc.launch", *words, script, **own)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"lightcc.launch: {error}\n"


# ---- jobs ----


@pytest.mark.usefixtures("has_torch")
def test_ti_accs_launcher(script: Path) -> None:
    """It passes the local rank; without fusion both parameters have a bucket of their own from step 2 on."""
    words = ("--nproc-per-node=2", f"--master-port={free_port()}", "show", "--flag", "-m")
    entry = "tiacc_training.torch.distributed.launch"
    own = {**ALL_RANKS, "PYTHONPATH": f"{script.parent}:{ROOT}", "TIACC_TRAINING_FUSION_THRESHOLD": "0"}
    done = python("-m", entry, words[0], words[1], "-m", *words[2:], **own)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"__main__ 3 5 {rank} ['--local-rank={rank}', '--flag', '-m']" for rank in range(2)
    ]


@pytest.mark.usefixtures("has_torch")
def test_mpiruns_variables(script: Path) -> None:
    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    own = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    done = python("-m", "lightcc.boot", script, "argument", **mpi, **own)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "__main__ None None 0 ['argument']\n"


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
    """It ends with what a host sent, and what it learned."""
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


@pytest.mark.usefixtures("has_torch")
def test_processes_end(tmp_path: Path) -> None:
    """Twelve processes, with destroy_process_group() and without it."""
    done = python("-m", "tests.lightcc.exits", tmp_path, "ends", "6")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["0 0"] * 6, done.stderr


@pytest.mark.usefixtures("has_torch")
@pytest.mark.parametrize("own_signal", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_is_gone_ends_the_other(tmp_path: Path, own_signal: signal.Signals) -> None:
    done = python("-m", "tests.lightcc.exits", tmp_path, str(int(own_signal)))
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 -9\n", done.stderr
    assert "Error" in done.stderr
