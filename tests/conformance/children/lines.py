# SPDX-License-Identifier: Apache-2.0
"""Shared by the scenarios: JSON lines to and from the test, and a table that is initialised."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.conformance import abi
from tests.conformance.driver import Net


def send_line(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def read_line() -> Any:
    line = sys.stdin.readline()
    return json.loads(line) if line else None


def init_net(net: Net, traffic_class: int | None = None) -> Net:
    assert net.init(traffic_class) == abi.SUCCESS, net.warns()
    return net
