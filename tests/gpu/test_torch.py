# SPDX-License-Identifier: Apache-2.0
"""NCCL through PyTorch on a real GPU, two ranks on one, its traffic over HARP and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gpu import job

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

INTERFACE = "lo"


@pytest.mark.parametrize("operation", ["allreduce", "sendrecv", "alltoall"])
def test_checked(gpu_python: str, plugin_file: Path, operation: str) -> None:
    net = job.harp_environment(plugin_file, INTERFACE)
    done = job.run_job(gpu_python, [f"--check={operation}"], net, INTERFACE)
    description = done.describe()
    assert done.codes == (0,) * job.RANKS, description
    assert done.result["operation"] == operation, description
    assert set(done.result["wrong"].values()) == {0}, description
    for log in done.logs:
        assert "Using network HARP" in log, description
        assert "via NET/HARP/0" in log, description
        assert job.routes_of_channels(log) == {"HARP"}, description
        assert not [line for line in log.splitlines() if "WARN NET/HARP" in line], description


def test_without_configuration(gpu_python: str, plugin_file: Path, tmp_path: Path) -> None:
    """The plugin is in place, the host has no configuration: the job runs over NCCL's sockets."""
    net = {"NCCL_NET_PLUGIN": str(plugin_file), "HARP_CONF_DIR": str(tmp_path)}
    done = job.run_job(gpu_python, ["--check=allreduce"], net, INTERFACE)
    description = done.describe()
    assert done.codes == (0,) * job.RANKS, description
    assert set(done.result["wrong"].values()) == {0}, description
    for log in done.logs:
        assert job.routes_of_channels(log) == {"Socket"}, description
        assert len([line for line in log.splitlines() if "no ztcp*.conf" in line]) == 1, description
