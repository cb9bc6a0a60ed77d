# SPDX-License-Identifier: Apache-2.0
"""Options that select the slow suites, what each marker needs, and the paths of what was built."""

from __future__ import annotations

import contextlib
import enum
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

from harpctl.errors import HarpError
from harplab.lab.lab import Lab, require_lab
from harplab.lab.spec import LabSpec
from tests import draws, native

ROOT = Path(__file__).resolve().parents[1]
PLUGIN_DIR = ROOT / "plugin"
BUILD_DIR = PLUGIN_DIR / "build"
SANITIZERS = ("asan", "tsan")  # the first with UBSan
SIM_SEEDS = 6_000
PROCESSES = 3  # one more than cores of a small machine, since tests of two of them often wait
MAIN, C_PROGRAMS = "main", "C programs"
MAIN_PATHS = (  # what is measured, or needs the host's network for itself
    *("tests/bench/", "tests/conformance/", "tests/faults/", "tests/many/"),
    *("tests/aarch64/", "tests/distributions/", "tests/gpu/", "tests/nccl/", "tests/vm/"),
    "tests/harpctl/dist/",
    *("tests/harplab/bench/test_bench.py", "tests/harplab/bench/test_suite.py"),
    "tests/harplab/bench/test_timed.py",
    *("tests/harplab/lab/test_caps.py", "tests/harplab/lab/test_lab.py"),
    *("tests/harplab/lab/test_persistent.py", "tests/harpctl/preflight/"),
    "tests/harpctl/facts/test_live.py",
    *("tests/lab/test_black_hole.py", "tests/lab/test_deaths.py", "tests/lab/test_networks.py"),
    *("tests/lab/test_shallow.py", "tests/lab/test_small_sends.py", "tests/lab/test_tcp.py"),
)
WAITING_PATHS = (  # they build namespaces, and mostly wait or have no bound in time but that of a hang
    *("tests/harplab/lab/test_faults.py", "tests/harplab/lab/test_links.py"),
    *("tests/harpctl/doctor/test_peer.py", "tests/harpctl/network/test_box.py"),
    *("tests/harpctl/network/test_reboot.py", "tests/hostile/", "tests/lab/", "tests/sanitize/"),
)
NATIVE = "tests/test_native.py::"
PRIORITY = os.getpriority(os.PRIO_PROCESS, 0)
LONGEST, LONG_S = 20, 5.0  # how many tests are listed at the end, and how long these take at least
BESIDE = 10  # by how much the priority of what runs beside them is lower


def _is_whole(config: pytest.Config) -> bool:
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS


def pytest_configure(config: pytest.Config) -> None:
    """Choose how examples are drawn, and what the whole suite says of its time at its end.

    Let tests send signals that whoever started this ignores: nohup does, and shells in the background.
    """
    draws.choose_suite(config.getoption("--draws"))
    if _is_whole(config) and config.option.durations is None:
        config.option.durations, config.option.durations_min = LONGEST, LONG_S
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run the whole suite in several processes, and what somebody chose in one."""
    return PROCESSES if _is_whole(config) and (os.cpu_count() or 1) > 1 else 0


class Part(enum.IntEnum):
    """The parts of the suite, each begun by a process of its own, which then takes of the others."""

    MAIN = 0
    WAITING = 1
    COMPUTING = 2


def _part_of(nodeid: str) -> Part:
    if nodeid.startswith(MAIN_PATHS):
        return Part.MAIN
    return Part.WAITING if nodeid.startswith(WAITING_PATHS) else Part.COMPUTING


class _Scheduling(LoadScopeScheduling):  # type: ignore[misc]
    """The queue has MAIN, which one process runs, then files of WAITING, then files of COMPUTING.

    The last process takes of its end.
    """

    def _split_scope(self, nodeid: str) -> str:
        if _part_of(nodeid) is Part.MAIN:
            return MAIN
        file, _, test = nodeid.partition("::")
        if not nodeid.startswith(NATIVE):
            return file
        return C_PROGRAMS if test.startswith("test_c") else nodeid

    def _assign_work_unit(self, node: WorkerController) -> None:
        if node.gateway.id == f"gw{PROCESSES - 1}":
            self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
        super()._assign_work_unit(node)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> _Scheduling:
    """Keep what is measured, or needs the host's network, in one process."""
    config.option.loadscopereorder = False  # the order of the collection is the queue's
    return _Scheduling(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Return where the suite runs in several processes, let what only computes yield to what moves data."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        less = BESIDE if _part_of(item.nodeid) is Part.COMPUTING else 0
        with contextlib.suppress(PermissionError):  # who is not root may only lower it
            os.setpriority(os.PRIO_PROCESS, 0, PRIORITY + less)


_ended: dict[str, float] = {}  # when each process ended its last test


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Remember how evenly the processes share the work."""
    if node := getattr(report, "node", None):
        _ended[node.gateway.id] = time.monotonic()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which process others waited for at the end."""
    if len(_ended) > 1:
        last = max(_ended.values())
        waits = ", ".join(f"{name} {last - ended_s:.0f} s" for name, ended_s in sorted(_ended.items()))
        terminalreporter.write_line(f"processes without tests at the end: {waits}")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("harp")
    group.addoption("--nccl", action="store_true", help="drive an official NCCL (fetches wheels once)")
    group.addoption(
        "--beside-socket", action="store_true", help="with --nccl: judge NCCL's times beside its own sockets'"
    )
    group.addoption("--gpu", action="store_true", help="drive NCCL through PyTorch on a GPU")
    group.addoption("--packages", action="store_true", help="build and run the self-contained file")
    group.addoption("--distributions", action="store_true", help="run a checkout on releases of Debian")
    group.addoption("--aarch64", action="store_true", help="build for aarch64, and run that by qemu")
    group.addoption(
        "--vm",
        action="store_true",
        help="set up, reboot and roll back in a virtual machine, and with every network manager",
    )
    group.addoption("--xdp", action="store_true", help="run all of the lab over AF_XDP, and kill a thousand jobs")
    group.addoption("--driver", choices=("udp", "tcp"), help="run the conformance cases over one carrier alone")
    group.addoption("--whole", action="store_true", help="simulate whole processes by all plans")
    group.addoption("--hostile", action="store_true", help="attack a job for longer, and judge its rate")
    group.addoption("--proofs", action="store_true", help="give the proofs their longer bounds")
    group.addoption("--flaps", type=int, default=0, metavar="N", help="flap links so often, in every order")
    group.addoption("--faults", action="store_true", help="let every call of libc fail, not a sample of them")
    group.addoption("--many", action="store_true", help="64 processes for minutes, while hosts and links fail")
    group.addoption("--minutes", type=float, default=20.0, metavar="N", help="with --many: for so long")
    group.addoption("--sim", type=int, default=SIM_SEEDS, metavar="SEEDS", help="seeds of the simulation")
    group.addoption("--fuzz", type=int, default=0, metavar="SEC", help="fuzz each decoder for so long")
    group.addoption(
        "--draws", type=int, default=0, metavar="N", help="draw N times the examples of properties, at random"
    )
    group.addoption("--update-golden", action="store_true", help="write golden files anew")
    for name in SANITIZERS:
        group.addoption(f"--{name}", action="store_true", help=f"also run the C tests in the {name} build")


def _lab_reason() -> str:
    try:
        require_lab(LabSpec(loss_share=0.01, cap_mbps=1000))
    except HarpError as error:
        return error.message
    return ""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Return where all tests run, build what the later ones need while the first ones mostly wait."""
    if os.environ.get("PYTEST_XDIST_WORKER", "gw0") != "gw0":
        return
    suites = {item.path.relative_to(ROOT / "tests").parts[0] for item in session.items}
    if session.config.option.collectonly or not {"conformance", "sanitize", "test_native.py"} <= suites:
        return
    simulators = ["build/sim", "build/networks"]
    jobs = [
        simulators,
        native.program_words(),
        native.replay_words(),
        *map(native.sanitized_words, SANITIZERS),
    ]
    session.config.add_cleanup(native.make_ahead(jobs))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=lambda item: _part_of(item.nodeid))
    reasons = {
        "lab": _lab_reason(),
        "nccl": "" if config.getoption("--nccl") else "asked for with --nccl",
        "gpu": "" if config.getoption("--gpu") else "asked for with --gpu",
        "dist": "" if config.getoption("--packages") else "asked for with --packages",
        "aarch64": "" if config.getoption("--aarch64") else "asked for with --aarch64",
        "vm": "" if config.getoption("--vm") else "asked for with --vm",
    }
    drawn = [item for item in items if getattr(getattr(item, "obj", None), "is_hypothesis_test", False)]
    if drawn:
        draws.import_all()
    for item in drawn if (times := config.getoption("--draws")) else ():
        item.add_marker(pytest.mark.timeout(times * float(config.getini("timeout")) + draws.SHRINK_S))
    for item in items:
        if item.get_closest_marker("lab") and not item.nodeid.startswith((*MAIN_PATHS, *WAITING_PATHS)):
            raise pytest.UsageError(
                f"{item.nodeid} builds namespaces: name its file in MAIN_PATHS or WAITING_PATHS"
            )
        for marker, reason in reasons.items():
            if reason and item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def root() -> Path:
    """Provide the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Provide whether golden files are written anew instead of compared."""
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(scope="session")
def plugin_file() -> Path:
    """Provide the plugin as `./harp_setup build` leaves it."""
    file = BUILD_DIR / "libnccl-net.so"
    assert file.is_file(), "build it first: ./harp_setup build"
    return file


@pytest.fixture
def make_lab() -> Iterator[Callable[[LabSpec], Lab]]:
    """Build labs that are gone when the test ends."""
    with ExitStack() as stack:
        yield lambda spec: stack.enter_context(Lab(spec))
