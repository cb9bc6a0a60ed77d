"""A second network between two hosts of a lab, whose wire is a program that makes faults (wirebox.c)."""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path
from types import TracebackType

from harpctl.errors import HarpError
from harpctl.lab.lab import Lab, run_command
from harpctl.lab.plan import Command, ip_inside, run_inside
from tests.lab.job import until

WIRE = "wire0"
RATE_UNIT = 100_000


@dataclasses.dataclass(frozen=True)
class Faults:
    """Shares of all TCP and UDP packets; corruption falls on UDP only."""

    loss: float = 0.0
    duplicates: float = 0.0
    reordering: float = 0.0
    corruption: float = 0.0
    seed: int = 1

    def words(self) -> list[str]:
        """Write them as wirebox takes them."""
        shares = (self.loss, self.duplicates, self.reordering, self.corruption)
        return [str(self.seed), *(str(round(share * RATE_UNIT)) for share in shares)]


class Wire:
    """Joins the hosts' interfaces `wire0` (10.78.0.1 and .2) by wirebox; a context manager."""

    def __init__(self, lab: Lab, wirebox: Path, faults: Faults, mtu_bytes: int = 1500) -> None:
        self._lab = lab
        self._wirebox = wirebox
        self._faults = faults
        self._mtu_bytes = mtu_bytes
        self._middle = f"{lab.prefix}wire"  # a name that the next lab sweeps if this process dies
        self._box: subprocess.Popen[str] | None = None

    def address(self, host: int) -> str:
        """Give the address of a host on the wire."""
        return f"10.78.0.{host + 1}"

    def __enter__(self) -> Wire:
        run_command(Command(("ip", "netns", "add", self._middle)))
        try:
            for host, name in enumerate(self._lab.hosts):
                self._join(host, name)
            argv = ["ip", "netns", "exec", self._middle, str(self._wirebox)]
            self._box = subprocess.Popen(
                [*argv, *self._faults.words(), "side0", "side1"], stdout=subprocess.PIPE, text=True
            )
            assert self._box.stdout is not None
            assert self._box.stdout.readline() == "ready\n"
            until("the wire's links are up", self._is_up)
        except BaseException:
            self._remove()
            raise
        return self

    def _join(self, host: int, name: str) -> None:
        side = f"side{host}"
        mtu = ("mtu", str(self._mtu_bytes))
        pair = ("link", "add", WIRE, "type", "veth", "peer", "name", side, "netns", self._middle)
        run_command(ip_inside(name, *pair))
        # wirebox takes single packets with their checksums in them, and hands them on as they are.
        off = ("tx", "off", "tso", "off", "gso", "off", "gro", "off")
        run_command(run_inside(name, "ethtool", "-K", WIRE, *off, "tx-udp-segmentation", "off"))
        run_command(ip_inside(self._middle, "link", "set", side, *mtu, "up"))
        run_command(ip_inside(name, "address", "add", f"{self.address(host)}/24", "dev", WIRE))
        run_command(ip_inside(name, "link", "set", WIRE, *mtu, "up"))

    def _is_up(self) -> bool:
        shown = [run_command(ip_inside(name, "-oneline", "link", "show", WIRE)) for name in self._lab.hosts]
        return all("state UP" in line for line in shown)

    def finish(self) -> dict[str, int]:
        """Stop forwarding and tell what was done to the packets."""
        assert self._box is not None
        self._box.terminate()
        said, _ = self._box.communicate(timeout=10)
        counts: dict[str, int] = json.loads(said)
        return counts

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._remove()

    def _remove(self) -> None:
        if self._box is not None and self._box.poll() is None:
            self._box.kill()
            self._box.wait()
        try:
            run_command(Command(("ip", "netns", "delete", self._middle)))
        except HarpError as error:
            print(error.message)
