# SPDX-License-Identifier: Apache-2.0
"""The faults on the way to a host's ENI and from it, which may change while traffic flows.

Loss is a rule of the firewall (rules.py) and costs nothing else; what changes packets or their order is made
by a program between the port and the switch (fault_injector.py), which needs a lab with a switch.
The faults of an ENI are kept in a file, so that every process sees the same.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import msgspec

from harpctl.errors import ExitCode, HarpError
from harplab.lab.commands import Run
from harplab.lab.fault_injector import FaultInjector, merge_counts, request_line
from harplab.lab.rules import DIRECTIONS, IN, OUT, plan_drops, read_drops, show_drops
from harplab.lab.spec import MTU_MIN_BYTES, LabSpec, bridge_name, eni_name, fabric_name, port_name

BOTH = "both"
REORDER_MS = 1.0
MS_MAX = 10_000.0


class DirectionFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults for the packets of one direction; shares of 1. A superframe counts as one packet."""

    drop: float = 0.0
    blackhole: bool = False
    burst: float = 0.0  # the share of all packets that is lost, in bursts
    burst_packets: float = 10.0  # in a burst, on average
    corrupt: float = 0.0  # the share of UDP packets with a wrong bit, and a checksum that fits it
    duplicate: float = 0.0
    reorder: float = 0.0  # the share of packets that come later
    reorder_ms: float = REORDER_MS  # by that much
    delay_ms: float = 0.0
    path_mtu_bytes: int = 0  # longer packets vanish; 0: none

    @property
    def dropped(self) -> float:
        """Return the share that the firewall drops."""
        return 1.0 if self.blackhole else self.drop

    @property
    def needs_injector(self) -> bool:
        """Return whether the firewall alone can't do it."""
        return any((self.burst, self.corrupt, self.duplicate, self.reorder, self.delay_ms, self.path_mtu_bytes))

    def check(self) -> None:
        """Raise the HarpError that names the first value out of its range."""
        for name in ("drop", "burst", "corrupt", "duplicate", "reorder"):
            share = getattr(self, name)
            if not 0 <= share <= 1 or (name == "burst" and share == 1):
                raise HarpError(
                    f"{name} is a share of packets from 0 to 1, not {share:g}.",
                    "`drop=0.01` loses one packet of a hundred.",
                    ExitCode.USAGE,
                )
        for name in ("reorder_ms", "delay_ms"):
            if not 0 <= getattr(self, name) <= MS_MAX:
                raise HarpError(f"{name} is 0 to {MS_MAX:g} ms, not {getattr(self, name):g}.", "", ExitCode.USAGE)
        if self.burst_packets < 1:
            raise HarpError(
                f"A burst has at least 1 packet on average, not {self.burst_packets:g}.", "", ExitCode.USAGE
            )
        if self.path_mtu_bytes and self.path_mtu_bytes < MTU_MIN_BYTES:
            raise HarpError(
                f"An MTU is at least {MTU_MIN_BYTES} bytes, not {self.path_mtu_bytes}.", "", ExitCode.USAGE
            )

    def line(self, direction: str) -> str:
        """Return them as a line for the fault injector."""
        leave = 1 / self.burst_packets
        enter = min(1.0, self.burst * leave / (1 - self.burst))
        chances = (self.corrupt, self.duplicate, self.reorder, enter, leave)
        return request_line(direction, chances, (self.reorder_ms, self.delay_ms), self.path_mtu_bytes)


Both = dict[str, DirectionFaults]


class Faults:
    """The faults of a host's ENI; each method sets one kind, leaves the others, and returns the object.

    `direction` is "in" for what goes to the host, "out" for what comes from it, "both" for each by itself.
    """

    def __init__(self, spec: LabSpec, prefix: str, run: Run, folder: Path, host: int, eni: int) -> None:
        self._spec, self._prefix, self._run = spec, prefix, run
        self._host, self._eni = host, eni
        self._file = folder / f"{port_name(host, eni_name(eni))}.json"

    def drop(self, share: float, direction: str = BOTH) -> Faults:
        """Lose packets at random; neighbour discovery passes."""
        return self.set(direction, drop=share)

    def blackhole(self, direction: str = BOTH, *, on: bool = True) -> Faults:
        """Lose everything, while the link stays up."""
        return self.set(direction, blackhole=on)

    def burst(self, share: float, packets: float = 10.0, direction: str = BOTH) -> Faults:
        """Lose packets in bursts of that length on average (Gilbert-Elliott), that share in all."""
        return self.set(direction, burst=share, burst_packets=packets)

    def corrupt(self, share: float, direction: str = BOTH) -> Faults:
        """Turn a bit of UDP payloads, and make the checksum right again."""
        return self.set(direction, corrupt=share)

    def duplicate(self, share: float, direction: str = BOTH) -> Faults:
        """Deliver packets twice."""
        return self.set(direction, duplicate=share)

    def reorder(self, share: float, by_ms: float = REORDER_MS, direction: str = BOTH) -> Faults:
        """Hold packets back, while others pass."""
        return self.set(direction, reorder=share, reorder_ms=by_ms)

    def delay_ms(self, ms: float, direction: str = BOTH) -> Faults:
        """Let everything take so much longer; with both ways the round trip takes twice that."""
        return self.set(direction, delay_ms=ms)

    def shrink_mtu(self, mtu_bytes: int, direction: str = BOTH) -> Faults:
        """Lose longer IP packets without an ICMP error; 0 ends it."""
        return self.set(direction, path_mtu_bytes=mtu_bytes)

    def set(self, direction: str = BOTH, **changes: float) -> Faults:
        """Set several at once, by the names of DirectionFaults."""
        if direction not in {*DIRECTIONS, BOTH}:
            raise HarpError(
                f"A fault has the direction `in`, `out` or `both`, not {direction!r}.", "", ExitCode.USAGE
            )
        state = self.state()
        for one in DIRECTIONS if direction == BOTH else (direction,):
            state[one] = msgspec.structs.replace(state[one], **changes)
            state[one].check()
        self._apply_state(state)
        return self

    def clear(self) -> Faults:
        """End all of them."""
        self._open_injector().withdraw()
        self._set_drops(dict.fromkeys(DIRECTIONS, 0.0))
        self._file.unlink(missing_ok=True)
        return self

    def state(self) -> Both:
        """Return what is set."""
        with contextlib.suppress(FileNotFoundError):
            return msgspec.json.decode(self._file.read_bytes(), type=Both)
        return {IN: DirectionFaults(), OUT: DirectionFaults()}

    def counts(self) -> dict[str, dict[str, int]]:
        """Return by direction what was done: `dropped` since drop was last set, others since insertion."""
        dropped: dict[str, int] = {}
        for direction in DIRECTIONS:
            with contextlib.suppress(HarpError):
                listed = self._run(show_drops(self._spec, self._prefix, self._host, self._eni, direction))
                dropped[direction] = read_drops(listed)
        injector = self._open_injector()
        return merge_counts(injector.send() if injector.is_inserted else {}, dropped)

    def total(self, name: str) -> int:
        """Add up a count of both ways."""
        return sum(direction.get(name, 0) for direction in self.counts().values())

    def _apply_state(self, state: Both) -> None:
        before, injector = self.state(), self._open_injector()
        if any(faults.needs_injector for faults in state.values()) and not self._spec.has_fabric:
            raise HarpError(
                "Without a switch between the hosts only drop and blackhole are possible.",
                "Make the lab with a switch.",
                ExitCode.USAGE,
            )
        shares = {direction: faults.dropped for direction, faults in state.items()}
        if shares != {direction: faults.dropped for direction, faults in before.items()}:
            self._set_drops(shares)
        if any(faults.needs_injector for faults in state.values()) and not injector.is_inserted:
            injector.insert()
        if injector.is_inserted:
            injector.send(*(faults.line(direction) for direction, faults in state.items()))
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_bytes(msgspec.json.encode(state))

    def _set_drops(self, shares: dict[str, float]) -> None:
        for direction, share in shares.items():
            self._run(plan_drops(self._spec, self._prefix, self._host, self._eni, direction, share))

    def _open_injector(self) -> FaultInjector:
        port = port_name(self._host, eni_name(self._eni))
        return FaultInjector(
            self._run,
            fabric_name(self._prefix),
            port,
            bridge_name(self._spec, self._eni),
            self._file.with_suffix(".sock"),
        )
