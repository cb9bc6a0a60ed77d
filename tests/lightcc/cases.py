# SPDX-License-Identifier: Apache-2.0
"""Cases of four ranks together, called by name from the tests; each returns what JSON can hold."""

from __future__ import annotations

import copy
import itertools
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives  # DDP of torch 2.4 uses it, and does not import it
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook, fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import lightcc
from lightcc import Settings, lane, patch
from lightcc.groups import make_planes
from lightcc.reduce import Int8Hop, TopKHop
from tests.lightcc import digits, streams
from tests.lightcc.crossing import Crossing, shortened

SMALL_THRESHOLD = 4096  # bytes: the larger layers of the test's networks go by top-k
TINY_BUCKETS_MB = 0.002  # three buckets
WARM_STEPS = 4  # connections, and buckets laid out anew
Tensor = Any


def settings(**own: Any) -> Settings:
    """Return settings of two hosts of two ranks."""
    return Settings(**{"intra_size": 2, "topk_threshold_bytes": SMALL_THRESHOLD, **own})


def flat(parameters: Iterator[Tensor]) -> Tensor:
    return torch.cat([each.detach().float().flatten() for each in parameters])


def are_replicas_equal(vector: Tensor) -> bool:
    every = [torch.empty_like(vector) for _ in range(dist.get_world_size())]
    dist.all_gather(every, vector)
    return all(torch.equal(each, vector) for each in every)


def batches(steps: int, seed: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    for _ in itertools.repeat(None, steps):
        yield torch.randn(8, 64, generator=generator), torch.randint(10, (8,), generator=generator)


def loss_of(ddp: Any, batch: tuple[Tensor, Tensor]) -> Tensor:
    dtype = next(ddp.parameters()).dtype
    return torch.nn.functional.cross_entropy(ddp(batch[0].to(dtype)).float(), batch[1])


def with_unused(net: Any) -> Any:
    """Add parameters that no step uses."""
    net.spare = torch.nn.Linear(70, 70)
    forward = net.forward
    first = list(net.children())[:-1]

    def skip_spare(inputs: Tensor) -> Tensor:
        for layer in first:
            inputs = layer(inputs)
        return inputs

    assert forward
    net.forward = skip_spare
    return net


def trained(
    chosen: Settings | None,
    steps: int = 60,
    *,
    width: int = 64,
    accumulated: int = 1,
    dtype: Any = None,
    unused: bool = False,
    **options: Any,
) -> tuple[Tensor, Any]:
    """Train a network by SGD; return its parameters and the DDP."""
    net = digits.network(width, seed=0)
    if unused:
        net = with_unused(net)
    ddp = DistributedDataParallel(net.to(dtype) if dtype else net, **options)
    if chosen is not None:
        assert lightcc.attach(ddp, chosen)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    for number, batch in enumerate(batches(steps * accumulated)):
        if (number + 1) % accumulated:
            with ddp.no_sync():
                loss_of(ddp, batch).backward()
            continue
        loss_of(ddp, batch).backward()
        optimizer.step()
        optimizer.zero_grad()
    return flat(net.parameters()), ddp


def compare(chosen: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Train with DDP's own all-reduce and with settings; return how far apart the parameters are."""
    plain, _ddp = trained(None, **options)
    ours, ddp = trained(settings(**chosen), **options)
    return {
        "are_equal": bool(torch.equal(plain, ours)),
        "norm": float((plain - ours).norm() / plain.norm()),
        "replicas": are_replicas_equal(ours),
        "stats": lightcc.stats(ddp),
        "buckets": len(patch.STATES[ddp]._layouts),
    }


def coded(chosen: dict[str, Any], *, bf16: bool = False, **options: Any) -> dict[str, Any]:
    """Train with settings that lose accuracy; return what holds for them, too."""
    ours, ddp = trained(settings(**chosen), dtype=torch.bfloat16 if bf16 else None, **options)
    state = patch.STATES[ddp]
    return {
        "replicas": are_replicas_equal(ours),
        "is_finite": bool(torch.isfinite(ours).all()),
        "regions": len(state.regions),
        "stats": lightcc.stats(ddp),
    }


def many_lanes(steps: int) -> bool:
    """Train with three lanes and tiny buckets; return whether all replicas are equal."""
    chosen = settings(two_d=True, topk=True, inter_dtype="int8", streams=3)
    ours, _ddp = trained(chosen, steps, bucket_cap_mb=TINY_BUCKETS_MB)
    return are_replicas_equal(ours)


def on_streams(chosen: dict[str, Any]) -> dict[str, Any]:
    """Train with lanes that are threads, then with those of CUDA over a stand-in; compare the parameters."""
    threads, _ddp = trained(settings(**chosen), 12, bucket_cap_mb=TINY_BUCKETS_MB)
    with (
        streams.installed(),
        mock.patch.object(patch, "open_lane", side_effect=lambda _device: lane.CudaLane(streams.DEVICE)),
        mock.patch.object(patch, "_planes", weakref.WeakKeyDictionary()),
    ):
        ours, ddp = trained(settings(**chosen), 12, bucket_cap_mb=TINY_BUCKETS_MB)
    return {
        "are_equal": bool(torch.equal(threads, ours)),
        "replicas": are_replicas_equal(ours),
        "lanes": [type(each).__name__ for each in patch.STATES[ddp].lanes],
    }


def begun(start: int) -> list[int]:
    """Return the bytes that leave a host in each step, where top-k begins at a step."""
    ddp = DistributedDataParallel(digits.network(64, seed=0))
    lightcc.attach(ddp, settings(topk=True, topk_threshold_bytes=0, topk_start_step=start))
    counts = [0]
    for batch in batches(start + 2):
        loss_of(ddp, batch).backward()
        counts.append(int(lightcc.stats(ddp)["host_bytes"]))
    return [after - before for before, after in itertools.pairwise(counts)]


def uneven(chosen: dict[str, Any]) -> dict[str, Any]:
    """Ranks have different numbers of batches, and join(); compare with DDP's own all-reduce."""

    def run(attached: bool) -> Tensor:
        net = digits.network(32, seed=0)
        ddp = DistributedDataParallel(net)
        if attached:
            lightcc.attach(ddp, settings(**chosen))
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        with ddp.join():
            for batch in batches(4 + 2 * dist.get_rank()):
                loss_of(ddp, batch).backward()
                optimizer.step()
                optimizer.zero_grad()
        return flat(net.parameters())

    plain, ours = run(attached=False), run(attached=True)
    return {"norm": float((plain - ours).norm() / plain.norm()), "replicas": are_replicas_equal(ours)}


def nothing_is_lost(chosen: dict[str, Any], **options: Any) -> dict[str, float]:
    """Sum gradients of a network that does not change; what was not applied is in the residuals."""
    sums = []
    for attached in (False, True):
        ddp = DistributedDataParallel(digits.network(64, seed=0), **options)
        if attached:
            lightcc.attach(ddp, settings(**chosen))
        total = 0.0
        for batch in batches(8):
            loss_of(ddp, batch).backward()
            total += float(sum(each.grad.double().sum() for each in ddp.parameters()))
            ddp.zero_grad()
        sums.append(total)
    state = patch.STATES[ddp]
    rest = sum(part.double().sum() for region in state.regions.values() for part in region.hop.residuals)
    left = torch.tensor([float(rest)], dtype=torch.float64)
    dist.all_reduce(left)
    wanted, got = sums
    largest = max(float(part.abs().max()) for each in state.regions.values() for part in each.hop.residuals)
    return {"missing": wanted - got, "left": float(left), "largest": largest, "regions": len(state.regions)}


def rebuilt() -> dict[str, Any]:
    """Return whether buckets were laid out anew after the first step, and residuals are of the later ones."""
    net = digits.network(64, seed=0)
    order = [4, 0, 2]  # the reverse of what backward does, so that DDP lays its buckets out anew
    parameters = torch.nn.ParameterList([each for at in order for each in net[at].parameters()])
    module = torch.nn.ModuleList([parameters, net])
    module.forward = net.forward
    ddp = DistributedDataParallel(module, bucket_cap_mb=TINY_BUCKETS_MB)
    lightcc.attach(ddp, settings(topk=True, topk_threshold_bytes=0))
    state = patch.STATES[ddp]
    layouts = []
    for batch in batches(4):
        loss_of(ddp, batch).backward()
        layouts.append({index: each.names for index, each in state._layouts.items()})
        ddp.zero_grad()
    return {
        "changed": layouts[0] != layouts[-1],
        "fits": all(
            region.names == layouts[-1][index]
            and region.hop.residuals[0].numel()
            == sum(ddp.module.get_parameter(name).numel() for name in region.names)
            for (index, _kind), region in state.regions.items()
        ),
        "regions": len(state.regions),
        "buckets": len(layouts[-1]),
    }


def one_infinity(chosen: dict[str, Any]) -> dict[str, Any]:
    """An infinite loss on one rank at step 5: GradScaler skips that step on all ranks, and no other."""
    net = digits.network(64, seed=0)
    ddp = DistributedDataParallel(net)
    lightcc.attach(ddp, settings(**chosen))
    state = patch.STATES[ddp]
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=1000)
    skipped, before, after = [], 0.0, 0.0
    for step, batch in enumerate(batches(12)):
        loss = scaler.scale(loss_of(ddp, batch))
        old = flat(net.parameters())
        norm = _residual_norm(state)
        (loss * float("inf") if step == 5 and dist.get_rank() == 0 else loss).backward()
        scaler.step(optimizer)
        if step == 5:
            before = norm
        scaler.update()
        if step == 5:
            after = _residual_norm(state)
        if torch.equal(old, flat(net.parameters())):
            skipped.append(step)
        optimizer.zero_grad()
    return {
        "skipped": skipped,
        "scale": scaler.get_scale(),
        "ratio": after / before,
        "is_finite": bool(torch.isfinite(flat(net.parameters())).all()),
        "replicas": are_replicas_equal(flat(net.parameters())),
    }


def _residual_norm(state: Any) -> float:
    """Return the norm of a rank's first residuals, which each step changes unless its sum is infinite."""
    parts = [part.double().norm() ** 2 for each in state.regions.values() for part in each.hop.residuals]
    return float(sum(map(float, parts)) ** 0.5)


def restored(chosen: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Train 12 steps; then 6, a checkpoint, and 6 by new objects. Return whether the parameters are equal."""

    def run(net: Any, saved: dict[str, Any] | None, begin: int, end: int) -> dict[str, Any]:
        ddp = DistributedDataParallel(net, **options)
        lightcc.attach(ddp, settings(**chosen))
        is_taken = saved is None or lightcc.load_state_dict(ddp, saved)
        optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
        for batch in list(batches(12))[begin:end]:
            loss_of(ddp, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
        state = lightcc.state_dict(ddp)
        regions = len(state["regions"])
        return {"net": net, "lightcc": copy.deepcopy(state), "is_taken": is_taken, "regions": regions}

    whole = run(digits.network(64, seed=0), None, 0, 12)
    half = run(digits.network(64, seed=0), None, 0, 6)
    rest = run(copy.deepcopy(half["net"]), half["lightcc"], 6, 12)
    lost = run(copy.deepcopy(half["net"]), None, 6, 12)
    results = {name: flat(each["net"].parameters()) for name, each in (("w", whole), ("r", rest), ("l", lost))}
    return {
        "is_taken": rest["is_taken"],
        "regions": half["regions"],
        "are_equal": bool(torch.equal(results["w"], results["r"])),
        "would_differ": not torch.equal(results["w"], results["l"]),
        "step": rest["lightcc"]["step"],
    }


def misfit(what: str) -> bool:
    """Load a checkpoint that does not fit; return whether it was taken."""
    chosen = settings(topk=True)
    _parameters, ddp = trained(chosen, 4)
    saved = lightcc.state_dict(ddp)
    other = DistributedDataParallel(digits.network(64, seed=0))
    if what == "ratio":
        chosen = settings(topk=True, topk_ratio=0.5)
    lightcc.attach(other, chosen)
    if what == "ranks":
        saved["fits"]["the number of ranks"] = "8"
    if what == "step" and dist.get_rank() == 2:
        saved["step"] += 1
    if what == "none" and dist.get_rank() == 3:
        saved = {}
    taken = lightcc.load_state_dict(other, saved)
    loss_of(other, next(batches(1))).backward()
    return taken


def refit() -> list[bool]:
    """Load a checkpoint of other buckets; return whether it was taken, and whether the model has residuals."""
    chosen = settings(topk=True, topk_threshold_bytes=0)
    saved = lightcc.state_dict(trained(chosen, 4, bucket_cap_mb=TINY_BUCKETS_MB)[1])
    ddp = DistributedDataParallel(digits.network(64, seed=0))
    lightcc.attach(ddp, chosen)
    taken = lightcc.load_state_dict(ddp, saved)
    for batch in batches(4):
        loss_of(ddp, batch).backward()
    return [taken, set(lightcc.state_dict(ddp)["regions"]) == {(0, "topk")}]


def twice() -> None:
    """Attach a model that is attached."""
    ddp = trained(settings(topk=True), 1)[1]
    lightcc.attach(ddp, settings(topk=True))


def disagree() -> None:
    """One rank has another ratio."""
    ddp = DistributedDataParallel(digits.network(8, seed=0))
    lightcc.attach(ddp, settings(topk=True, topk_ratio=0.02 if dist.get_rank() == 2 else 0.01))


def indivisible() -> None:
    """Rows of three do not divide four ranks."""
    lightcc.attach(DistributedDataParallel(digits.network(8, seed=0)), settings(two_d=True, intra_size=3))


def off(why: str) -> dict[str, Any]:
    """Attach a model that cannot be; return whether it was, and whether it trains."""
    net: Any = digits.network(8, seed=0)
    chosen = settings(two_d=True, topk=True)
    if why == "sparse":
        inner = net
        table = torch.nn.Embedding(64, 64, sparse=True)
        net = torch.nn.ModuleList([table, inner])
        net.forward = lambda inputs: inner(table(inputs.argmax(1)))
    if why == "complex":
        net.phases = torch.nn.Parameter(torch.ones(4, dtype=torch.complex64))
    if why == "backward":
        from torch.distributed.optim import _apply_optimizer_in_backward

        _apply_optimizer_in_backward(torch.optim.SGD, net.parameters(), {"lr": 0.05})
    options: dict[str, Any] = {}
    if why == "mixed":
        from torch.nn.parallel.distributed import _MixedPrecision

        options["mixed_precision"] = _MixedPrecision(param_dtype=torch.float32)
    if why == "reducer":
        with torch._dynamo.config.patch(optimize_ddp="python_reducer"):
            ddp = DistributedDataParallel(net)
    else:
        ddp = DistributedDataParallel(net, **options)
    if why == "own":
        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

        ddp.register_comm_hook(None, allreduce_hook)
    if why == "host":
        chosen = settings(two_d=True, intra_size=8)
    is_attached = lightcc.attach(ddp, chosen)
    if why not in {"backward", "mixed", "reducer", "complex"}:  # the first three need a GPU
        loss_of(ddp, next(batches(1))).backward()
    return {"is_attached": is_attached, "stats": lightcc.stats(ddp)}


def own_hook_later() -> dict[str, Any]:
    """The script registers a hook after ours: it alone is called, and a second one is refused."""
    ddp = DistributedDataParallel(digits.network(8, seed=0))
    lightcc.attach(ddp, settings(topk=True, topk_threshold_bytes=0))
    calls = []

    def hook(state: object, bucket: Any) -> Any:
        calls.append(state)
        future: Any = torch.futures.Future()
        future.set_result(bucket.buffer().zero_())
        return future

    hook.__annotations__ = {}
    ddp.register_comm_hook("mine", hook)
    loss_of(ddp, next(batches(1))).backward()
    gradients = flat(each.grad for each in ddp.parameters())
    try:
        ddp.register_comm_hook(None, hook)
    except RuntimeError as error:
        refusal = str(error)
    return {"calls": calls, "norm": float(gradients.norm()), "refusal": refusal}


def copied() -> bool:
    """A copy of an attached DDP is one without lightcc, as a copy without its hook is."""
    _parameters, ddp = trained(settings(topk=True), 3)
    other = copy.deepcopy(ddp)
    loss_of(other, next(batches(1))).backward()
    return not lightcc.stats(other) and bool(lightcc.stats(ddp))


def in_pairs() -> bool:
    """Attach models of pairs of ranks, each on one host, so that lightcc is off for them."""
    members = [rank for rank in range(4) if rank % 2 == dist.get_rank() % 2]
    group = dist.new_group(members, use_local_synchronization=True)
    ddp = DistributedDataParallel(digits.network(8, seed=0), process_group=group)
    return lightcc.attach(ddp, settings(two_d=True))


def shared() -> dict[str, Any]:
    """Two models of one group use the same groups and lanes; a model of a subgroup has its own."""
    first = trained(settings(two_d=True), 2)[1]
    second = trained(settings(two_d=True), 2)[1]
    planes = [patch.STATES[each].planes for each in (first, second)]
    pair = [rank for rank in range(4) if rank % 2 == dist.get_rank() % 2]
    group = dist.new_group(pair, use_local_synchronization=True)
    ddp = DistributedDataParallel(digits.network(8, seed=0), process_group=group)
    lightcc.attach(ddp, settings(topk=True, topk_ratio=1.0, topk_threshold_bytes=0, intra_size=1))
    for batch in batches(4):
        loss_of(ddp, batch).backward()
    return {
        "are_shared": planes[0] is planes[1],
        "ranks": dist.get_process_group_ranks(patch.STATES[ddp].planes[0].whole),
        "pair": pair,
        "timeout_s": patch.STATES[ddp].planes[0].whole._get_backend(torch.device("cpu")).options._timeout.seconds,
    }


def hops(numel: int, seed: int) -> dict[str, Any]:
    """Sum vectors of all ranks by all hops: what is sent and what is left is all; then an infinity."""
    whole = dist.group.WORLD
    generator = torch.Generator().manual_seed(100 * seed + dist.get_rank())
    makes: dict[str, Callable[[], TopKHop | Int8Hop]] = {
        "topk": lambda: TopKHop(numel, whole, 0.1, fp16=False, device=torch.device("cpu")),
        "fp16": lambda: TopKHop(numel, whole, 0.1, fp16=True, device=torch.device("cpu")),
        "int8": lambda: Int8Hop(numel, whole, device=torch.device("cpu")),
    }
    found: dict[str, Any] = {}
    for name, make in makes.items():
        hop = make()
        wanted, got = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
        for _step in range(5):
            vector = torch.randn(numel, generator=generator)
            total = hop(vector.clone())
            exact = vector.double()
            dist.all_reduce(exact)
            wanted += exact
            got += total.double()
        before = [part.clone() for part in hop.residuals]
        vector = torch.randn(numel, generator=generator)
        if dist.get_rank() == 1:
            vector[numel // 2] = float("inf")
        is_infinite = not torch.isfinite(hop(vector)).all()
        left = hop.residuals[0][:numel].double()
        if len(hop.residuals) > 1:
            part = hop.residuals[1].numel()
            padded = torch.zeros(part * 4, dtype=torch.float64)
            padded[dist.get_rank() * part :][:part] = hop.residuals[1].double()
            left = left + padded[:numel]
        dist.all_reduce(left)
        found[name] = {
            "off": float((wanted - got - left).abs().max()),
            "replicas": are_replicas_equal(got.float()),
            "is_infinite": is_infinite,
            "is_kept": all(torch.equal(a, b) for a, b in zip(before, hop.residuals, strict=True)),
        }
    return found


def posted(numel: int) -> list[list[str]]:
    """Return the order in which exchanges of two ranks post receives and sends: two of int8, then top-k's."""
    cpu = torch.device("cpu")
    (plane,) = make_planes(dist.group.WORLD, 2, 1, cpu)
    found: list[list[str]] = []
    run = dist.batch_isend_irecv

    def recorded(operations: list[dist.P2POp]) -> Any:
        found.append([each.op.__name__ for each in operations])
        return run(operations)

    with mock.patch.object(dist, "batch_isend_irecv", recorded):
        Int8Hop(numel, plane.column, device=cpu)(torch.ones(numel))
        TopKHop(numel, plane.column, 0.1, fp16=False, device=cpu)(torch.ones(numel))
    return found


def timed(chosen: dict[str, Any] | None, interface: str, steps: int, width: int) -> dict[str, Any]:
    """Return the ms of each step, alone_ms of each that sends next to nothing, and what is sent.

    The two kinds of step alternate, so that a busy machine slows both; each lasts until all ranks have ended.
    hops are the exchanges of each step alone. bytes and packets are those that this host's interface sent in a
    step, messages those of gloo, payload the gradients' bytes by the formula. Without settings DDP's own
    all-reduce; the setting "hook" is torch's own hook of 16 bit.
    """
    ddp = DistributedDataParallel(digits.network(width, seed=0))
    parameters = sum(each.numel() for each in ddp.parameters())
    payload = 2 * (dist.get_world_size() - 1) * 4 * parameters / dist.get_world_size()
    if chosen == {"hook": 16}:
        ddp.register_comm_hook(None, fp16_compress_hook)
        payload /= 2
    elif chosen is not None:
        assert lightcc.attach(ddp, settings(**chosen))
    else:
        ddp.register_comm_hook(None, allreduce_hook)  # does what DDP does by itself
    times: dict[bool, list[float]] = {False: [], True: []}
    sent = Counter[str]()
    messages, hops = 0, []
    for step, batch in enumerate(batches(WARM_STEPS + 2 * steps)):
        alone = step >= WARM_STEPS and step % 2 == 0
        dist.barrier()
        before = counted(ddp, interface)
        crossing = Crossing()
        begin = time.perf_counter()
        with shortened(crossing) if alone else nullcontext():
            loss_of(ddp, batch).backward()
        dist.barrier()
        if step >= WARM_STEPS:
            times[alone].append(1e3 * (time.perf_counter() - begin))
            if alone:
                hops.append(crossing.hops)
                messages += crossing.messages
            else:
                sent.update(counted(ddp, interface) - before)
    got = {name: sent[name] / steps for name in ("bytes", "packets", "payload")}
    return {
        **got,
        "payload": got["payload"] or payload,
        "messages": messages / steps,
        "hops": hops,
        "ms": times[False],
        "alone_ms": times[True],
    }


def counted(ddp: Any, interface: str) -> Counter[str]:
    """Return what an interface of this host has sent, and lightcc's payload."""
    lines = Path("/proc/net/dev").read_text(encoding="utf-8").splitlines()
    (found,) = [line.split(":")[1].split() for line in lines if line.strip().startswith(f"{interface}:")]
    payload = int(lightcc.stats(ddp).get("host_bytes", 0))
    return Counter({"bytes": int(found[8]), "packets": int(found[9]), "payload": payload})


def accuracy(chosen: dict[str, Any] | None, seed: int, steps: int, width: int) -> float:
    """Return the percentage of the test images that a network recognizes after some steps."""

    def make(net: Any) -> Any:
        ddp = DistributedDataParallel(net)
        if chosen is not None:
            assert lightcc.attach(ddp, settings(**chosen))
        return ddp

    net = digits.network(width, seed)
    share = digits.train(net, steps, seed, make)
    assert are_replicas_equal(flat(net.parameters()))
    return 100 * share
