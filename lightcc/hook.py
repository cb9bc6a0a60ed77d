# SPDX-License-Identifier: Apache-2.0
"""The communication hook of one DistributedDataParallel: which gradients of a bucket go which way.

A step's buckets come in the same order on all ranks, and everything that is decided here is the same on all.
DDP refuses a hook with postponed annotations, so this module has none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from lightcc.groups import Plane
from lightcc.lane import Lane
from lightcc.notices import warn
from lightcc.reduce import Int8Hop, TopKHop, dense, dense_bytes, shard_numel, through_rows
from lightcc.report import Report
from lightcc.settings import STEPS_OF_FIRST_BUCKETS, Settings

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
Bucket = Any  # dist.GradBucket; spelled out where DDP looks at it
UserHook = tuple[object, Callable[[object, Bucket], torch.futures.Future[torch.Tensor]]]
RegionKey = tuple[int, str]  # the index of a bucket, and which of its gradients: TOPK or REST
TOPK, REST = "topk", "rest"


@dataclass(frozen=True)
class Layout:
    """The places of a bucket's gradients in its buffer.

    Names and slices are in the reverse order of the module's parameters, wherever DDP puts them in a bucket:
    residuals keep their meaning when only the order changes.
    """

    ids: tuple[int, ...]
    names: tuple[str, ...]
    large: tuple[slice, ...]  # the parts of at least LIGHT_TOPK_THRESHOLD bytes
    small: tuple[slice, ...]
    every: tuple[slice, ...]  # () where the buffer itself is in that order


@dataclass
class Region:
    """The hop with feedback of some gradients of a bucket."""

    names: tuple[str, ...]  # the parameters that the bucket had
    hop: TopKHop | Int8Hop


@dataclass
class SavedRegion:
    """Residuals of a checkpoint, until a bucket of the same parameters comes."""

    names: tuple[str, ...]
    residuals: list[torch.Tensor]


class ModelState:
    """The state of one model's hook: settings, groups, lanes, residuals, counters.

    The thread of the script uses it between steps, the lanes during backward.
    """

    def __init__(
        self, module: torch.nn.Module, settings: Settings, planes: list[Plane], lanes: list[Lane]
    ) -> None:
        self.settings = settings
        self.planes = planes
        self.names = {id(parameter): name for name, parameter in module.named_parameters()}
        self._places = {name: place for place, name in enumerate(self.names.values())}
        self.lanes = lanes  # one for each plane
        self.device = next(part for part in module.parameters() if part.requires_grad).device
        self.user_hook: UserHook | None = None  # the script's own, which wins
        self.step = 0  # the steps since training began, checkpoints counted
        self.own_step = 0  # the steps since this DDP was made
        self.regions: dict[RegionKey, Region] = {}
        self.saved: dict[RegionKey, SavedRegion] = {}
        self.report = Report(self.device)
        self._layouts: dict[int, Layout] = {}

    def __reduce__(self) -> tuple[type[None], tuple[()]]:
        """Leave it out of copies and pickles of the DDP, whose hook is not in them either."""
        return type(None), ()

    def layout(self, bucket: Bucket) -> Layout:
        """Return a bucket's layout; it is made anew when DDP has put other parameters into it."""
        ids = tuple(map(id, bucket.parameters()))
        found = self._layouts.get(bucket.index())
        if found is None or found.ids != ids:
            parts: list[tuple[str, slice]] = []
            at = 0
            for each, gradient in zip(ids, bucket.gradients(), strict=True):
                parts.append((self.names[each], slice(at, at + int(gradient.numel()))))
                at = parts[-1][1].stop
            ordered = sorted(parts, key=lambda part: -self._places[part[0]])
            least = -(-self.settings.topk_threshold_bytes // bucket.buffer().element_size())
            found = Layout(
                ids,
                tuple(name for name, _part in ordered),
                tuple(part for _name, part in ordered if part.stop - part.start >= least),
                tuple(part for _name, part in ordered if part.stop - part.start < least),
                () if ordered == parts else tuple(part for _name, part in ordered),
            )
            self._layouts[bucket.index()] = found
        return found

    def may_code(self, key: RegionKey, names: tuple[str, ...], start: int) -> bool:
        """Return whether a step codes gradients: once DDP's buckets are final, or a checkpoint has them."""
        if self.step < start:
            return False
        if self.own_step >= STEPS_OF_FIRST_BUCKETS:
            return True
        begun = self.saved.get(key) or self.regions.get(key)
        return begun is not None and begun.names == names

    def region(self, key: RegionKey, names: tuple[str, ...], make: Callable[[], TopKHop | Int8Hop]) -> Region:
        """Return the region of a bucket; a new one begins with a checkpoint's residuals, or with zero."""
        found = self.regions.get(key)
        saved = self.saved.get(key)
        is_saved = saved is not None and saved.names == names
        if found is None or found.names != names or is_saved:
            found = self.regions[key] = Region(names, make())
            if saved is not None and is_saved:
                found.hop.residuals = [part.to(self.device, copy=True) for part in saved.residuals]
                del self.saved[key]
        return found

    def end_step(self) -> None:
        """Count a step, whose last bucket was submitted."""
        self.step += 1
        self.own_step += 1
        self.report.steps += 1

    def drop_saved(self) -> None:
        """Forget what of a checkpoint no bucket took, once DDP's buckets are final."""
        if self.saved and self.own_step > STEPS_OF_FIRST_BUCKETS:
            warn(f"residuals of {len(self.saved)} buckets of the checkpoint fit no bucket now; begun anew")
            self.saved.clear()

    def rescale(self, factor: torch.Tensor) -> None:
        """Multiply all residuals by a tensor of one element, as the scale of the gradients was."""
        for region in self.regions.values():
            region.hop.rescale(factor)
        for saved in self.saved.values():
            saved.residuals = [part * factor.to(part.device) for part in saved.residuals]


def communicate(state: ModelState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Average a bucket's gradients over all ranks; the future's tensor is the bucket's own buffer."""
    if state.user_hook is not None:
        user_state, user = state.user_hook
        return user(user_state, bucket)
    index, layout, settings = bucket.index(), state.layout(bucket), state.settings
    if index == 0:
        state.drop_saved()
    large: tuple[slice, ...] = ()
    if settings.topk and state.may_code((index, TOPK), layout.names, settings.topk_start_step):
        large = layout.large
    is_int8 = settings.inter_dtype == "int8" and state.may_code(
        (index, REST), layout.names, STEPS_OF_FIRST_BUCKETS
    )
    if bucket.is_last():
        state.end_step()
    average = _Average(state, index, layout, large, is_int8)
    buffer = bucket.buffer()
    return state.lanes[index % len(state.lanes)].submit(lambda: average.run(buffer))


@dataclass(frozen=True)
class _Average:
    """The averaging of one bucket in one step; a lane runs it."""

    state: ModelState
    index: int
    layout: Layout
    large: tuple[slice, ...]  # what goes by top-k
    is_int8: bool

    @property
    def plane(self) -> Plane:
        return self.state.planes[self.index % len(self.state.planes)]

    def run(self, buffer: torch.Tensor) -> torch.Tensor:
        """Average a bucket's buffer in place; return it."""
        with torch.no_grad():
            buffer.div_(self.plane.size)
            if self.is_int8 and self.layout.every and not self.large:
                self._replace(buffer, self.layout.every, self.sum_rest)
                return buffer
            if not self.large:
                total = self.sum_rest(buffer)
                if total.data_ptr() != buffer.data_ptr():
                    buffer.copy_(total)
                return buffer
            self._replace(buffer, self.large, self.sum_large)
            if self.layout.small:
                self._replace(buffer, self.layout.small, self.sum_rest)
            return buffer

    def sum_large(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks of a vector's largest elements."""
        settings, plane = self.state.settings, self.plane
        numel = shard_numel(vector.numel(), plane)
        return self._sum_coded(
            vector,
            TOPK,
            lambda: TopKHop(
                numel, plane.column, settings.topk_ratio, fp16=settings.topk_fp16, device=vector.device
            ),
        )

    def sum_rest(self, vector: torch.Tensor) -> torch.Tensor:
        """Return the sum over all ranks of a vector, by rows where the settings say so."""
        settings, plane, size = self.state.settings, self.plane, int(vector.element_size())
        if not settings.two_d or vector.numel() * size > settings.hierarchical_threshold_bytes:
            sent = dense_bytes(vector.numel(), size, plane.size)
            return self.state.report.timed(lambda: dense(vector, plane.whole, None), sent, sent)
        numel = shard_numel(vector.numel(), plane)
        if self.is_int8:
            return self._sum_coded(vector, REST, lambda: Int8Hop(numel, plane.column, device=vector.device))
        dtype = DTYPES.get(settings.inter_dtype)
        sent = dense_bytes(numel, min(size, dtype.itemsize if dtype else size), plane.hosts)
        return self._sum(vector, lambda shard: dense(shard, plane.column, dtype), sent)

    def _replace(
        self, buffer: torch.Tensor, slices: tuple[slice, ...], add_up: Callable[[torch.Tensor], torch.Tensor]
    ) -> None:
        """Replace slices of a buffer by their sum over all ranks."""
        total = add_up(torch.cat([buffer[part] for part in slices]))
        sizes = [part.stop - part.start for part in slices]
        for part, piece in zip(slices, total.split(sizes), strict=True):
            buffer[part] = piece

    def _sum_coded(self, vector: torch.Tensor, kind: str, make: Callable[[], TopKHop | Int8Hop]) -> torch.Tensor:
        hop = self.state.region((self.index, kind), self.layout.names, make).hop
        return self._sum(vector, hop, hop.sent_bytes)

    def _sum(
        self, vector: torch.Tensor, hop: Callable[[torch.Tensor], torch.Tensor], sent_bytes: int
    ) -> torch.Tensor:
        """Sum a vector through the plane's rows; sent_bytes is what each rank sends in the hop."""
        plane, timed = self.plane, self.state.report.timed
        ring_bytes = dense_bytes(vector.numel(), vector.element_size(), plane.size)
        host_bytes = sent_bytes * plane.row_size
        return through_rows(vector, plane, lambda shard: timed(lambda: hop(shard), host_bytes, ring_bytes))
