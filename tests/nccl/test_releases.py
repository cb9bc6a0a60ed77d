# SPDX-License-Identifier: Apache-2.0
"""Every release that uses another version of the table finds the plugin and moves checked data."""

from __future__ import annotations

from pathlib import Path

import pytest

from harpctl.facts.plugin_files import NAME, library_version
from harpctl.host.host import Host
from harpctl.plugin.choice import candidate_files
from tests.nccl import box, wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import OPERATIONS, check_run

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

MOST_BYTES = 4 << 20
FULL_PATH_SINCE = (2, 21)  # NCCL_NET_PLUGIN takes a path, not only a suffix
TABLE_NAMED_SINCE = (2, 24)  # the log names the version of the table


def version_numbers(release: wheels.Release) -> tuple[int, ...]:
    return tuple(map(int, release.version.split(".")))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("release", wheels.RELEASES, ids=str)
def test_release(make_box: MakeBox, harp: dict[str, str], release: wheels.Release, operation: str) -> None:
    run = make_box(2, release).run(
        *(f"--op={operation}", "--check", "--iters=4", "--min=16", f"--max={MOST_BYTES}", "--factor=8"),
        environment=harp,
        timeout_s=120,
    )
    check_run(run, box.list_sizes(16, MOST_BYTES, 8))
    if version_numbers(release) >= TABLE_NAMED_SINCE:
        assert f"Loaded net plugin HARP (v{release.table})" in run.log, run.describe()


@pytest.mark.parametrize("release", wheels.RELEASES, ids=str)
def test_four_ranks(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    run = make_box(4, release).run(
        *("--op=allreduce", "--check", "--iters=2", f"--max={1 << 20}", "--factor=16", "--cycles=2"),
        environment=harp,
        timeout_s=120,
    )
    check_run(run, 2 * box.list_sizes(8, 1 << 20, 16))


@pytest.mark.parametrize("release", wheels.RELEASES, ids=str)
def test_names(make_box: MakeBox, harp: dict[str, str], plugin_file: Path, release: wheels.Release) -> None:
    """Unset, by either name, by its path, in a list: each release takes what harpctl predicts."""
    folder = harp["LD_LIBRARY_PATH"]
    assert library_version(Host(Path("/")), str(make_box(2, release).library)) == release.version
    for value in (None, "", "harp", NAME, str(plugin_file), "none-such,harp", "none"):
        named = {} if value is None else {"NCCL_NET_PLUGIN": value}
        files = candidate_files(value, release.version)
        there = any((Path(folder) / file).exists() for file in files)
        run = make_box(2, release).run(
            *("--op=allreduce", "--iters=0", "--max=8"),
            environment={"LD_LIBRARY_PATH": folder, "HARP_IFNAME": "=eni0", **named},
            timeout_s=120,
        )
        assert run.code == 0, run.describe()
        assert run.networks == {"HARP" if there else "Socket"}, run.describe()
        assert there or value not in {None, "harp"}, "these lead to HARP in all releases"
        assert there or value != str(plugin_file) or version_numbers(release) < FULL_PATH_SINCE
