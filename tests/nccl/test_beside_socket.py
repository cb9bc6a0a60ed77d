"""The table of NCCL over HARP beside NCCL over its own sockets: printed and written, never judged."""

from __future__ import annotations

import pytest

from tests.nccl import beside, wheels
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]


def test_table(make_box: MakeBox, harp: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    runs = beside.alternate(make_box(2), harp)
    lines = beside.compare(runs)
    note = (
        f"NCCL {wheels.NEWEST}, allreduce, 2 ranks in namespaces, one veth ENI, MTU 1500, "
        f"GPU played by threads; medians of {beside.ROUNDS} alternating runs"
    )
    with capsys.disabled():
        print(f"\n{note}\n{beside.render(lines)}")
    beside.write_report(lines, runs, note)
    assert [line.bytes for line in lines] == list(beside.SIZES)
