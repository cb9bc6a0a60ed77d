"""What the other tests rest on, tried without NCCL: reading output, finding the tool, building, fetching."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from harpctl.bench import baseline
from harpctl.errors import HarpError
from tests.nccl import beside, box, wheels

OUTPUT = """\
# ncclbox: libnccl.so.2, 2 ranks, Ring LL, 1 comm(s), net harp, namespaces
#   size (B)        count     type  redop  time (us)    algbw    busbw  wrong
           8            2    float    sum      45.93    0.000    0.000      0
        2048          512    float    sum       0.00    0.035    0.035    N/A
     2097152       524288    float    sum    2692.00    0.779    0.779     17
# cycle 1: init 0.972 s, destroy 0.491 s
# cycle 2: init 1.058 s, destroy 0.317 s
rank 3: 4 operations, then asynchronous error: remote process exited; noticed after 0.066 s, abort returned \
0 after 0.517 s, stream drained after 0.001 s; last error: NET/HARP: lost it: really
rank 1: 0 operations, then no error: watchdog's abort: no error; noticed after 2.000 s, abort returned 0 \
after 0.100 s, stream drained after 0.000 s; last error:{space}
""".replace("{space}", " ")


def test_rows() -> None:
    assert box.parse_rows(OUTPUT) == [
        box.Row(8, 45.93, 0),
        box.Row(2048, 0.0, None),
        box.Row(2097152, 2692.0, 17),
    ]


def test_cycles() -> None:
    assert box.BoxRun((), 0, OUTPUT, "").cycles == 2


def test_survivors() -> None:
    first, second = box.parse_survivors(OUTPUT)
    assert (first.rank, first.how, first.error) == (1, "no error: watchdog's abort", "no error")
    assert first.last_error == ""
    assert second == box.Survivor(
        rank=3,
        operations=4,
        how="asynchronous error",
        error="remote process exited",
        noticed_s=0.066,
        abort=0,
        abort_s=0.517,
        drained_s=0.001,
        last_error="NET/HARP: lost it: really",
    )


def test_sizes() -> None:
    assert box.sizes(8, 64, 2) == [8, 16, 32, 64]
    assert box.sizes(1, 50, 7) == [1, 7, 49]
    assert box.sizes(9, 8, 2) == []


def test_environment_is_clean() -> None:
    assert box.clean_environment({"NCCL_DEBUG": "x", "HARP_X": "x", "PATH": "p"}) == {"PATH": "p"}


def test_tool_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(box.TOOL_VARIABLE, str(tmp_path))
    with pytest.raises(HarpError, match=str(tmp_path)):
        box.build(tmp_path / "cache")


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Sources that "compile" by copying, so that no compiler need be there."""
    monkeypatch.setattr(shutil, "which", lambda name: name)
    folder = tmp_path / "tool"
    folder.mkdir()
    (folder / "Makefile").write_text("ncclbox: main.cc\n\tcp main.cc ncclbox\n")
    (folder / "main.cc").write_text("one")
    (folder / "notes.txt").write_text("not a source")
    monkeypatch.setenv(box.TOOL_VARIABLE, str(folder))
    return folder


def test_build_by_content(tool: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = box.build(cache)
    assert first.read_text() == "one"
    assert not (first.parent / "notes.txt").exists()
    first.write_text("built")
    assert box.build(cache) == first
    assert first.read_text() == "built", "the same sources are not built again"
    (tool / "main.cc").write_text("two")
    assert box.build(cache).read_text() == "two"
    assert sorted(file.name for file in tool.iterdir()) == ["Makefile", "main.cc", "notes.txt"]


def test_build_fails(tool: Path, tmp_path: Path) -> None:
    (tool / "Makefile").write_text("ncclbox:\n\techo no such luck; false\n")
    with pytest.raises(HarpError, match="no such luck"):
        box.build(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_releases_cover_every_table() -> None:
    assert {release.table for release in wheels.RELEASES} == set(range(6, 13))
    assert wheels.RELEASES[-1] == wheels.NEWEST
    assert len({release.version for release in wheels.RELEASES}) == len(wheels.RELEASES)


def _pretend_pip(monkeypatch: pytest.MonkeyPatch, code: int) -> list[Sequence[str]]:
    calls: list[Sequence[str]] = []

    def run(argv: Sequence[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(argv)
        if not code:
            with zipfile.ZipFile(Path(argv[argv.index("--dest") + 1]) / "some.whl", "w") as wheel:
                wheel.writestr(baseline.NCCL_MEMBER, "library")
        return subprocess.CompletedProcess(argv, code, "", "no index\nno such wheel\n")

    monkeypatch.setattr(subprocess, "run", run)
    return calls


def test_fetch_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    calls = _pretend_pip(monkeypatch, 0)
    release = wheels.RELEASES[0]
    library = wheels.fetch(release, tmp_path)
    assert library.read_text() == "library"
    assert wheels.fetch(release, tmp_path) == library
    assert len(calls) == 1
    assert calls[0][0] == sys.executable
    assert calls[0][-1] == f"{release.wheel}=={release.version}"


def test_fetch_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _pretend_pip(monkeypatch, 1)
    with pytest.raises(HarpError, match="no such wheel"):
        wheels.fetch(wheels.RELEASES[0], tmp_path)


def test_comparison() -> None:
    runs = {
        "HARP": [{8: 10.0, 64: 30.0}, {8: 12.0, 64: 33.0}, {8: 11.0, 64: 90.0}],
        "Socket": [{8: 20.0, 64: 30.0}, {8: 22.0, 64: 30.0}, {8: 24.0, 64: 30.0}],
        "Socket 2x2": [{8: 40.0, 64: 22.0}, {8: 44.0, 64: 20.0}, {8: 48.0, 64: 21.0}],
    }
    small, large = beside.compare(runs)
    assert small == beside.Line(8, 11.0, 22.0, "Socket", 0.5, 11 / 24, 12 / 22)
    assert (large.bytes, large.harp_us, large.socket_us, large.setting) == (64, 33.0, 21.0, "Socket 2x2")
    table = beside.render([small, large])
    assert "Socket 2x2" in table
    assert "0.50" in table
