# SPDX-License-Identifier: Apache-2.0
"""Fewer bytes between hosts for PyTorch's DistributedDataParallel, by environment variables.

python -m lightcc.launch takes the place of torchrun; a script needs no change. torch is imported by the
functions, not by this module, so that a launcher can say what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lightcc.notices import LightccError, LightccWarning, require_torch
from lightcc.settings import Settings

if TYPE_CHECKING:
    import torch

__all__ = [
    "LightccError",
    "LightccWarning",
    "Settings",
    "attach",
    "init",
    "load_state_dict",
    "state_dict",
    "stats",
]


def init(settings: Settings | None = None) -> None:
    """Have each DDP that this process makes from now on communicate by the settings.

    Without settings the environment's variables count. Raises LightccError for bad ones, for an old torch,
    and for a second call with other settings.
    """
    require_torch()
    from lightcc import patch

    patch.install(settings)


def attach(ddp: torch.nn.Module, settings: Settings | None = None) -> bool:
    """Have one DDP communicate by the settings; all its ranks call this together, before the first backward.

    Returns whether it does; a warning says why not. Raises LightccError where ranks disagree.
    """
    require_torch()
    from lightcc import patch

    return patch.attach(ddp, settings) is not None


def stats(ddp: torch.nn.Module) -> dict[str, float]:
    """Return what this rank counted: steps, hops, host_bytes, ring_bytes, hop_ms; {} where lightcc is off.

    host_bytes left its host, sent by all ranks of the row; ring_bytes is what a ring of all ranks had sent.
    """
    from lightcc import patch

    state = patch.STATES.get(ddp)
    return state.report.stats() if state else {}


def state_dict(ddp: torch.nn.Module) -> dict[str, Any]:
    """Return what a checkpoint of this rank has to hold; the tensors are copies."""
    from lightcc import state

    return state.state_dict(ddp)


def load_state_dict(ddp: torch.nn.Module, saved: Mapping[str, Any]) -> bool:
    """Take over a checkpoint before the first step; all ranks call this together. Returns whether it fits."""
    from lightcc import state

    return state.load_state_dict(ddp, saved)
