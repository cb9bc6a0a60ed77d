# SPDX-License-Identifier: Apache-2.0
"""The process groups of a 2D all-reduce, laid over the ranks of one process group in rows and columns."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.distributed as dist

from lightcc.notices import LightccError

_agreements: Counter[str] = Counter()  # by name of group: how many of this process began


@dataclass(frozen=True)
class Plane:
    """Groups that one lane uses alone: a row is consecutive ranks, of one host; a column crosses the hosts.

    Without rows (row_size 1) the column is all ranks.
    """

    whole: dist.ProcessGroup
    row: dist.ProcessGroup | None
    column: dist.ProcessGroup
    size: int
    row_size: int

    @property
    def hosts(self) -> int:
        """The ranks of a column."""
        return self.size // self.row_size


def make_planes(group: dist.ProcessGroup, row_size: int, count: int, device: torch.device) -> list[Plane]:
    """Make the groups of some planes over the ranks of a group, whose size row_size divides.

    All ranks of the group call this together. The new groups have the backends of the group, and the timeout
    that it has for tensors of the device.
    """
    ranks = dist.get_process_group_ranks(group)
    me = ranks.index(dist.get_rank())
    timeout = group._get_backend(device).options._timeout  # new_group has one of its own

    def make(members: list[int]) -> dist.ProcessGroup:
        return dist.new_group(
            members,
            timeout=timeout,
            backend=dist.get_backend_config(group),
            use_local_synchronization=True,
        )

    planes = []
    for _ in range(count):
        whole = make(ranks)
        row, column = None, whole
        if row_size > 1:
            first = me // row_size * row_size
            row = make(ranks[first : first + row_size])
            column = make(ranks[me % row_size :: row_size])
        planes.append(Plane(whole, row, column, len(ranks), row_size))
    return planes


def check_agreement(group: dist.ProcessGroup, record: Mapping[str, str]) -> None:
    """Compare a record of settings between all ranks of a group, which call this together.

    Raises LightccError on all ranks, if one has another record than the first rank: the text names both and
    what differs.
    """
    ranks = dist.get_process_group_ranks(group)
    rank = dist.get_rank()
    name = hashlib.sha256(str(ranks).encode()).hexdigest()
    _agreements[name] += 1
    store = dist.PrefixStore(
        f"lightcc/{name}/{_agreements[name]}",
        dist.distributed_c10d._get_default_store(),  # nothing public has it
    )
    if rank == ranks[0]:
        store.set("record", json.dumps(dict(record)))
    first = json.loads(store.get("record"))
    differing = [key for key in record if first.get(key) != record[key]]
    if differing:
        key = differing[0]
        store.set(
            "objection",
            f"{key} is {record[key]!r} on rank {rank} and {first.get(key)!r} on rank {ranks[0]}: "
            "it has to be the same on all ranks",
        )
    if store.add("checked", 1) == len(ranks):
        store.set("verdict", store.get("objection") if store.check(["objection"]) else "agreed")
    verdict = store.get("verdict").decode()
    if verdict != "agreed":
        raise LightccError(verdict)
