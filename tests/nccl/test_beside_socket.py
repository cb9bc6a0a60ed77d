"""Tables of NCCL over HARP beside NCCL over its own sockets: printed and written, never judged."""

from __future__ import annotations

import pytest

from harpctl.lab.plan import LabSpec
from tests.nccl import beside, wheels
from tests.nccl.conftest import MakeBox

pytestmark = [pytest.mark.nccl, pytest.mark.lab, pytest.mark.slow]


def test_table(make_box: MakeBox, harp: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    runs = beside.alternate(make_box(2), {beside.HARP: harp, **beside.socket_sides()})
    lines = beside.compare(runs)
    note = (
        f"NCCL {wheels.NEWEST}, allreduce, 2 ranks in namespaces, one veth ENI, MTU 1500, "
        f"GPU played by threads; medians of {beside.ROUNDS} alternating runs"
    )
    with capsys.disabled():
        print(f"\n{note}\n{beside.render(lines)}")
    beside.write_report(lines, runs, note)
    assert [line.bytes for line in lines] == list(beside.SWEEP.told)


@pytest.mark.parametrize("cap_mbps", [(1000, 1000, 1000, 1000), (1000, 1000, 1000, 250)], ids=str)
def test_four_interfaces(
    make_box: MakeBox,
    harp: dict[str, str],
    cap_mbps: tuple[float, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One device over all, a device for each, and NCCL's sockets, which take all interfaces as well."""
    spec = LabSpec(enis=4, cap_mbps=cap_mbps)
    sides = beside.device_sides({**harp, "HARP_IFNAME": "eni"})
    runs = beside.alternate(make_box(spec), sides, beside.STRIPED_SWEEP)
    with capsys.disabled():
        print(f"\nNCCL {wheels.NEWEST}, allreduce, {spec.describe()}")
        print(f"median, least and greatest of {beside.ROUNDS} alternating runs")
        print(beside.render_sides(runs))
    assert set(runs) == set(sides)
