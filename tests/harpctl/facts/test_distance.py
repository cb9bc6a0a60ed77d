# SPDX-License-Identifier: Apache-2.0
"""Distances between devices, in nvidia-smi's words."""

from __future__ import annotations

import pytest

from harpctl.facts.distance import distance_between, relation_between
from harpctl.facts.model import Eni, Gpu

HOST, PORT, UP = "pci0000:10", "0000:10:01.0", "0000:11:00.0"


def make_gpu(path: tuple[str, ...], node: int = 0) -> Gpu:
    return Gpu(index=0, pci="0000:13:00.0", vendor="10de", device="20b0", node=node, path=path)


def make_eni(path: tuple[str, ...], node: int = 0) -> Eni:
    return Eni(name="eth1", path=path, node=node)


@pytest.mark.parametrize(
    ("one", "other", "word"),
    [
        ((HOST, PORT), (HOST, PORT), "PIX"),
        ((HOST, PORT, UP, "0000:12:00.0"), (HOST, PORT, UP, "0000:12:01.0"), "PIX"),  # ports of one switch
        ((HOST, PORT, UP, "0000:12:00.0", "x", "y"), (HOST, PORT, UP, "0000:12:01.0"), "PXB"),
        ((HOST, PORT), (HOST, "0000:10:02.0"), "PHB"),
        ((HOST, PORT), ("pci0000:80", "0000:80:01.0"), "NODE"),
    ],
)
def test_what_lies_between(one: tuple[str, ...], other: tuple[str, ...], word: str) -> None:
    assert relation_between(make_gpu(one), make_eni(other)) == word
    assert relation_between(make_eni(other), make_gpu(one)) == word


def test_other_nodes_and_unknown_ones() -> None:
    assert relation_between(make_gpu((HOST,), 0), make_eni(("pci0000:80",), 1)) == "SYS"
    assert relation_between(make_gpu((), 0), make_eni((), -1)) == "?"
    assert relation_between(make_gpu((HOST,)), make_gpu((HOST,))) == "X"


def test_nearer_is_smaller() -> None:
    near, far = make_eni((HOST, PORT)), make_eni(("pci0000:80",), 1)
    assert distance_between(make_gpu((HOST, PORT)), near) < distance_between(make_gpu((HOST, PORT)), far)
