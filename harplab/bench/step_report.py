# SPDX-License-Identifier: Apache-2.0
"""The report of replayed training steps: figures at the job's scale, the table, notes, and the JSON."""

from __future__ import annotations

import dataclasses

from harplab.bench.nccl_measure import NcclMeasured
from harplab.bench.report import made_here
from harplab.bench.step import StepJob
from harplab.bench.table import figure_text, percent_text
from harplab.lab.spec import LabSpec
from harplab.perf.measure import setting_text


@dataclasses.dataclass(frozen=True)
class Replay:
    """The step that is imitated, and what stands for it in the lab.

    The lab's rates are those of the network, divided by `scale` and `rank_share`; the job's times are those
    of the step, multiplied by `scale`.
    """

    model: str
    samples: str  # what they are
    batch: int | None  # samples of a GPU
    compute_ms: float
    gpus: int  # the GPUs of each host
    network: LabSpec
    scale: float
    rank_share: float
    lab: LabSpec
    job: StepJob
    env: dict[str, str]  # the variables of both sides
    nccl: str
    runs: int

    @property
    def gpus_total(self) -> int:
        """Return the GPUs of all hosts."""
        return self.network.hosts * self.gpus

    def notes(self) -> list[str]:
        """Return what was imitated, and how."""
        bytes_, buckets = sum(self.job.sizes_bytes), len(self.job.buckets)
        step = f"{bytes_ / 1e6:.1f} MB in {buckets} bucket(s), {self.compute_ms:.1f} ms of compute time"
        times, rates = f"{self.scale:g} times longer", f"{self.scale * self.rank_share:.4g} times smaller"
        more = f"a host of {self.gpus} GPU(s) sends {self.rank_share:.4g} times the bytes of the rank there"
        median = f"median of {self.runs} run(s) of {self.job.iterations} step(s)"
        return [
            f"{self.model}: {step}, {self.gpus_total} GPUs",
            f"network: {self.network.describe()}",
            f"lab: {self.lab.describe()}",
            f"in the lab times are {times} and converted back, rates are {rates}: {more}",
            f"NCCL {self.nccl} with {setting_text(self.env)}, GPUs emulated by threads; {median}",
        ]


@dataclasses.dataclass(frozen=True)
class StepFigures:
    """One side, at the job's scale: medians over the runs, each of which is the mean of its steps."""

    name: str
    step_ms: float
    step_min_ms: float
    step_max_ms: float
    exposed_ms: float  # the part of the step beyond the compute time
    samples_per_s: float | None  # the rate of all GPUs
    wrong: int | None
    lost_share: float | None
    setting: str

    def cells(self) -> list[str]:
        """Write the side's line of the table."""
        span = f"{figure_text(self.step_min_ms)}-{figure_text(self.step_max_ms)}"
        figures = [figure_text(self.step_ms), span, f"{self.exposed_ms:.1f}", figure_text(self.samples_per_s)]
        return [self.name, *figures]

    def notes(self) -> list[str]:
        """Return what the table does not show."""
        notes = [f"{self.name} best with {self.setting}"] if self.setting else []
        if self.lost_share is not None:
            lost = percent_text(self.lost_share)
            notes.append(f"{self.name}: the network dropped {lost} % of all packets")
        return notes


@dataclasses.dataclass(frozen=True)
class Speedup:
    """The first side's samples/s over the second's: of the medians, and of single pairs of runs."""

    of_medians: float
    least: float
    greatest: float


@dataclasses.dataclass(frozen=True)
class StepMeasured:
    """Both sides, and how many times the samples of the second the first one trains."""

    sides: tuple[StepFigures, ...]
    speedup: Speedup

    def table(self, samples: str) -> list[list[str]]:
        """Lay out the table: a line of heads, a line of units, a line per side."""
        heads = ["side", "step", "min-max", "exposed", f"{samples}/s"]
        return [heads, ["", "(ms)", "(ms)", "(ms)", ""], *(side.cells() for side in self.sides)]

    def notes(self, samples: str) -> list[str]:
        """Return the ratio, and what else is known of the sides."""
        (ours, theirs), ratio = self.sides, self.speedup
        pairs = f"{ratio.least:.2f} to {ratio.greatest:.2f} in pairs of runs"
        first = f"{ours.name} has {ratio.of_medians:.2f} times the {samples}/s of {theirs.name} ({pairs})"
        return [first, *(note for side in self.sides for note in side.notes())]


def step_measured(measured: NcclMeasured, replay: Replay) -> StepMeasured:
    """Convert what was measured in the lab to the job's scale."""
    sides = []
    samples = replay.gpus_total * replay.batch if replay.batch else None
    for name, (row,), lost in zip(measured.names, measured.rows, measured.lost_shares, strict=True):
        step_ms = row.time_us / 1000 / replay.scale
        sides.append(
            StepFigures(
                name=name,
                step_ms=step_ms,
                step_min_ms=row.time_min_us / 1000 / replay.scale,
                step_max_ms=row.time_max_us / 1000 / replay.scale,
                exposed_ms=step_ms - replay.compute_ms,
                samples_per_s=samples / step_ms * 1000 if samples else None,
                wrong=row.wrong,
                lost_share=lost,
                setting=row.setting,
            )
        )
    times = measured.ratios[0]
    return StepMeasured(tuple(sides), Speedup(1 / times.of_medians, 1 / times.greatest, 1 / times.least))


def step_document(replay: Replay, measured: StepMeasured) -> dict[str, object]:
    """Return the whole measurement."""
    return {
        **made_here(f"lab: {replay.lab.describe()}"),
        **dataclasses.asdict(replay),
        "sides": [dataclasses.asdict(side) for side in measured.sides],
        "speedup": dataclasses.asdict(measured.speedup),
    }
