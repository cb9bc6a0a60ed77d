# SPDX-License-Identifier: Apache-2.0
"""The package for the environment of a job: where the library is, and what harp-run says and does."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import harp_net
import harp_net_torch
from harp_net.moved import Moved, StatisticsFile
from harp_net.run import bytes_text, find_obstacle, statistics_directories, summary_line

ROOT = Path(__file__).resolve().parents[2]
RUN = (sys.executable, "-m", "harp_net.run")
PERF = ("--mode", "pingpong", "--sizes", "64K", "--iters", "4000")


def make_environment(**own: str) -> dict[str, str]:
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HARP_", "NCCL_"))}
    return {**clean, "PYTHONPATH": str(ROOT), **own}


def harp_run(*words: str | Path, **own: str) -> subprocess.CompletedProcess[str]:
    argv = [*RUN, *(str(word) for word in words)]
    return subprocess.run(
        argv, env=make_environment(**own), capture_output=True, text=True, check=False, timeout=120
    )


# ---- the library ----


def test_the_library_is_found(plugin_file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "harp_net"], env=make_environment(), capture_output=True, text=True, check=True
    )
    assert Path(done.stdout.rstrip("\n")) == plugin_file


def test_a_library_that_is_missing_or_does_not_load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(harp_net, "INSTALLED", tmp_path / "libnccl-net-harp.so")
    monkeypatch.setattr(harp_net, "BUILT", tmp_path / "none")
    with pytest.raises(harp_net.UnusableError, match=r"is missing; install the package anew: pip install"):
        harp_net.library()
    (tmp_path / "libnccl-net-harp.so").write_bytes(b"\x7fELF of another machine")
    with pytest.raises(harp_net.UnusableError, match=r"cannot be loaded here .*glibc 2\.27 or newer"):
        harp_net.library()


def test_pytorchs_own_search_path_leads_to_it(tmp_path: Path) -> None:
    """A chain as PyTorch's wheels have it: libtorch_cuda.so has an RPATH, libnccl.so.2 none, and opens us."""
    torch, nccl = tmp_path / "torch" / "lib", tmp_path / "nvidia" / "nccl" / "lib"
    torch.mkdir(parents=True)
    nccl.mkdir(parents=True)

    def build(out: Path, code: str, *words: str) -> None:
        source = out.with_suffix(".c")
        source.write_text(code, encoding="utf-8")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(out), str(source), *words], check=True)

    build(nccl / "libnccl-net-harp.so", "int harp_is_here = 1;")
    opens = 'void *find(void) { return dlopen("libnccl-net-harp.so", RTLD_NOW); }'
    build(nccl / "libnccl.so.2", f"#include <dlfcn.h>\n{opens}", "-ldl")
    rpath = "-Wl,--disable-new-dtags,-rpath,$ORIGIN/../../nvidia/nccl/lib"
    calls = "void *find(void); int is_found(void) { return find() != 0; }"
    build(torch / "libtorch_cuda.so", calls, str(nccl / "libnccl.so.2"), rpath)
    code = "import ctypes, sys; sys.exit(1 - ctypes.CDLL(sys.argv[1]).is_found())"
    subprocess.run([sys.executable, "-c", code, str(torch / "libtorch_cuda.so")], check=True)
    (nccl / "libnccl-net-harp.so").unlink()
    done = subprocess.run([sys.executable, "-c", code, str(torch / "libtorch_cuda.so")], check=False)
    assert done.returncode == 1


# ---- harp-run ----


@pytest.mark.parametrize("statistics", ["default", "named", "off"])
def test_it_says_what_was_moved(plugin_file: Path, tmp_path: Path, statistics: str) -> None:
    own = {"HARP_IFNAME": "=lo"}
    if statistics != "default":
        own["HARP_STATS_DIR"] = "off" if statistics == "off" else str(tmp_path)
    done = harp_run(plugin_file.parent / "harp-perf", "--plugin", plugin_file, *PERF, **own)
    assert done.returncode == 0, done.stderr
    if statistics == "off":
        assert "harp-run:" not in done.stderr
        return
    line = re.search(
        r"^harp-run: 2 processes of this host used HARP: ([\d.]+) MB sent, ([\d.]+) MB received, "
        r"peers on \S+, over lo$",
        done.stderr,
        re.MULTILINE,
    )
    assert line, done.stderr
    least_mb = 2 * 4000 * 65536 / 1e6
    assert least_mb <= float(line[1]) < 1.2 * least_mb
    assert line[1] == line[2]


def test_a_job_beside_is_not_counted(plugin_file: Path) -> None:
    perf = [str(plugin_file.parent / "harp-perf"), "--plugin", str(plugin_file), *PERF]
    beside = subprocess.Popen(
        [*perf[:3], "--mode", "pingpong", "--sizes", "8", "--time", "3"],
        env=make_environment(HARP_IFNAME="=lo"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    done = harp_run(*perf, HARP_IFNAME="=lo")
    beside.kill()
    beside.wait()
    assert "harp-run: 2 processes of this host used HARP" in done.stderr


def test_files_of_processes_that_were_killed_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of them would take longer than a short job does."""
    opened = []
    monkeypatch.setattr(StatisticsFile, "__init__", lambda _self, path: opened.append(path.name))
    for number in range(3):
        (tmp_path / f"{2**30 + number}-17.stats").write_bytes(b"HARPSTAT")
    (tmp_path / f"{os.getpid()}-18.stats").write_bytes(b"HARPSTAT")
    moved = Moved([tmp_path], b"PATH=")
    for path in tmp_path.iterdir():
        moved._open_file(path)
    assert opened == [f"{os.getpid()}-18.stats"]


def test_a_job_without_nccl() -> None:
    done = harp_run("true")
    assert done.returncode == 0
    assert done.stderr.startswith("harp-run: HARP was not used: no process of this host had it for 0.1 s")


@pytest.mark.parametrize("library", ["", "libtorch_cuda.so", "libtorch_hip.so"])
def test_a_pytorch_without_nccl_is_named(tmp_path: Path, library: str) -> None:
    nothing = Moved([], b"")
    assert summary_line(nothing, tmp_path / "none").endswith("with NCCL_DEBUG=INFO NCCL says why")
    (tmp_path / "lib").mkdir()
    for name in filter(None, ("libtorch.so", library)):
        (tmp_path / "lib" / name).touch()
    without = f"the PyTorch in {tmp_path}, if the job uses that, is built without CUDA and ROCm and has no NCCL"
    assert (without in summary_line(nothing, tmp_path)) == (not library)


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        (
            {"HARP_IFNAME": "nosuch0"},
            "HARP_IFNAME: no interface of this network namespace begins with 'nosuch0'",
        ),
        (
            {"HARP_IFNAME": "=lo", "NCCL_NET_PLUGIN": "ofi"},
            "NCCL_NET_PLUGIN=ofi names another plugin: unset it",
        ),
    ],
)
def test_a_name_that_matches_nothing(plugin_file: Path, variables: dict[str, str], text: str) -> None:
    done = harp_run(plugin_file.parent / "harp-perf", "--plugin", plugin_file, *PERF, **variables)
    assert done.returncode != 0
    assert text in done.stderr + done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a network namespace")
def test_no_interface_fits(plugin_file: Path) -> None:
    perf = [str(plugin_file.parent / "harp-perf"), "--plugin", str(plugin_file), *PERF]
    script = 'ip link set lo up && exec "$@"'
    done = subprocess.run(
        ["unshare", "--net", "sh", "-c", script, "sh", *RUN, *perf],
        env=make_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "no interface fits of this network namespace's: lo (loopback); name those to use with HARP_IFNAME" in (
        done.stderr + done.stdout
    )


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("sh", "-c", "exit 7"), 7, "HARP was not used"),
        (("sh", "-c", "kill -9 $$"), 137, "HARP was not used"),
        (("/no/such/command",), 127, "there is no command '/no/such/command'"),
        ((str(ROOT / "README.md"),), 126, "cannot be run: Permission denied"),
        ((), 2, "Usage: harp-run COMMAND"),
        (("--", "sh", "-c", "exit 3"), 3, "HARP was not used"),
    ],
)
def test_its_status_is_the_commands(words: tuple[str, ...], status: int, text: str) -> None:
    done = harp_run(*words)
    assert done.returncode == status
    assert text in done.stderr


def test_signals_are_passed_on() -> None:
    code = "import signal as s, sys; s.signal(15, lambda *_: sys.exit(9)); print('up', flush=True); s.pause()"
    with subprocess.Popen(
        [*RUN, sys.executable, "-c", code],
        env=make_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as job:
        assert job.stdout
        assert job.stdout.readline() == b"up\n"
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 9


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({}, ""),
        ({"NCCL_NET": "harp", "NCCL_NET_PLUGIN": "harp"}, ""),
        ({"NCCL_NET_PLUGIN": "aws-ofi"}, "NCCL_NET_PLUGIN=aws-ofi names another plugin: unset it"),
        ({"NCCL_NET": "Socket"}, "NCCL_NET=Socket names another network: unset it"),
        ({"HARP_DISABLE": "1"}, "HARP_DISABLE=1 turns HARP off: unset it"),
    ],
)
def test_a_job_that_would_not_use_it_is_not_begun(variables: dict[str, str], text: str) -> None:
    assert find_obstacle(variables, Path("/lib/libnccl-net-harp.so")).startswith(text)
    assert bool(find_obstacle(variables, Path("/lib/libnccl-net-harp.so"))) == bool(text)
    done = harp_run("true", **variables)
    assert done.returncode == (2 if text else 0)
    assert text in done.stderr


def test_directories_of_statistics(tmp_path: Path) -> None:
    assert statistics_directories({"HARP_STATS_DIR": "off"}) == []
    assert statistics_directories({"HARP_STATS_DIR": "/x"}) == [Path("/x")]
    found = statistics_directories({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert found[-1] == tmp_path / "harp"
    assert tmp_path / "harp" not in statistics_directories({"XDG_RUNTIME_DIR": "relative"})


def test_amounts() -> None:
    assert [bytes_text(count) for count in (0, 999, 1000, 12_345_678_901, 5 * 10**15)] == [
        "0 bytes",
        "999 bytes",
        "1.0 kB",
        "12.3 GB",
        "5000.0 TB",
    ]


# ---- torch ----


def test_what_torch_calls(monkeypatch: pytest.MonkeyPatch, plugin_file: Path) -> None:
    for name in ("HARP_DISABLE", "NCCL_NET_PLUGIN"):
        monkeypatch.delenv(name, raising=False)
    harp_net_torch.use_harp()
    assert os.environ["NCCL_NET_PLUGIN"] == str(plugin_file)
    monkeypatch.setenv("NCCL_NET_PLUGIN", "other")
    harp_net_torch.use_harp()
    assert os.environ["NCCL_NET_PLUGIN"] == "other"
    monkeypatch.delenv("NCCL_NET_PLUGIN")
    monkeypatch.setenv("HARP_DISABLE", "1")
    harp_net_torch.use_harp()
    assert "NCCL_NET_PLUGIN" not in os.environ
    monkeypatch.delenv("HARP_DISABLE")
    monkeypatch.setattr(harp_net, "library", lambda: 1 // 0)
    harp_net_torch.use_harp()  # and does not raise
    assert "NCCL_NET_PLUGIN" not in os.environ
