# SPDX-License-Identifier: Apache-2.0
"""Four ranks that run cases: python -m tests.lightcc.ranks PORT [ADDRESS RANK,...]; they share an import.

By default all of them over loopback; else those of one host, where ADDRESS is rank 0's.
Reads lines {"case": NAME, "arguments": {...}}; writes for each a line with what the case returned on each
rank, or an error's text. Ranks are forks of one process, which starts no thread; the case "exits" has others
forked.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any, TextIO

import torch
import torch._dynamo  # DDP imports it, and each rank would do so anew
import torch.distributed as dist

import lightcc
from tests.lightcc import cases, exits

RANKS = 4
TIMEOUT = dt.timedelta(seconds=60)


def run_case(line: str) -> dict[str, Any]:
    """Run a case on this rank; return its result, or its error, with the warnings of lightcc."""
    wanted = json.loads(line)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", lightcc.LightccWarning)
        try:
            result = {"result": getattr(cases, wanted["case"])(**wanted["arguments"])}
        except Exception:  # noqa: BLE001  # the test shows it
            result = {"error": traceback.format_exc()}
    told = [str(each.message) for each in caught if issubclass(each.category, lightcc.LightccWarning)]
    return {**result, "warnings": told}


def serve(rank: int, port: str, address: str, orders: int, answers: int) -> None:
    """Run cases as one rank until there are no more."""
    os.environ.update(MASTER_ADDR=address, MASTER_PORT=port, RANK=str(rank), WORLD_SIZE=str(RANKS))
    dist.init_process_group("gloo", timeout=TIMEOUT)
    with os.fdopen(orders) as lines, os.fdopen(answers, "w") as out:
        for line in lines:
            out.write(json.dumps(run_case(line)) + "\n")
            out.flush()
    dist.destroy_process_group()


def run_on_all(line: str, pipes: Sequence[tuple[TextIO, TextIO]]) -> list[dict[str, Any]]:
    """Pass an order to all ranks; return their answers."""
    wanted = json.loads(line)
    if wanted["case"] == "exits":
        return [{"result": exits.run(**wanted["arguments"]), "warnings": []}]
    for orders, _answers in pipes:
        orders.write(line)
        orders.flush()
    got = [answers.readline() for _orders, answers in pipes]
    if not all(got):
        sys.exit("a rank ended")
    return [json.loads(each) for each in got]


def main() -> None:
    """Fork the ranks; pass each order to all of them, and their answers back."""
    torch.set_num_threads(1)
    port, address, own = [*sys.argv[1:], "127.0.0.1", "0,1,2,3"][:3]
    pipes: list[tuple[TextIO, TextIO]] = []
    for rank in map(int, own.split(",")):
        order_in, order_out = os.pipe()
        answer_in, answer_out = os.pipe()
        if os.fork() == 0:
            os.close(order_out)
            for orders, _answers in pipes:
                orders.close()
            serve(rank, port, address, order_in, answer_out)
            return
        os.close(order_in)
        os.close(answer_out)
        pipes.append((os.fdopen(order_out, "w"), os.fdopen(answer_in)))
    for line in sys.stdin:
        print(json.dumps(run_on_all(line, pipes)), flush=True)
    for orders, _answers in pipes:
        orders.close()
    for _ in pipes:
        if os.wait()[1]:
            sys.exit("a rank failed at its end")


if __name__ == "__main__":
    main()
