# SPDX-License-Identifier: Apache-2.0
"""The first rank is told of settings that cannot reach what they could."""

from __future__ import annotations

import importlib
import warnings

import pytest

from lightcc.settings import Settings


@pytest.mark.usefixtures("has_torch")
@pytest.mark.parametrize(
    ("settings", "size", "own", "words"),
    [
        (Settings(two_d=True), 16, {"LOCAL_WORLD_SIZE": "8"}, ""),
        (Settings(two_d=True), 16, {}, ""),
        (
            Settings(two_d=True),
            16,
            {"LOCAL_WORLD_SIZE": "8", "NCCL_ALGO": "ring"},
            "NCCL_ALGO=RING: on two hosts",
        ),
        (Settings(two_d=True), 24, {"LOCAL_WORLD_SIZE": "8", "NCCL_ALGO": "ring"}, ""),
        (
            Settings(two_d=True),
            16,
            {"LOCAL_WORLD_SIZE": "4"},
            "LIGHT_INTRA_SIZE=8: rows span hosts, which have 4",
        ),
        (
            Settings(two_d=True, intra_size=1),
            16,
            {"LOCAL_WORLD_SIZE": "4"},
            "LIGHT_INTRA_SIZE=1: rows of one rank",
        ),
        (Settings(two_d=True, intra_size=1, inter_dtype="int8"), 16, {"LOCAL_WORLD_SIZE": "4"}, ""),
    ],
)
def test_hints(
    monkeypatch: pytest.MonkeyPatch, settings: Settings, size: int, own: dict[str, str], words: str
) -> None:
    patch = importlib.import_module("lightcc.patch")
    for name in ("LOCAL_WORLD_SIZE", "NCCL_ALGO"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        patch._hint(settings, size)
    told = [str(each.message) for each in caught]
    assert len(told) == bool(words)
    assert not told or told[0].startswith(f"lightcc: {words}")
