# SPDX-License-Identifier: Apache-2.0
"""DDP with lightcc on four ranks, two hosts of two: averages, lanes, residuals, checkpoints, warnings."""

from __future__ import annotations

from typing import Any

import pytest

from tests.lightcc.conftest import Case

TWO_D = {"two_d": True}
TOPK = {"topk": True}
BOTH = {"two_d": True, "topk": True}
INT8 = {"two_d": True, "inter_dtype": "int8"}
NEAR = 1e-6
TINY_MB = 0.002
BUCKETS = {TINY_MB: 3, 0: 6, None: 1}  # by the size of a bucket in MB; 0: one for each parameter
LANE_STEPS = 67  # 200 buckets go over the lanes


def test_one_group_and_dense_is_ddps_own(run_case: Case) -> None:
    """The hook runs, and all gradients are below the threshold."""
    (got, *_) = run_case("compare", chosen={"topk": True, "topk_threshold_bytes": 1 << 40}, steps=20).results
    assert got["stats"]["hops"] >= 20
    assert got["are_equal"]
    assert got["replicas"]


@pytest.mark.parametrize(
    ("chosen", "options"),
    [
        ({}, {}),
        ({}, {"gradient_as_bucket_view": True}),
        ({}, {"static_graph": True}),
        ({}, {"bucket_cap_mb": TINY_MB}),
        ({}, {"bucket_cap_mb": 0}),
        ({"streams": 3}, {"bucket_cap_mb": TINY_MB}),
        ({}, {"find_unused_parameters": True, "unused": True}),
        ({}, {"accumulated": 3}),
        ({"hierarchical_threshold_bytes": 9000}, {"bucket_cap_mb": TINY_MB}),
    ],
    ids=lambda value: ",".join(value) or "plain",
)
def test_rows_and_columns_are_near(run_case: Case, chosen: dict[str, Any], options: dict[str, Any]) -> None:
    steps = 20 if chosen or options else 60
    for got in run_case("compare", chosen={**TWO_D, **chosen}, steps=steps, **options).results:
        assert got["replicas"]
        assert got["norm"] < NEAR
        share = got["stats"]["host_bytes"] / got["stats"]["ring_bytes"]
        if "hierarchical_threshold_bytes" in chosen:
            assert 0.70 < share < 1
        else:
            assert share == pytest.approx(2 / 3, rel=0.01)
        assert got["buckets"] == BUCKETS[options.get("bucket_cap_mb")]


@pytest.mark.parametrize("chosen", [TWO_D, BOTH, INT8])
def test_ranks_that_have_fewer_batches(run_case: Case, chosen: dict[str, Any]) -> None:
    for got in run_case("uneven", chosen=chosen).results:
        assert got["replicas"]
        assert got["norm"] < (NEAR if chosen == TWO_D else 0.1)


@pytest.mark.parametrize(
    ("chosen", "share", "bf16"),
    [
        (TOPK, 0.1, False),
        (TOPK, 0.1, True),
        (BOTH, 0.1, False),
        ({**BOTH, "topk_fp16": True, "topk_ratio": 1e-6}, 0.1, False),
        ({**BOTH, "inter_dtype": "int8", "streams": 3}, 0.1, True),
        (INT8, 0.25, False),
        (INT8, 0.25, True),
        ({"two_d": True, "inter_dtype": "int8", "intra_size": 1}, 0.4, False),
        ({"two_d": True, "inter_dtype": "bf16"}, 0.334, False),
        ({"two_d": True, "inter_dtype": "bf16"}, 0.334, True),
        ({"two_d": True, "inter_dtype": "fp16"}, 0.334, False),
    ],
    ids=lambda value: (
        ",".join(f"{key}={each}" for key, each in value.items()) if isinstance(value, dict) else None
    ),
)
def test_replicas_stay_equal(run_case: Case, chosen: dict[str, Any], share: float, *, bf16: bool) -> None:
    """Replicas stay equal also where gradients have 16 bits, which halves what a ring sends."""
    for got in run_case("coded", chosen=chosen, bf16=bf16, steps=20, width=128).results:
        assert got["replicas"]
        assert got["is_finite"]
        stats = got["stats"]
        assert stats["steps"] == 20
        assert stats["host_bytes"] / stats["ring_bytes"] < share * (2 if bf16 else 1) + 0.05


def test_topk_begins_with_its_step(run_case: Case) -> None:
    for got in run_case("begun", start=4).results:
        assert len(set(got[:4])) == len(set(got[4:])) == 1
        assert got[4] < got[3] / 10


def test_lanes_keep_the_order_of_buckets(run_case: Case) -> None:
    assert run_case("many_lanes", steps=LANE_STEPS).results == [True] * 4


@pytest.mark.parametrize(
    "chosen", [TOPK, BOTH, {**BOTH, "topk_fp16": True}, INT8, {**BOTH, "inter_dtype": "int8"}]
)
def test_nothing_is_lost(run_case: Case, chosen: dict[str, Any]) -> None:
    for got in run_case("nothing_is_lost", chosen=chosen, bucket_cap_mb=TINY_MB).results:
        assert got["regions"] > 1
        assert got["largest"] > 0
        assert got["missing"] == pytest.approx(got["left"], abs=2e-5)


@pytest.mark.parametrize("numel", [1, 7, 255, 1024, 2049])
def test_hops_lose_nothing(run_case: Case, numel: int) -> None:
    for got in run_case("hops", numel=numel, seed=numel).results:
        for name, found in got.items():
            assert found["off"] < 2e-5, name
            assert found["replicas"], name
            assert found["is_infinite"], name
            assert found["is_kept"], name


def test_ranks_are_ready_to_receive_before_they_send(run_case: Case) -> None:
    """Otherwise gloo's notification of it waits behind the data, and a link carries one direction at a time."""
    assert run_case("posted", numel=512).results == [[["irecv", "isend"]] * 3] * 4


def test_residuals_follow_rebuilt_buckets(run_case: Case) -> None:
    for got in run_case("rebuilt").results:
        assert got["changed"]
        assert got["fits"]
        assert got["regions"] == got["buckets"]


@pytest.mark.parametrize("chosen", [TOPK, BOTH, INT8])
def test_an_infinity_costs_one_step(run_case: Case, chosen: dict[str, Any]) -> None:
    for got in run_case("one_infinity", chosen=chosen).results:
        assert got["skipped"] == [5]
        assert got["scale"] == 512.0
        assert got["is_finite"]
        assert got["replicas"]
        if chosen == TOPK:  # one vector is all there is, so that every rank keeps its residual
            assert got["ratio"] == 0.5


@pytest.mark.parametrize("chosen", [TOPK, BOTH, INT8, {**BOTH, "inter_dtype": "int8"}])
def test_a_checkpoint_goes_on_as_if_uninterrupted(run_case: Case, chosen: dict[str, Any]) -> None:
    outcome = run_case("restored", chosen=chosen)
    assert not outcome.warnings
    for got in outcome.results:
        assert got["regions"]
        assert got["step"] == 12
        assert got["is_taken"]
        assert got["would_differ"]
        assert got["are_equal"]


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("ranks", "the number of ranks was 8 and is 4"),
        ("ratio", "LIGHT_TOPK_RATIO was 0.01 and is 0.5"),
        ("step", "the checkpoint is 'of step 5' on rank 2 and 'of step 4' on rank 0"),
        ("none", "the checkpoint is 'it has none' on rank 3"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_dropped(run_case: Case, what: str, words: str) -> None:
    outcome = run_case("misfit", what=what)
    assert outcome.results == [False] * 4
    assert len(outcome.warnings) == 1
    assert words in outcome.warnings[0]


def test_residuals_of_other_buckets_are_dropped(run_case: Case) -> None:
    outcome = run_case("refit")
    assert outcome.results == [[True, True]] * 4
    (told,) = outcome.warnings
    assert told == "lightcc: residuals of 3 buckets of the checkpoint fit no bucket now; begun anew"


def test_a_model_is_attached_once(run_case: Case) -> None:
    assert all("this DDP is attached already" in error for error in run_case("twice", may_fail=True).errors)


def test_ranks_that_disagree(run_case: Case) -> None:
    errors = run_case("disagree", may_fail=True).errors
    wanted = "LIGHT_TOPK_RATIO is '0.02' on rank 2 and '0.01' on rank 0: it has to be the same on all ranks"
    assert all(wanted in error for error in errors)


def test_rows_that_do_not_divide_the_ranks(run_case: Case) -> None:
    errors = run_case("indivisible", may_fail=True).errors
    assert all("LIGHT_INTRA_SIZE=3: does not divide the 4 ranks of the model" in error for error in errors)


@pytest.mark.parametrize(
    ("why", "words"),
    [
        ("host", "its 4 ranks are on one host (LIGHT_INTRA_SIZE=8)"),
        ("mixed", "DDP's own mixed_precision"),
        ("reducer", "a python_reducer, which gives hooks no buckets"),
        ("backward", "its optimizer runs in backward"),
        ("sparse", "it has sparse gradients"),
        ("complex", "it has complex parameters"),
        ("own", "the script registers a communication hook of its own"),
    ],
)
def test_off_with_one_warning(run_case: Case, why: str, words: str) -> None:
    outcome = run_case("off", why=why)
    assert [got["is_attached"] for got in outcome.results] == [False] * 4
    assert [got["stats"] for got in outcome.results] == [{}] * 4
    assert len(outcome.warnings) == 1
    assert outcome.warnings[0].startswith("lightcc: off for this model: ")
    assert words in outcome.warnings[0]
    assert not outcome.later_warnings


def test_the_first_rank_of_a_model_warns(run_case: Case) -> None:
    """The first ranks of two models are rank 0 and rank 1."""
    outcome = run_case("in_pairs")
    assert outcome.results == [False] * 4
    assert len(outcome.warnings) == len(outcome.later_warnings) == 1


def test_a_later_hook_of_the_script_wins(run_case: Case) -> None:
    outcome = run_case("own_hook_later")
    assert len(outcome.warnings) == 1
    for got in outcome.results:
        assert got == {
            "calls": ["mine"],
            "norm": 0.0,
            "refusal": "register_comm_hook can only be called once.",
        }


def test_a_copy_is_plain(run_case: Case) -> None:
    assert run_case("copied").results == [True] * 4


def test_models_share_groups_of_their_process_group(run_case: Case) -> None:
    for got in run_case("shared").results:
        assert got["are_shared"]
        assert got["ranks"] == got["pair"]


def test_digits_are_learned(run_case: Case) -> None:
    """Digits are learned nearly as without lightcc; `measure accuracy` takes more seeds."""
    plain, topk, int8 = (
        run_case("accuracy", chosen=chosen, seed=0, steps=300, width=256).results[0]
        for chosen in (None, BOTH, INT8)
    )
    assert plain > 95
    assert topk > plain - 3
    assert int8 > plain - 1
