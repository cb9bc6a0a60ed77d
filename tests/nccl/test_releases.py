# SPDX-License-Identifier: Apache-2.0
"""Every release that asks for another version of the table finds the plugin and moves checked data."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.nccl import box, wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import OPERATIONS, check

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]

MOST_BYTES = 4 << 20
FULL_PATH_SINCE = (2, 21)  # NCCL_NET_PLUGIN takes a path, not only a suffix
TABLE_NAMED_SINCE = (2, 24)  # the log names the version of the table


def number(release: wheels.Release) -> tuple[int, ...]:
    return tuple(map(int, release.version.split(".")))


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("release", wheels.RELEASES, ids=str)
def test_release(make_box: MakeBox, harp: dict[str, str], release: wheels.Release, operation: str) -> None:
    run = make_box(2, release).run(
        *(f"--op={operation}", "--check", "--iters=4", "--min=16", f"--max={MOST_BYTES}", "--factor=8"),
        environment=harp,
        timeout_s=120,
    )
    check(run, box.sizes(16, MOST_BYTES, 8))
    if number(release) >= TABLE_NAMED_SINCE:
        assert f"Loaded net plugin HARP (v{release.table})" in run.log, run.describe()


@pytest.mark.parametrize("release", wheels.RELEASES, ids=str)
def test_four_ranks(make_box: MakeBox, harp: dict[str, str], release: wheels.Release) -> None:
    run = make_box(4, release).run(
        *("--op=allreduce", "--check", "--iters=2", f"--max={1 << 20}", "--factor=16", "--cycles=2"),
        environment=harp,
        timeout_s=120,
    )
    check(run, 2 * box.sizes(8, 1 << 20, 16))


def test_full_path(make_box: MakeBox, harp: dict[str, str], plugin_file: Path) -> None:
    for release in (wheels.NEWEST, next(r for r in wheels.RELEASES if number(r) >= FULL_PATH_SINCE)):
        run = make_box(2, release).run(
            *("--op=allreduce", "--check", "--iters=0", f"--max={1 << 20}", "--factor=32"),
            environment={**harp, "LD_LIBRARY_PATH": "", "NCCL_NET_PLUGIN": str(plugin_file)},
            timeout_s=120,
        )
        check(run, box.sizes(8, 1 << 20, 32))


def test_default_name(make_box: MakeBox, harp: dict[str, str]) -> None:
    """As it is dropped into an image: by its name alone, and NCCL chooses it without being told to."""
    environment = {**harp, "NCCL_NET_PLUGIN": "libnccl-net.so"}
    del environment["NCCL_NET"]
    run = make_box(2).run(
        *("--op=allreduce", "--check", "--iters=0", f"--max={1 << 20}", "--factor=32"),
        environment=environment,
        timeout_s=120,
    )
    check(run, box.sizes(8, 1 << 20, 32))
