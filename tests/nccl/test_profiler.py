# SPDX-License-Identifier: Apache-2.0
"""A profiler plugin of NCCL's gets the network events of each transfer, and the end of each."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests.nccl import box, wheels
from tests.nccl.conftest import MakeBox
from tests.nccl.test_collectives import check_run
from tests.nccl.test_life import KILL_MS, PATIENCE_S

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]
V10 = next(release for release in wheels.RELEASES if release.table == 10)


@pytest.fixture(scope="session")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the plugin profiler.c."""
    library = tmp_path_factory.mktemp("profiler") / "libcount.so"
    source = Path(__file__).with_name("profiler.c")
    argv = ["cc", "-std=gnu11", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(argv, check=True)
    return library


def _read_counts(file: Path) -> list[Counter[str]]:
    """Return what each process counted."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return [
        Counter({name: int(value) for name, value in zip(words[::2], words[1::2], strict=True)}) for words in lines
    ]


@pytest.mark.parametrize("release", [wheels.NEWEST, V10], ids=str)
@pytest.mark.parametrize("operation", ["allreduce", "sendrecv"])
def test_every_transfer_is_reported(
    make_box: MakeBox,
    harp: dict[str, str],
    profiler: Path,
    tmp_path: Path,
    release: wheels.Release,
    operation: str,
) -> None:
    file = tmp_path / "counts"
    most = 4 << 20
    run = make_box(2, release).run(
        *(f"--op={operation}", "--check", "--iters=3", f"--max={most}", "--factor=32"),
        environment={**harp, "NCCL_PROFILER_PLUGIN": str(profiler), "PROFILE_FILE": str(file)},
    )
    sizes = box.list_sizes(8, most, 32)
    check_run(run, sizes)
    counts = [one for one in _read_counts(file) if one["sends"]]
    assert len(counts) == 2, file.read_text()
    for one in counts:
        assert one["receives"] > 10
        assert one["bytes"] >= 3 * sum(sizes)
        assert one["stops"] == one["sends"] + one["receives"]
        assert one["wrong"] == one["late"] == 0
        assert one["parents"] > 0


def test_balanced_after_an_abort(make_box: MakeBox, harp: dict[str, str], profiler: Path, tmp_path: Path) -> None:
    """The survivor of a killed rank aborts with transfers under way; their events end before the profiler."""
    file = tmp_path / "counts"
    run = make_box(2).run(
        *("--op=allreduce", f"--max={16 << 20}", f"--kill=1:{KILL_MS}", f"--patience={PATIENCE_S}"),
        environment={**harp, "NCCL_PROFILER_PLUGIN": str(profiler), "PROFILE_FILE": str(file)},
        timeout_s=120,
    )
    assert run.code == 0, run.describe()
    (survivor,) = [one for one in _read_counts(file) if one["sends"]]
    assert survivor["stops"] == survivor["sends"] + survivor["receives"]
    assert survivor["late"] == 0
