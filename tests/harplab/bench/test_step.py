# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab step`: models, buckets, scaling, and the command with a harp-nccl that measures nothing."""

from __future__ import annotations

import dataclasses
import json
import platform
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harpctl.cli import app
from harpctl.errors import ExitCode, HarpError
from harplab.bench import options, step_command
from harplab.bench.models import MODELS, Layer, Model
from harplab.bench.step import (
    BUCKET_BYTES,
    BUCKETS_MAX,
    FIRST_BUCKET_BYTES,
    Bucket,
    StepJob,
    buckets_of,
    even_buckets,
    harp_paths,
    rank_share,
    require_step,
    scale_lab,
)
from harplab.lab.spec import QUEUE_MAX_MS, LabSpec
from harplab.perf.counts import PacketCounts
from tests.harplab.conftest import write_perf

# Takes FAKE_MS for a step and appends its arguments and its NCCL_ALGO to FAKE_CALLS.
FAKE = r"""
import json, os, sys
given = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])
net = os.environ["NCCL_NET"]
with open(os.environ["NCCL_DEBUG_FILE"].replace("%p", "1"), "w") as log:
    log.write(f"NCCL INFO Using network {net}\n")
with open(os.environ["FAKE_CALLS"], "a") as calls:
    calls.write(json.dumps([net, given, os.environ["NCCL_ALGO"]]) + "\n")
size = sum(int(bucket.partition(":")[2]) for bucket in given["step"].split(","))
print(json.dumps(dict(kind="size", bytes=size, count=size // 4, type="float", redop="sum",
    time_us=float(os.environ["FAKE_MS"]) * 1000, iterations=int(given["iters"]),
    algbw_gbps=1.0, busbw_gbps=1.0,
    wrong=int(os.environ.get("FAKE_WRONG", "0")) if "check" in given else None)))
"""


# ---- models ----


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet50", 25_557_032),
        ("vgg16", 138_357_544),
        ("bert-large", 336_226_108),  # with both heads
        ("gpt2-xl", 1_557_611_200),
    ],
)
def test_parameters_are_as_published(name: str, parameters: int) -> None:
    assert MODELS[name].parameter_count == parameters


def test_bert_without_its_heads() -> None:
    heads = MODELS["bert-large"].layers[-4:]
    elements = sum(sum(layer.elements) for layer in heads)
    assert MODELS["bert-large"].parameter_count - elements == 335_141_888


@pytest.mark.parametrize(("name", "published_e9"), [("resnet50", 4.09), ("vgg16", 15.47)])
def test_work_is_as_published(name: str, published_e9: float) -> None:
    work = sum(layer.work for layer in MODELS[name].layers)
    assert work / 1e9 == pytest.approx(published_e9, abs=0.005)


def test_tensors_are_as_many_as_published() -> None:
    count = {name: sum(len(layer.elements) for layer in model.layers) for name, model in MODELS.items()}
    assert count == {"resnet50": 161, "vgg16": 32, "bert-large": 398, "gpt2-xl": 580}


# ---- buckets ----


def _make_model(*layers: Layer) -> Model:
    return Model("model", layers, "samples")


def test_buckets_are_closed_by_the_tensor_that_fills_them() -> None:
    """The first one has a size of its own; the last one is closed when no tensor is left."""
    model = _make_model(Layer((10,), 20), Layer((5, 1), 10), Layer((3,), 30), Layer((2, 2), 40))
    assert [bucket.bytes for bucket in buckets_of(model, 8, 24)] == [8, 24, 60]
    assert [bucket.bytes for bucket in buckets_of(model, 8, 28)] == [8, 44, 40]
    assert [bucket.bytes for bucket in buckets_of(model, 1 << 20, 1)] == [92]


def test_a_bucket_is_ready_after_the_layers_of_its_tensors() -> None:
    model = _make_model(Layer((10,), 20), Layer((5, 1), 10), Layer((3,), 30), Layer((2, 2), 40))
    shares = [bucket.ready_share for bucket in buckets_of(model, 8, 28)]
    assert shares == pytest.approx([1 / 3 + 2 / 3 * 0.4, 1 / 3 + 2 / 3 * 0.8, 1.0])


@pytest.mark.parametrize("name", list(MODELS))
def test_buckets_of_models(name: str) -> None:
    model = MODELS[name]
    buckets = buckets_of(model)
    assert sum(bucket.bytes for bucket in buckets) == 4 * model.parameter_count
    assert buckets[0].bytes >= FIRST_BUCKET_BYTES
    assert all(bucket.bytes >= BUCKET_BYTES for bucket in buckets[1:-1])
    assert buckets[0].ready_share > 1 / 3
    assert all(early.ready_share <= late.ready_share for early, late in pairwise(buckets))
    assert buckets[-1].ready_share == 1.0
    require_step(buckets, 100)


def test_the_classifier_comes_first() -> None:
    """These are nine tenths of VGG-16's bytes, and nearly nothing of its work."""
    first, *others = buckets_of(MODELS["vgg16"])
    assert first.bytes == 4 * (4096 * 1000 + 1000)
    assert others[1].bytes > 400e6
    assert others[1].ready_share < 0.34


def test_buckets_of_given_sizes() -> None:
    buckets = even_buckets((4, 8, 12))
    assert [bucket.bytes for bucket in buckets] == [4, 8, 12]
    assert [bucket.ready_share for bucket in buckets] == pytest.approx([1 / 3 + 1 / 9, 2 / 3, 1.0])


@pytest.mark.parametrize(
    "sizes", [(0,), (6,), (4,) * (BUCKETS_MAX + 1)], ids=["empty", "part of an element", "too many"]
)
def test_buckets_that_harp_nccl_does_not_take(sizes: Sequence[int]) -> None:
    with pytest.raises(HarpError):
        require_step([Bucket(size, 1.0) for size in sizes], 100)


# ---- scaling ----


@pytest.mark.parametrize(
    ("hosts", "gpus", "ring", "share"),
    [(2, 8, True, 1.875), (2, 1, True, 1.0), (4, 8, True, 31 / 24), (2, 8, False, 1.0)],
    ids=str,
)
def test_a_rank_stands_for_a_host(hosts: int, gpus: int, ring: bool, share: float) -> None:
    assert rank_share(hosts, gpus, ring=ring) == pytest.approx(share)


def test_all_rates_are_scaled() -> None:
    spec = LabSpec(enis=2, cap_mbps=(1000.0, 500.0), flow_cap_mbps=250.0, loss_share=0.01)
    less = dataclasses.replace(spec, cap_mbps=(100.0, 50.0), flow_cap_mbps=25.0, queue_ms=100.0)
    assert scale_lab(spec, 10) == less
    assert scale_lab(LabSpec(cap_mbps=1000.0), 4).cap_mbps == 250.0
    assert scale_lab(LabSpec(), 4) == LabSpec(queue_ms=40.0)


def test_queues_hold_the_same_bytes() -> None:
    spec = scale_lab(LabSpec(cap_mbps=1000.0, queue_ms=20, queue_us=50.0), 10)
    assert (spec.queue_ms, spec.queue_us) == (200.0, 500.0)
    assert scale_lab(LabSpec(), 1000).queue_ms == QUEUE_MAX_MS


@pytest.mark.parametrize(
    ("cap", "paths"), [(None, 1), (5000.0, 1), (5001.0, 2), ((1.0, 12_000.0), 3), (100_000.0, 8)], ids=str
)
def test_paths_of_an_interface_of_that_speed(cap: float | tuple[float, ...] | None, paths: int) -> None:
    assert harp_paths(LabSpec(cap_mbps=cap)) == paths


def test_words_for_harp_nccl() -> None:
    job = StepJob(
        buckets=(Bucket(4, 0.5), Bucket(8, 1.0)),
        sizes_bytes=(12,),
        compute_ms=200,
        iterations=3,
        warmup=2,
        check=False,
    )
    words = ["--step=100.000:4,200.000:8", "--compute=200.000", "--ranks=2", "--iters=3", "--warmup=2"]
    assert job.options() == [*words, "--settle=0"]
    assert dataclasses.replace(job, check=True).options()[-1] == "--check"


# ---- the command ----


class FakeLab:
    """A lab that is not made."""

    made: list[LabSpec] = []  # noqa: RUF012 -- of all

    def __init__(self, spec: LabSpec) -> None:
        self.spec = spec
        self.made.append(spec)
        self.hosts = [f"h{host}" for host in range(spec.hosts)]
        self.enis = [f"eni{eni}" for eni in range(spec.enis)]
        self.notes: list[str] = ["a note of the lab"]
        self._packets = 0

    def __enter__(self) -> FakeLab:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def packet_counts(self) -> PacketCounts:
        self._packets += 100
        return PacketCounts(self._packets, self._packets // 100)


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Put a harp-nccl, an NCCL and a plugin where the built ones are; return the file of the calls."""
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(step_command, "Lab", FakeLab)
    write_perf(tmp_path, FAKE).rename(tmp_path / "harp-nccl")
    for name in ("libnccl-net.so", "libnccl.so.2"):
        (tmp_path / name).touch()
    monkeypatch.setattr(options, "built_file", lambda name: tmp_path / name)
    file = tmp_path / "calls"
    monkeypatch.setenv("FAKE_CALLS", str(file))
    FakeLab.made.clear()
    yield file
    FakeLab.made.clear()


def run_step(calls: Path, *words: str) -> Result:
    library = ["--nccl-lib", str(calls.with_name("libnccl.so.2"))]
    sides = ["--env", "FAKE_MS=4194.8", "--against-env", "FAKE_MS=6710"]
    return CliRunner().invoke(app, ["lab", "step", *library, *sides, *words])


def read_calls(calls: Path) -> list[tuple[str, dict[str, str], str]]:
    return [tuple(json.loads(line)) for line in calls.read_text().splitlines()]


def test_table(calls: Path) -> None:
    done = run_step(calls, "resnet50", "--runs", "2")
    assert done.exit_code == 0, done.output
    heads, _units, ours, theirs = (line.split() for line in done.stdout.splitlines()[:4])
    assert heads[1:] == ["side", "step", "min-max", "exposed", "images/s"]
    assert ours == ["HARP", "419.5", "419.5-419.5", "84.0", "9764"]
    assert theirs == ["Socket", "671.0", "671.0-671.0", "335.5", "6104"]
    assert "# resnet50: 102.2 MB in 5 bucket(s), 335.5 ms of compute time, 16 GPUs" in done.stdout
    assert "cap 50000 Mbit/s per ENI" in done.stdout
    assert "cap 2666.67 Mbit/s per ENI" in done.stdout
    assert "rates are 18.75 times smaller" in done.stdout
    assert "HARP has 1.60 times the images/s of Socket (1.60 to 1.60 in pairs of runs)" in done.stdout
    assert "HARP: the network dropped 1.00 % of all packets" in done.stdout
    assert "# a note of the lab" in done.stdout


def test_steps_of_the_sides_in_turns(calls: Path) -> None:
    words = ("--runs", "2", "--scale", "20", "--steps", "4", "--warmup", "2", "--flow-cap", "5000")
    done = run_step(calls, "vgg16", *words, "--enis", "2", "--cap", "20000,30000", "--algo", "tree")
    assert done.exit_code == 0, done.output
    made = read_calls(calls)
    assert [net for net, _, _ in made] == ["HARP", "Socket", "Socket", "HARP"]
    assert {algorithm for _, _, algorithm in made} == {"Tree"}
    given = made[0][1]
    assert (given["iters"], given["warmup"], given["netns"]) == ("4", "2", "h0,h1")
    assert float(given["compute"]) == pytest.approx(20 * 8 * 128 / 1977 * 1000, abs=0.001)
    assert given["step"].rpartition(",")[2].partition(":")[0] == given["compute"]  # the last bucket
    assert [(spec.cap_mbps, spec.flow_cap_mbps) for spec in FakeLab.made] == [((1000.0, 1500.0), 250.0)]


def test_json(calls: Path) -> None:
    done = run_step(calls, "1M,25M", "--compute", "100", "--gpus", "1", "--runs", "1", "--no-check", "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [bucket["bytes"] for bucket in found["job"]["buckets"]] == [1 << 20, 25 << 20]
    assert (found["rank_share"], found["network"]["cap_mbps"]) == (1.0, 5e4)
    assert found["env"] == {"NCCL_ALGO": "Ring", "HARP_PATHS": "8"}
    ours, theirs = found["sides"]
    assert (ours["name"], ours["step_ms"], ours["samples_per_s"], ours["wrong"]) == (
        "HARP",
        419.48,
        None,
        None,
    )
    assert theirs["exposed_ms"] == pytest.approx(571.0)
    assert found["speedup"]["of_medians"] == pytest.approx(6710 / 4194.8)


def test_a_batch_of_ones_own(calls: Path) -> None:
    """A step takes as much longer as the batch is larger, unless its time is given."""
    assert run_step(calls, "resnet50", "--batch", "512", "--runs", "1", "--scale", "1").exit_code == 0
    assert float(read_calls(calls)[0][1]["compute"]) == pytest.approx(670.93, abs=0.01)
    done = run_step(calls, "gpt2-xl", "--batch", "2", "--compute", "300", "--runs", "1")
    assert done.exit_code == 0, done.output
    assert "sequences/s" in done.stdout
    assert done.stdout.splitlines()[2].split()[-1] == "76.28"  # 16 GPUs, 2 each, in 419.48 ms


def test_wrong_data(calls: Path) -> None:
    done = run_step(calls, "resnet50", "--runs", "1", "--env", "FAKE_WRONG=3")
    assert done.exit_code == ExitCode.WRONG_DATA
    assert "3 elements arrived with wrong bytes." in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("resnet18",), "'resnet18' is no model."),
        (("bert-large",), "bert-large has no published compute time."),
        (("1M,25M",), "1M,25M has no published compute time."),
        (("6", "--compute", "1"), "A bucket has elements of 4 bytes, not 6 bytes."),
        (("1M,x", "--compute", "1"), "'x' is not a message size."),
        (("resnet50", "--cap", "10"), "a cap is at least 1 Mbit/s"),
        (
            ("resnet50", "--compute", "4e6", "--scale", "1"),
            "A step computes up to 3600000 ms in the lab, not",
        ),
        (("resnet50", "--scale", "0.5"), "0.5 is not in the range"),
        (("resnet50", "--algo", "nvls"), "'nvls'"),
        ((), "Missing argument"),
    ],
    ids=str,
)
def test_wrong_usage(calls: Path, words: tuple[str, ...], message: str) -> None:
    done = run_step(calls, *words)
    assert done.exit_code == ExitCode.USAGE, done.output
    assert message in done.output
    assert not calls.exists()
