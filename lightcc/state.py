# SPDX-License-Identifier: Apache-2.0
"""Residuals in checkpoints: each rank saves and loads its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from lightcc.groups import check_agreement
from lightcc.hook import ModelState, SavedRegion
from lightcc.notices import LightccError, warn
from lightcc.patch import STATES

SHAPING = (
    "LIGHT_2D_ALLREDUCE",
    "LIGHT_INTRA_SIZE",
    "LIGHT_TOPK_RATIO",
    "LIGHT_TOPK_THRESHOLD",
    "LIGHT_INTER_DTYPE",
)


def state_dict(ddp: torch.nn.Module) -> dict[str, Any]:
    """Return what a checkpoint of this rank has to hold so that training goes on as if uninterrupted.

    The tensors are copies. Empty for a model that lightcc is off for.
    """
    state = STATES.get(ddp)
    if state is None:
        return {}
    regions = {
        key: (region.names, [part.clone() for part in region.hop.residuals])
        for key, region in state.regions.items()
    }
    regions |= {key: (saved.names, saved.residuals) for key, saved in state.saved.items()}
    return {"step": state.step, "fits": _fits(ddp, state), "regions": regions}


def load_state_dict(ddp: torch.nn.Module, saved: Mapping[str, Any]) -> bool:
    """Take over what state_dict() returned, before the first step; all ranks of the model call this together.

    Returns whether it was taken. Where the number of ranks or a setting that shapes the residuals differs, or
    ranks have checkpoints of different steps, all ranks warn, drop it, and begin with residuals of zero.
    """
    state = STATES.get(ddp)
    if state is None:
        return False
    why = _misfit(saved, _fits(ddp, state))
    try:
        check_agreement(ddp.process_group, {"the checkpoint": why or f"of step {saved['step']}"})
    except LightccError as error:
        why = why or str(error)
    if why:
        warn(f"the checkpoint's residuals are dropped: {why}")
        return False
    state.step = int(saved["step"])
    state.saved = {
        key: SavedRegion(tuple(names), list(residuals)) for key, (names, residuals) in saved["regions"].items()
    }
    return True


def _fits(ddp: Any, state: ModelState) -> dict[str, str]:
    """Return what has to be the same for residuals to keep their meaning."""
    record = state.settings.record()
    return {"the number of ranks": str(dist.get_world_size(ddp.process_group))} | {
        name: record[name] for name in SHAPING
    }


def _misfit(saved: Mapping[str, Any], fits: Mapping[str, str]) -> str:
    if not saved:
        return "it has none"
    for name, now in fits.items():
        then = saved["fits"].get(name)
        if then != now:
            return f"{name} was {then} and is {now}"
    return ""
