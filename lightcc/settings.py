# SPDX-License-Identifier: Apache-2.0
"""The variables that control lightcc, as one object that does not change while a job runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lightcc.notices import LightccError

PREFIX = "LIGHT_"  # names that begin so are lightcc's: an unknown one is an error
INTRA_SIZE_MAX = 8  # the default never makes larger rows, nor rows that span hosts
STEPS_OF_FIRST_BUCKETS = 2  # DDP lays its buckets out anew after the first step
STREAMS_MAX = 16
FUSION_BYTES_MAX = 1 << 40  # DDP counts bytes in 64 bits
INTER_DTYPES = ("same", "bf16", "fp16", "int8")


@dataclass(frozen=True)
class Settings:
    """The settings of lightcc; each field is one variable of VARIABLES.

    Raises LightccError for a value that the variable's rule forbids.
    """

    two_d: bool = False
    intra_size: int = INTRA_SIZE_MAX
    hierarchical_threshold_bytes: int = 1 << 30
    topk: bool = False
    topk_ratio: float = 0.01
    topk_threshold_bytes: int = 1 << 20
    topk_fp16: bool = False
    topk_start_step: int = STEPS_OF_FIRST_BUCKETS
    inter_dtype: str = "same"
    fusion_bytes: int | None = None
    streams: int = 1
    stats: bool = False

    def __post_init__(self) -> None:
        for name, variable in VARIABLES.items():
            value = getattr(self, variable.field)
            if value is not None and not variable.allows(value):
                raise LightccError(f"{name}={value!r}: must be {variable.rule}")
        if self.inter_dtype != "same" and not self.two_d:
            raise LightccError(f"LIGHT_INTER_DTYPE={self.inter_dtype!r}: needs LIGHT_2D_ALLREDUCE=1")

    @property
    def is_active(self) -> bool:
        """Return whether gradients are communicated in another way than DDP's own."""
        return self.two_d or self.topk

    def check_rows(self, ranks: int, whose: str) -> None:
        """Raise LightccError where rows do not divide the ranks of a job or model."""
        if self.two_d and self.intra_size < ranks and ranks % self.intra_size:
            raise LightccError(
                f"LIGHT_INTRA_SIZE={self.intra_size}: does not divide the {ranks} ranks of the {whose}"
            )

    def record(self) -> dict[str, str]:
        """Return each variable's value as text, which has to be the same on all ranks."""
        return {
            name: str(getattr(self, variable.field))
            for name, variable in VARIABLES.items()
            if variable.field != "stats"
        }


@dataclass(frozen=True)
class Variable:
    """One variable: its field of Settings, how text becomes a value, which values it may have."""

    field: str
    convert: Callable[[str], object]
    allows: Callable[[object], bool]
    rule: str  # completes "must be"


def _switch(field: str) -> Variable:
    return Variable(field, {"0": False, "1": True}.__getitem__, lambda value: value in (False, True), "0 or 1")


def _whole(field: str, least: int, most: int | None = None) -> Variable:
    return Variable(
        field,
        int,
        lambda value: isinstance(value, int) and least <= value and (most is None or value <= most),
        f"a whole number of at least {least}" + (f" and at most {most}" if most else ""),
    )


VARIABLES = {
    "LIGHT_2D_ALLREDUCE": _switch("two_d"),
    "LIGHT_INTRA_SIZE": _whole("intra_size", 1),
    "LIGHT_HIERARCHICAL_THRESHOLD": _whole("hierarchical_threshold_bytes", 0),
    "LIGHT_TOPK_ALLREDUCE": _switch("topk"),
    "LIGHT_TOPK_RATIO": Variable(
        "topk_ratio",
        float,
        lambda value: isinstance(value, int | float) and 0 < value <= 1,
        "above 0 and at most 1",
    ),
    "LIGHT_TOPK_THRESHOLD": _whole("topk_threshold_bytes", 0),
    "LIGHT_TOPK_FP16": _switch("topk_fp16"),
    "LIGHT_TOPK_START_STEP": _whole("topk_start_step", STEPS_OF_FIRST_BUCKETS),
    "LIGHT_INTER_DTYPE": Variable(
        "inter_dtype", str, lambda value: value in INTER_DTYPES, f"one of {', '.join(INTER_DTYPES)}"
    ),
    "LIGHT_STATS": _switch("stats"),
    "TIACC_TRAINING_FUSION_THRESHOLD": _whole("fusion_bytes", 0, FUSION_BYTES_MAX),
    "TIACC_TRAINING_NUM_NCCL_STREAMS": _whole("streams", 1, STREAMS_MAX),
}


def from_environment(environment: Mapping[str, str], local_size: int | None = None) -> Settings:
    """Read the variables; an empty one counts as unset.

    local_size is the number of ranks on this host, if it is known otherwise than by LOCAL_WORLD_SIZE: the
    default of LIGHT_INTRA_SIZE. Raises LightccError that names the variable for unknown names and bad values.
    """
    unknown = sorted(name for name in environment if name.startswith(PREFIX) and name not in VARIABLES)
    if unknown:
        raise LightccError(f"{unknown[0]}: there is no such variable; lightcc knows {', '.join(VARIABLES)}")
    values: dict[str, object] = {}
    local = local_size or int(environment.get("LOCAL_WORLD_SIZE") or INTRA_SIZE_MAX)
    values["intra_size"] = max(size for size in range(1, INTRA_SIZE_MAX + 1) if local % size == 0)
    for name, variable in VARIABLES.items():
        text = environment.get(name, "").strip()
        if not text:
            continue
        try:
            value = variable.convert(text)
        except (ValueError, KeyError):
            value = None
        if value is None or not variable.allows(value):
            raise LightccError(f"{name}={text!r}: must be {variable.rule}")
        values[variable.field] = value
    return Settings(**values)  # type: ignore[arg-type]
