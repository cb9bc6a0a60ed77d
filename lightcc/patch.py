# SPDX-License-Identifier: Apache-2.0
"""Has every DistributedDataParallel of this process communicate by the settings."""

from __future__ import annotations

import atexit
import functools
import inspect
import os
import sys
import weakref
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lightcc import lane
from lightcc.groups import Plane, check_agreement, make_planes
from lightcc.hook import ModelState, communicate
from lightcc.lane import Lane, open_lane
from lightcc.notices import LightccError, warn
from lightcc.report import Report
from lightcc.settings import Settings, from_environment

STATES: weakref.WeakKeyDictionary[torch.nn.Module, ModelState] = weakref.WeakKeyDictionary()
OWN_HOOK = "the script registers a communication hook of its own"
_init = DistributedDataParallel.__init__
_register = DistributedDataParallel.register_comm_hook
_installed: Settings | None = None
_is_patched = False
_planes: weakref.WeakKeyDictionary[
    dist.ProcessGroup, dict[tuple[int, int, str], tuple[list[Plane], list[Lane]]]
] = weakref.WeakKeyDictionary()


def install(settings: Settings | None = None) -> None:
    """Attach every DDP that this process makes from now on.

    Without settings they are read from the environment. A second call with the same settings does nothing;
    with others it raises LightccError.
    """
    global _installed  # noqa: PLW0603  # it patches classes of the process
    settings = settings or from_environment(os.environ)
    if _installed is not None:
        if _installed != settings:
            raise LightccError("init() was called before, with other settings")
        return
    _installed = settings
    signature = inspect.signature(_init)

    @functools.wraps(_init)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind_partial(self, *args, **kwargs).arguments
        if settings.fusion_bytes is not None and not given.keys() & {"bucket_cap_mb", "bucket_cap_mb_list"}:
            kwargs["bucket_cap_mb"] = settings.fusion_bytes / 2**20
        _init(self, *args, **kwargs)
        attach(self, settings)

    DistributedDataParallel.__init__ = init
    _patch_torch()


def attach(ddp: Any, settings: Settings | None = None) -> ModelState | None:
    """Have one DDP communicate by the settings, or by the environment's; all its ranks call this together.

    Returns None, after a warning of why, where the settings do not fit the model, and without one where they
    ask for nothing. Raises LightccError where ranks disagree, or LIGHT_INTRA_SIZE does not divide them.
    """
    settings = settings or from_environment(os.environ)
    check_agreement(ddp.process_group, settings.record())
    if not settings.is_active:
        return None
    if ddp in STATES:
        raise LightccError("this DDP is attached already")
    size = dist.get_world_size(ddp.process_group)
    settings.check_rows(size, "model")
    why = _obstacle(ddp, settings, size)
    is_first = dist.get_rank(ddp.process_group) == 0
    if why:
        if is_first:
            warn(f"off for this model: {why}")
        return None
    if is_first:
        _hint(settings, size)
    device = next(parameter for parameter in ddp.module.parameters() if parameter.requires_grad).device
    rows = settings.intra_size if settings.two_d else 1
    planes, lanes = _shared(ddp.process_group, rows, settings.streams, device)
    state = ModelState(ddp.module, settings, planes, lanes)
    _patch_torch()
    _register(ddp, state, communicate)
    STATES[ddp] = state
    if settings.stats and is_first:
        atexit.register(_print_report, state.report)
    return state


def _shared(
    group: dist.ProcessGroup, rows: int, count: int, device: torch.device
) -> tuple[list[Plane], list[Lane]]:
    """Return planes and a lane for each; models of a group share them, as their buckets come in one order."""
    made = _planes.setdefault(group, {})
    key = (rows, count, str(device))
    if key not in made:
        made[key] = (make_planes(group, rows, count, device), [open_lane(device) for _ in range(count)])
    return made[key]


def _obstacle(ddp: Any, settings: Settings, size: int) -> str:
    """Return why a model's gradients cannot be, or need not be, communicated by the settings; else ""."""
    module = ddp.module
    obstacles = {
        f"its {size} ranks are on one host (LIGHT_INTRA_SIZE={settings.intra_size})": settings.intra_size >= size,
        "DDP's own mixed_precision has registered a communication hook": getattr(ddp, "mixed_precision", None),
        "torch._dynamo.config.optimize_ddp is a python_reducer, which gives hooks no buckets": getattr(
            ddp, "_use_python_reducer", False
        ),
        "its optimizer runs in backward, by a communication hook of its own": any(
            hasattr(parameter, "_in_backward_optimizers") for parameter in module.parameters()
        ),
        "it has sparse gradients": any(getattr(part, "sparse", False) for part in module.modules()),
        "it has complex parameters": any(parameter.is_complex() for parameter in module.parameters()),
        OWN_HOOK: getattr(ddp, "_comm_hooks", ()),
    }
    return next((text for text, applies in obstacles.items() if applies), "")


def _hint(settings: Settings, size: int) -> None:
    """Say what settings cannot reach, once for a model."""
    if settings.two_d and settings.intra_size == 1 and settings.inter_dtype == "same":
        warn("LIGHT_INTRA_SIZE=1: rows of one rank make LIGHT_2D_ALLREDUCE=1 a plain all-reduce")
    local = int(os.environ.get("LOCAL_WORLD_SIZE") or settings.intra_size)
    if settings.two_d and local % settings.intra_size:
        warn(f"LIGHT_INTRA_SIZE={settings.intra_size}: rows span hosts, which have {local} ranks")
    is_ring = os.environ.get("NCCL_ALGO", "").upper() == "RING"
    if is_ring and size == 2 * local:
        warn("NCCL_ALGO=RING: on two hosts NCCL's Tree sends about half of what a ring does; try without it")


def _patch_torch() -> None:
    """Patch, once in a process, what scripts call later."""
    global _is_patched  # noqa: PLW0603  # it patches classes of the process
    if _is_patched:
        return
    _is_patched = True
    destroy = dist.destroy_process_group

    @functools.wraps(_register)
    def register(self: Any, state: object, hook: Any) -> None:
        ours = STATES.get(self)
        if ours is None:
            _register(self, state, hook)
            return
        if ours.user_hook is not None:
            raise RuntimeError("register_comm_hook can only be called once.")
        if dist.get_rank(self.process_group) == 0:
            warn(f"off for this model: {OWN_HOOK}")
        ours.user_hook = (state, hook)

    @functools.wraps(destroy)
    def destroy_after_lanes(*args: Any, **kwargs: Any) -> None:
        if not args and not kwargs:  # all groups
            lane.close_all()
        destroy(*args, **kwargs)

    DistributedDataParallel.register_comm_hook = register
    dist.destroy_process_group = dist.distributed_c10d.destroy_process_group = destroy_after_lanes
    _follow_scalers()


def _follow_scalers() -> None:
    """Have residuals follow the scale of GradScaler, whose unit they have."""
    scaler_type = torch.amp.GradScaler
    update, step = scaler_type.update, scaler_type.step
    followers: weakref.WeakKeyDictionary[Any, weakref.WeakSet[ModelState]] = weakref.WeakKeyDictionary()

    @functools.wraps(step)
    def followed_step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        ids = {id(each) for group in optimizer.param_groups for each in group["params"]}
        known = followers.setdefault(self, weakref.WeakSet())
        known.update(state for state in STATES.values() if not ids.isdisjoint(state.names))
        return step(self, optimizer, *args, **kwargs)

    @functools.wraps(update)
    def followed_update(self: Any, *args: Any, **kwargs: Any) -> None:
        scale = getattr(self, "_scale", None)  # a tensor: reading it waits for no GPU
        before = scale.clone() if scale is not None else None
        update(self, *args, **kwargs)
        if before is not None:
            for state in followers.get(self, ()):
                state.rescale(self._scale / before)

    scaler_type.update, scaler_type.step = followed_update, followed_step


def _print_report(report: Report) -> None:
    print(report.line(), file=sys.stderr, flush=True)
