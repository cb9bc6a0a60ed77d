# SPDX-License-Identifier: Apache-2.0
"""Tries the base of the GPU tests without a GPU: environments, logs, processes, finding a Python."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from harpctl.errors import HarpError
from tests.gpu import beside_socket, job

LOG = """\
host:1:9 [0] NCCL INFO NET/Plugin: Loaded net plugin HARP (v11)
host:1:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/HARP/0
host:1:9 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/HARP/0
"""


def write_python(folder: Path, name: str, text: str) -> str:
    """Make an executable that stands for a Python."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return str(file)


def test_ranks_believe_in_hosts_of_their_own(tmp_path: Path) -> None:
    base = {"PATH": "/bin", "NCCL_ALGO": "Tree", "HARP_DRIVER": "xdp"}
    net = job.harp_environment(Path("/p/libnccl-net.so"), "eth1")
    first, second = (job.rank_environment(rank, base, net, "eth1", tmp_path) for rank in range(2))
    assert first["NCCL_HOSTID"] != second["NCCL_HOSTID"]
    assert first["NCCL_DEBUG_FILE"] != second["NCCL_DEBUG_FILE"]
    assert {name for name in first if first[name] != second[name]} == {
        "RANK",
        "NCCL_HOSTID",
        "NCCL_DEBUG_FILE",
    }
    assert "NCCL_ALGO" not in first
    assert {name: first[name] for name in first if name.startswith("HARP_")} == {"HARP_IFNAME": "=eth1"}
    assert first["NCCL_NET"] == "HARP"
    assert first["NCCL_NET_PLUGIN"] == "/p/libnccl-net.so"
    assert first["PATH"] == "/bin"


def test_routes() -> None:
    assert job.routes_of_channels(LOG) == {"HARP"}
    assert job.routes_of_channels(LOG.replace("NET/HARP/0", "NET/Socket/0", 1)) == {"HARP", "Socket"}
    assert job.routes_of_channels("Channel 00 : 0[0] -> 1[0] via P2P/IPC") == {"P2P"}
    assert job.routes_of_channels("nothing here") == set()


def test_result() -> None:
    assert job.read_result('noise\nresult: {"wrong": {"8": 0}}\nmore\n') == {"wrong": {"8": 0}}
    assert job.read_result("Traceback: result\n") == {}


def test_candidates(tmp_path: Path) -> None:
    python = write_python(tmp_path, "python3", "true")
    found = job.candidate_pythons({"PATH": f"{tmp_path}:{tmp_path}::/nowhere"})
    assert found[1:] == [python]
    assert job.candidate_pythons({"PATH": str(tmp_path), job.PYTHON_VARIABLE: "/some/python"}) == ["/some/python"]


def test_the_first_that_is_ready(tmp_path: Path) -> None:
    poor = write_python(tmp_path, "poor", "echo PyTorch sees no GPU")
    broken = write_python(tmp_path, "broken", "echo it is broken >&2; exit 1")
    ready = write_python(tmp_path, "ready", "echo a word of welcome; echo ready")
    assert job.find_python([poor, broken, ready]) == ready
    with pytest.raises(HarpError) as raised:
        job.find_python([poor, broken, str(tmp_path / "none")])
    for part in ("poor: PyTorch sees no GPU", "broken: it is broken", "none: ", job.PYTHON_VARIABLE):
        assert part in str(raised.value)


def test_probe_is_python() -> None:
    compile(job.PROBE, "probe", "exec")
    compile(job.WORKER.read_text(), str(job.WORKER), "exec")


def test_job_runs(tmp_path: Path) -> None:
    """Arguments, environment, output and logs come to their places."""
    python = write_python(
        tmp_path,
        "python",
        'echo "rank $RANK got $*"; echo "via NET/HARP/0" >"$NCCL_DEBUG_FILE"; echo \'result: {"rank": 0}\'',
    )
    done = job.run_job(python, ["--check=allreduce"], {"NCCL_NET": "HARP"}, "lo", timeout_s=60)
    assert done.codes == (0, 0), done.describe()
    assert done.result == {"rank": 0}
    for rank, output in enumerate(done.outputs):
        assert f"rank {rank} got {job.WORKER} --meeting=" in output
        assert "--check=allreduce" in output
    assert done.logs == ("via NET/HARP/0\n",) * 2


def test_job_hangs(tmp_path: Path) -> None:
    python = write_python(tmp_path, "python", 'test "$RANK" = 0 && exit 3; exec sleep 600')
    done = job.run_job(python, [], {}, "lo", timeout_s=5)
    assert done.codes == (3, -9), done.describe()


def test_beside_socket(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both sides in turn, medians, the table and the file."""
    python = write_python(
        tmp_path,
        "python",
        'test -n "$RANK" || { echo ready; exit; }\n'
        'test "$NCCL_NET" = HARP && us=10 || us=20\n'
        'echo "host:1 [0] NCCL INFO Channel 00 via NET/$NCCL_NET/0" >"$NCCL_DEBUG_FILE"\n'
        'echo "result: {\\"time_us\\": {\\"8\\": $us}, \\"wrong\\": {\\"8\\": 0}, \\"nccl\\": \\"2.29.7\\"}"',
    )
    plugin, report = tmp_path / "libnccl-net.so", tmp_path / "report.json"
    plugin.touch()
    words = [f"--plugin={plugin}", f"--python={python}", "--sizes=8", "--rounds=2", f"--json={report}"]
    assert beside_socket.main(words) == 0
    assert " 0.50 " in capsys.readouterr().out
    assert '"HARP"' in report.read_text()


def test_beside_socket_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = write_python(tmp_path, "python", "echo no PyTorch")
    plugin = tmp_path / "libnccl-net.so"
    plugin.touch()
    assert beside_socket.main([f"--plugin={plugin}", f"--python={python}"]) != 0
    assert "no PyTorch" in capsys.readouterr().err


def test_beside_socket_over_another_net(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A side that NCCL moved to another network is no measurement."""
    python = write_python(
        tmp_path,
        "python",
        'test -n "$RANK" || { echo ready; exit; }\n'
        'echo "Channel 00 via NET/Socket/0" >"$NCCL_DEBUG_FILE"\n'
        'echo \'result: {"time_us": {"8": 1}, "wrong": {"8": 0}}\'',
    )
    plugin = tmp_path / "libnccl-net.so"
    plugin.touch()
    assert beside_socket.main([f"--plugin={plugin}", f"--python={python}", "--sizes=8", "--rounds=1"]) != 0
    assert "Socket" in capsys.readouterr().err
