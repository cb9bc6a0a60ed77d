# SPDX-License-Identifier: Apache-2.0
"""The model of bytes and rates, against the vendor's tables."""

from __future__ import annotations

import pytest

from lightcc.estimate import Job, main, rate_gbit, resnet50, step_s

IMAGES = 256  # the images of a GPU in a step
ONE_HOST = 8 * IMAGES / 6105  # seconds of a step; 6105 images/s
JOB = Job(resnet50(), hosts=2, gpus=8, threshold_bytes=2 << 20)


def predicted(ring_rate: float, setting: str) -> float:
    """Return the images/s of 16 GPUs by a setting, where the ring reaches a rate of images/s."""
    gbit = rate_gbit(JOB.ring_bytes, 16 * IMAGES / ring_rate, ONE_HOST)
    return 16 * IMAGES / step_s(JOB.rows()[setting], gbit, ONE_HOST)


def test_the_models_parameters() -> None:
    assert sum(resnet50()) == 25_557_032
    assert len(resnet50()) == 161


@pytest.mark.parametrize(
    ("ring_rate", "setting", "vendors"),
    [
        (7857, "2D, top-k of all ranks", 11173),  # HARP, LightCC 3.1.1
        (8970.7, "2D", 10229.9),  # HARP, LightCC 3.0.0
        (5421.9, "2D", 7183.5),  # kernel sockets, LightCC 3.0.0
    ],
)
def test_the_vendors_tables(ring_rate: float, setting: str, vendors: float) -> None:
    assert predicted(ring_rate, setting) == pytest.approx(vendors, rel=0.03)


def test_bytes() -> None:
    rows = Job([1 << 20, 100], hosts=4, gpus=2, ratio=0.01, threshold_bytes=1 << 20).rows()
    total = (1 << 20) + 100
    assert rows["ring"] == pytest.approx(2 * 7 / 8 * 4 * total)
    assert rows["2D"] == pytest.approx(2 * 3 / 4 * 4 * total)
    assert rows["2D bf16"] == pytest.approx(rows["2D"] / 2)
    assert rows["2D int8"] == pytest.approx(rows["2D"] / 4 * 260 / 256)
    dense = 2 * 3 / 4 * 4 * 100
    assert rows["2D, top-k between hosts"] == pytest.approx(dense + 3 * 0.01 * (1 << 20) * 8)
    assert rows["2D, top-k of all ranks"] == pytest.approx(dense + 6 * 0.01 * (1 << 20) * 8)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = "--params resnet50 --hosts 2 --gpus 8 --step-ms 335.5"
    assert main([*words.split(), "--gbit", "8.25"]) == 0
    by_rate = capsys.readouterr().out
    lines = {line[:26].strip(): line[26:].split() for line in by_rate.splitlines()}
    assert lines["2D"] == ["102.23", "434.6", "1.20"]
    assert main([*words.split(), "--measured-ms", "521.3"]) == 0
    assert capsys.readouterr().out.splitlines()[2].startswith("2D                             102.23     434.6")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--params resnet50 --hosts 1 --step-ms 300 --gbit 8", "needs two hosts or more"),
        ("--params resnet18 --hosts 2 --step-ms 300 --gbit 8", "resnet50, or a number of parameters"),
        ("--params 1000 --hosts 2 --step-ms 300", "give one of --gbit and --measured-ms"),
        ("--params 1000 --hosts 2 --step-ms 300 --measured-ms 300", "not above --step-ms"),
        ("--params 1000 --hosts 2 --step-ms 300 --gbit -1", "--gbit: must be above 0"),
    ],
)
def test_bad_input(words: str, error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words.split())
    assert end.value.code == 2
    assert error in capsys.readouterr().err
