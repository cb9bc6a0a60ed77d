# SPDX-License-Identifier: Apache-2.0
"""Figures of docs/reference/lightcc.md: python -m tests.lightcc.measure accuracy | encode | lab MBPS ...

`accuracy` trains the digits with each setting on five seeds. `lab` (root) measures bytes and time of a step
of two hosts of two ranks, in network namespaces whose links have each cap in turn. Formula of the bytes:
lightcc's, the heads of gloo's messages, and those of the packets, which the interface counts. Formula of the
time: a step in which ranks wait for each other but nothing crosses hosts, and what the bytes add to it at the
cap, if columns take turns on the link when they were ready in that step. `encode` times the codecs on one
thread.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.lightcc.conftest import ROOT, environment, free_port
from tests.lightcc.pipeline import Spans, added_s, column_of

SEEDS = range(5)
STEPS, WIDTH = 300, 256
LAB_STEPS, LAB_WIDTH = 40, 1024  # 1,126,410 parameters
HEAD_BYTES = 14 + 20 + 32  # a packet has those of Ethernet, IPv4 and TCP with timestamps
GLOO_BYTES = 3 * 48  # a message has its head, and its sender and its receiver each say that they are ready
QUEUE_US = 100_000  # a cap's, so that TCP loses nothing; its bucket then holds no more than two packets
NUMELS = (1 << 20, 4 << 20, 25_557_032)  # the last: of ResNet50
BYTES_OFF_MAX, MS_OFF_MAX = 0.02, 0.05  # then the formula is wrong, or the machine was busy
ENCODINGS = 5
METHODS: dict[str, dict[str, Any] | None] = {
    "plain": None,
    "torch's hook of 16 bit": {"hook": 16},
    "2D": {"two_d": True},
    "2D bf16": {"two_d": True, "inter_dtype": "bf16"},
    "2D int8": {"two_d": True, "inter_dtype": "int8"},
    "top-k 1 %": {"topk": True},
    "2D, top-k 1 %": {"two_d": True, "topk": True},
}
COLUMNS = ((0, 2), (1, 3))  # ranks of the two hosts
ACCURATE = ("plain", "2D int8", "top-k 1 %", "2D, top-k 1 %")


class Ranks:
    """Four ranks in one process or in one of each host, which run cases together."""

    def __init__(self, commands: Sequence[Sequence[str]], **own: str) -> None:
        self._processes = [
            subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment(**own),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for command in commands
        ]

    def run(self, case: str, **arguments: object) -> list[Any]:
        """Run a case; return what it returned on each rank."""
        for process in self._processes:
            assert process.stdin
            print(json.dumps({"case": case, "arguments": arguments}), file=process.stdin, flush=True)
        found: list[Any] = []
        for process in self._processes:
            assert process.stdout
            found += json.loads(process.stdout.readline())
        if any("error" in each for each in found):
            raise SystemExit("\n".join(each.get("error", "") for each in found))
        return [each["result"] for each in found]

    def close(self) -> None:
        """End the ranks."""
        for process in self._processes:
            assert process.stdin
            process.stdin.close()
        for process in self._processes:
            process.wait(60)


@contextmanager
def ranks(commands: Sequence[Sequence[str]], **own: str) -> Iterator[Ranks]:
    """Start ranks, and end them."""
    started = Ranks(commands, **own)
    try:
        yield started
    finally:
        started.close()


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "tests.lightcc.ranks", *words]


def accuracy() -> None:
    """Print a row of each method: percentages by seed, and the mean."""
    with ranks([argv(str(free_port()))]) as four:
        for name in ACCURATE:
            got = [
                four.run("accuracy", chosen=METHODS[name], seed=seed, steps=STEPS, width=WIDTH)[0]
                for seed in SEEDS
            ]
            print(
                "|",
                " | ".join([name, *(f"{each:.2f}" for each in [*got, statistics.mean(got)])]),
                "|",
                flush=True,
            )


def formula_ms(
    hops: Sequence[Sequence[Sequence[Spans]]], alone_ms: Sequence[float], sent_bytes: float, cap_mbps: float
) -> list[float]:
    """Return the ms of each step alone, once it sends bytes over the capped link.

    hops are the exchanges of columns by rank and step; a method without columns has none, and hides nothing.
    Heads are added to them in proportion. Columns wait for each other after each hop, for the sum of a row.
    """
    link_ms = 8e-3 * sent_bytes / cap_mbps
    found = []
    for step, ms in enumerate(alone_ms):
        planes = [
            [column_of([hops[rank][step][hop] for rank in column]) for column in COLUMNS]
            for hop in range(len(hops[0][step]))
        ]
        payload = sum(sent for plane in planes for column in plane for _pause, sent in column)
        bytes_s = payload / (link_ms / 1e3)
        found.append(ms + (1e3 * sum(added_s(plane, bytes_s) for plane in planes) if planes else link_ms))
    return found


def lab(caps_mbps: Sequence[float]) -> None:
    """Print a row of each cap and method: what was measured beside the formula, and by how much it is off.

    Times are medians, with the quartiles around them.
    """
    print("| Mbit/s | setting | MB | formula | off | ms alone | ms | formula | off |")
    far: list[str] = []
    for cap in caps_mbps:
        with ExitStack() as stack:
            built = stack.enter_context(Lab(LabSpec(cap_mbps=cap, queue_us=QUEUE_US)))
            port, address, interface = str(free_port()), built.address(0), built.enis[0]
            commands = [built.command(host, argv(port, address, own)) for host, own in ((0, "0,1"), (1, "2,3"))]
            four = stack.enter_context(ranks(commands, GLOO_SOCKET_IFNAME=interface))
            for name, chosen in METHODS.items():
                every = four.run("timed", chosen=chosen, interface=interface, steps=LAB_STEPS, width=LAB_WIDTH)
                got = every[0]
                sent = got["payload"] + GLOO_BYTES * got["messages"] + HEAD_BYTES * got["packets"]
                quartiles = {each: statistics.quantiles(got[each]) for each in ("alone_ms", "ms")}
                ms = statistics.median(formula_ms([each["hops"] for each in every], got["alone_ms"], sent, cap))
                bytes_off, ms_off = got["bytes"] / sent - 1, quartiles["ms"][1] / ms - 1
                row = (
                    *(f"{cap:g}", name),
                    *(f"{each / 1e6:.3f}" for each in (got["bytes"], sent)),
                    f"{100 * bytes_off:+.1f} %",
                    *("{1:.0f} ({0:.0f}-{2:.0f})".format(*quartiles[each]) for each in ("alone_ms", "ms")),
                    f"{ms:.0f}",
                    f"{100 * ms_off:+.1f} %",
                )
                print("|", " | ".join(row), "|", flush=True)
                if abs(bytes_off) > BYTES_OFF_MAX or abs(ms_off) > MS_OFF_MAX:
                    far.append(f"{cap:g} Mbit/s, {name}")
    if far:
        sys.exit(f"farther than {BYTES_OFF_MAX:.0%} (bytes) or {MS_OFF_MAX:.0%} (time): {'; '.join(far)}")


def encode() -> None:
    """Print a row of each codec: elements, median ms that it takes for noise."""
    import torch

    from lightcc.codec import Int8, TopK

    torch.set_num_threads(1)
    for numel in NUMELS:
        noise = torch.randn(numel, generator=torch.Generator().manual_seed(0))
        for name, codec in (("top-k 1 %", TopK(numel, 0.01, fp16=False)), ("int8", Int8(numel))):
            times = []
            for vector in [noise.clone() for _ in range(ENCODINGS)]:
                begin = time.perf_counter()
                codec.encode(vector)
                times.append(time.perf_counter() - begin)
            print(f"| {numel} | {name} | {1e3 * statistics.median(times):.0f} |", flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["accuracy"]:
            accuracy()
        case ["lab", *caps]:
            lab([float(each) for each in caps])
        case ["encode"]:
            encode()
        case _:
            sys.exit(f"usage: {(__doc__ or '').splitlines()[0]}")
