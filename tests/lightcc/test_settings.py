# SPDX-License-Identifier: Apache-2.0
"""The variables: defaults, values, what is refused, and that the page has them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lightcc.notices import LightccError
from lightcc.settings import VARIABLES, Settings, from_environment

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "lightcc.md"


def test_defaults() -> None:
    got = from_environment({"PATH": "/bin", "HOROVOD_FUSION_THRESHOLD": "x", "TIACC_TRAINING_OTHER": "1"})
    assert got == Settings()
    assert not got.is_active


def test_the_vendors_command() -> None:
    got = from_environment(
        {
            "LIGHT_2D_ALLREDUCE": "1",
            "LIGHT_INTRA_SIZE": "8",
            "LIGHT_HIERARCHICAL_THRESHOLD": "1073741824",
            "LIGHT_TOPK_ALLREDUCE": "1",
            "LIGHT_TOPK_THRESHOLD": "2097152",
            "TIACC_TRAINING_FUSION_THRESHOLD": "25217728",
            "TIACC_TRAINING_NUM_NCCL_STREAMS": " 3 ",
            "LIGHT_TOPK_FP16": "",
        }
    )
    assert got == Settings(two_d=True, topk=True, topk_threshold_bytes=2 << 20, fusion_bytes=25217728, streams=3)
    assert got.is_active


@pytest.mark.parametrize(("local", "size"), [("", 8), ("2", 2), ("16", 8), ("12", 6), ("11", 1)])
def test_a_row_is_a_hosts_ranks(local: str, size: int) -> None:
    assert from_environment({"LOCAL_WORLD_SIZE": local}).intra_size == size
    assert from_environment({"LOCAL_WORLD_SIZE": local, "LIGHT_INTRA_SIZE": "3"}).intra_size == 3


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("LIGHT_TOPK_RATIO", "2", "must be above 0 and at most 1"),
        ("LIGHT_TOPK_RATIO", "0", "must be above 0 and at most 1"),
        ("LIGHT_TOPK_RATIO", "nan", "must be above 0 and at most 1"),
        ("LIGHT_TOPK_RATIO", "1%", "must be above 0 and at most 1"),
        ("LIGHT_2D_ALLREDUCE", "yes", "must be 0 or 1"),
        ("LIGHT_INTRA_SIZE", "0", "must be a whole number of at least 1"),
        ("LIGHT_INTRA_SIZE", "4.0", "must be a whole number of at least 1"),
        ("LIGHT_HIERARCHICAL_THRESHOLD", "-1", "must be a whole number of at least 0"),
        ("LIGHT_TOPK_START_STEP", "1", "must be a whole number of at least 2"),
        ("LIGHT_INTER_DTYPE", "fp8", "must be one of same, bf16, fp16, int8"),
        ("TIACC_TRAINING_NUM_NCCL_STREAMS", "17", "must be a whole number of at least 1 and at most 16"),
        (
            "TIACC_TRAINING_FUSION_THRESHOLD",
            "25MB",
            "must be a whole number of at least 0 and at most 1099511627776",
        ),
        (
            "TIACC_TRAINING_FUSION_THRESHOLD",
            "9" * 30,
            "must be a whole number of at least 0 and at most 1099511627776",
        ),
    ],
)
def test_a_bad_value_is_refused(name: str, value: str, words: str) -> None:
    with pytest.raises(LightccError) as refusal:
        from_environment({name: value})
    assert str(refusal.value) == f"{name}={value!r}: {words}"


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LightccError, match=r"^LIGHT_TOPK_RATE: there is no such variable; lightcc knows LIGHT_2D"):
        from_environment({"LIGHT_TOPK_RATE": "1"})


def test_what_needs_rows_says_so() -> None:
    with pytest.raises(LightccError, match="LIGHT_INTER_DTYPE='int8': needs LIGHT_2D_ALLREDUCE=1"):
        from_environment({"LIGHT_INTER_DTYPE": "int8"})
    with pytest.raises(LightccError, match=r"LIGHT_TOPK_RATIO=2\.0: must be above 0"):
        Settings(topk_ratio=2.0)


def test_the_page_has_all_variables_with_their_defaults() -> None:
    rows = re.findall(r"^- `((?:LIGHT|TIACC)_\w+)` \(([^)]*)\):", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _default in rows] == list(VARIABLES)
    defaults = Settings()
    for name, default in rows:
        value = getattr(defaults, VARIABLES[name].field)
        words = {
            "LIGHT_INTRA_SIZE": "the host's ranks, or a divisor of them up to 8",
            "TIACC_TRAINING_FUSION_THRESHOLD": "unset",
        }
        text = str(int(value)) if isinstance(value, bool) else str(value)
        assert default == words.get(name, text), name
