# SPDX-License-Identifier: Apache-2.0
"""docs/explanation/drivers.md names every reason for which the plugin refuses a mode, or gives AF_XDP up."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PLUGIN_DIR, ROOT

XDP = ("driver", "filter", "health", "modes", "queue", "socket")
SOURCES = tuple(f"xdp/{name}" for name in XDP)
REASONS = (
    re.compile(r"\b(?:set_error|set_broken)\([^\";]*\"([^\"]+)\""),
    re.compile(r"\b(?:snprintf\(what|harp_error_set\(error),[^\";]*\"([^\"]+)\""),
    re.compile(r"\breturn [^;\"]*\"([^\"]+)\""),
    re.compile(r"[?:] \"([^\"]+)\""),
)
FRAGMENT_CHARS = 10  # shorter ones are parts of sentences
RING = re.compile(r"^the \w+ (?=ring's)")  # one sentence serves all rings


def _find_fragments() -> list[str]:
    found: set[str] = set()
    for name in SOURCES:
        text = (PLUGIN_DIR / "src" / "io" / f"{name}.c").read_text()
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        text = re.sub(r"\"\s*\n\s*\"", "", text)
        for pattern in REASONS:
            for reason in pattern.findall(text):
                found.add(RING.sub("", max(re.split(r"%\w+", reason), key=len).strip(" :;")))
    return sorted(fragment for fragment in found if len(fragment) >= FRAGMENT_CHARS)


def test_finds_reasons() -> None:
    assert {"no send was completed for 2 s", "opening an AF_XDP socket", "completes no sends"} <= set(
        _find_fragments()
    )


@pytest.mark.parametrize("fragment", _find_fragments())
def test_reason_is_documented(fragment: str) -> None:
    text = " ".join(Path(ROOT / "docs" / "explanation" / "drivers.md").read_text().split())
    assert fragment in text
