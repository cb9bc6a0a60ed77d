# SPDX-License-Identifier: Apache-2.0
"""`harpctl lab step`: a step of data-parallel training over HARP and over NCCL's own sockets, in turns.

Rates of the network and times are those of the job that is imitated. The lab's rates are smaller by a factor,
all times longer by the same, and the figures are converted back: NCCL sees the bytes of the job, and what
this machine's cores can carry does not decide.
"""

from __future__ import annotations

import dataclasses
import enum

import click

from harpctl.command_line import argument, command, json_option
from harpctl.console import Console, print_json
from harpctl.errors import ExitCode, HarpError
from harplab.bench.cores import available_cores, parse_cores
from harplab.bench.models import MODELS, PUBLISHED_GPUS
from harplab.bench.nccl_command import NCCL_LIB, SETTLE, NcclProgram, measure_nccl
from harplab.bench.nccl_wheel import NEWEST
from harplab.bench.options import SideOptions, cores_option
from harplab.bench.places import LabHosts
from harplab.bench.report import Output
from harplab.bench.step import (
    StepJob,
    buckets_of,
    even_buckets,
    harp_paths,
    rank_share,
    require_step,
    scale_lab,
)
from harplab.bench.step_report import Replay, step_document, step_measured
from harplab.bench.table import print_rows
from harplab.grouped import Values, declare_option, group_options
from harplab.lab.lab import Lab
from harplab.lab.options import LabOptions
from harplab.lab.spec import LabSpec
from harplab.perf.sizes import parse_sizes

CAP_MBPS = 50_000.0
RUNS = 3
_STEP = "Training step"


class Algorithm(str, enum.Enum):
    """NCCL's algorithms for a reduction."""

    RING = "ring"
    TREE = "tree"


@dataclasses.dataclass(frozen=True)
class StepOptions:
    """The step, and how often it is measured."""

    compute: float | None = declare_option(
        None,
        metavar="MS",
        type=click.FloatRange(0.001),
        heading=_STEP,
        help="Compute time of a step. Default: as published, for resnet50 (335.5) and vgg16 (518).",
    )
    batch: int | None = declare_option(
        None,
        type=click.IntRange(1),
        heading=_STEP,
        help="Samples of a GPU in a step. Default: as published, for resnet50 (256) and vgg16 (128).",
    )
    gpus: int = declare_option(
        PUBLISHED_GPUS,
        type=click.IntRange(1),
        heading=_STEP,
        help="GPUs of each host, for which its rank stands.",
    )
    algorithm: Algorithm = declare_option(
        Algorithm.RING, "--algo", type=Values(Algorithm), heading=_STEP, help="NCCL_ALGO of both sides."
    )
    scale: float = declare_option(
        10.0,
        type=click.FloatRange(1),
        heading=_STEP,
        help="Divide rates by this and multiply times, in the lab.",
    )
    steps: int = declare_option(5, type=click.IntRange(1), heading=_STEP, help="Steps of each run.")
    warmup: int = declare_option(1, type=click.IntRange(0), heading=_STEP, help="Steps before these.")
    settle_s: float = declare_option(10.0, "--settle", **SETTLE)
    runs: int = declare_option(RUNS, type=click.IntRange(1), heading=_STEP, help="Runs of each side.")
    check: bool = declare_option(
        True, "--check/--no-check", heading=_STEP, help="Verify every element before each run."
    )
    nccl_lib: str = declare_option(NEWEST, **NCCL_LIB)

    def replay(self, text: str, network: LabSpec) -> Replay:
        """Plan the replay of a model's step, or of buckets, in this network. Raises HarpError for what can't
        be replayed.
        """
        model = MODELS.get(text)
        if model is None and not text[:1].isdigit():
            hint = f"One of {', '.join(MODELS)}, or sizes of buckets: 1M,25M."
            raise HarpError(f"{text!r} is no model.", hint, ExitCode.USAGE)
        batch = self.batch or (model.batch if model else None)
        compute_ms = self.compute or (model.published_compute_ms(batch) if model and batch else None)
        if compute_ms is None:
            raise HarpError(f"{text} has no published compute time.", "--compute 400", ExitCode.USAGE)
        if network.cap_mbps is None:
            network = dataclasses.replace(network, cap_mbps=CAP_MBPS)
        share = rank_share(network.hosts, self.gpus, ring=self.algorithm is Algorithm.RING)
        lab = scale_lab(network, self.scale * share)
        lab.check()
        buckets = buckets_of(model) if model else even_buckets(parse_sizes(text))
        require_step(buckets, compute_ms * self.scale)
        job = StepJob(
            ranks=network.hosts,
            sizes_bytes=(sum(bucket.bytes for bucket in buckets),),
            buckets=buckets,
            compute_ms=compute_ms * self.scale,
            iterations=self.steps,
            warmup=self.warmup,
            settle_s=self.settle_s,
            check=self.check,
        )
        return Replay(
            model=text,
            samples=model.samples if model else "samples",
            batch=batch,
            compute_ms=compute_ms,
            gpus=self.gpus,
            network=network,
            scale=self.scale,
            rank_share=share,
            lab=lab,
            job=job,
            env={
                "NCCL_ALGO": self.algorithm.value.capitalize(),
                "HARP_PATHS": str(harp_paths(network)),
            },
            nccl=self.nccl_lib,
            runs=self.runs,
        )


@command("step")
@argument("model", help=f"{', '.join(MODELS)}, or sizes of buckets: 1M,25M,25M.")
@group_options(options=StepOptions, sides=SideOptions, network=LabOptions)
@cores_option
@json_option
def lab_step(
    model: str,
    *,
    options: StepOptions,
    sides: SideOptions,
    network: LabOptions,
    cores: str | None,
    as_json: bool,
) -> None:
    """Replay a step of data-parallel training in official NCCL, over HARP and over its own sockets in turns.

    Gradients are reduced in the buckets of PyTorch's DistributedDataParallel, each when backward has made it,
    beside a compute time. Rates are those of the imitated network: without --cap, 50 Gbit/s.
    """
    replay = options.replay(model, network.spec(switch=False))
    pinned = parse_cores(cores, available_cores()) if cores is not None else ()
    program = NcclProgram.find(options.nccl_lib)
    with Lab(replay.lab) as lab:
        hosts = LabHosts(lab, pinned)
        done = measure_nccl(program, hosts, replay.job, sides, runs=replay.runs, pinned=pinned, env=replay.env)
        notes = [*done.notes, *lab.notes]
    measured = step_measured(done.measured, replay)
    if as_json:
        sides_env = [{"name": side.name, "env": dict(side.env)} for side in done.sides]
        cores_used = {"cores": done.place.cores, "core_latency": done.cores}
        print_json({**step_document(replay, measured), "settings": sides_env, **cores_used})
    else:
        about = [*replay.notes(), *measured.notes(replay.samples), *notes]
        print_rows(Console(), measured.table(replay.samples), about)
    Output(None, as_json).require_right(done.measured.wrong, "elements")
