# SPDX-License-Identifier: Apache-2.0
"""Compiles the C programs of the lab tests, and runs suites over one packet driver and the other.

A test that uses the fixture `driver` runs over udp and over xdp: of each function the first case also over
xdp, with --xdp all of them.
"""

from __future__ import annotations

import dataclasses
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.conftest import PLUGIN_DIR, ROOT
from tests.lab.xdp import HOLDER_WORDS

FLAGS = ("-std=gnu11", "-O2", "-g", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")


@pytest.fixture(scope="session")
def compile_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Provide a function that compiles tests/lab/NAME.c."""
    folder = tmp_path_factory.mktemp("lab")

    def build(name: str, *words: str) -> Path:
        out = folder / name
        source = ROOT / "tests" / "lab" / f"{name}.c"
        argv = ["cc", *FLAGS, f"-I{PLUGIN_DIR / 'src'}", "-o", str(out), str(source), *words]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return out

    return build


@pytest.fixture(scope="session")
def xdp_hold(compile_c: Callable[..., Path]) -> Path:
    """Provide what holds an XDP program on an interface."""
    return compile_c("xdp_hold", *HOLDER_WORDS)


@pytest.fixture(scope="session")
def ll_reader(compile_c: Callable[..., Path]) -> Path:
    """Provide both ends of the connection, and the GPU."""
    return compile_c("ll_reader", "-ldl", "-lpthread")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "driver" in metafunc.fixturenames:
        metafunc.parametrize("driver", ["udp", "xdp"], indirect=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--xdp"):
        return
    seen: set[str] = set()
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        name = item.nodeid.partition("[")[0]
        is_xdp = isinstance(item, pytest.Function) and _driver_of(item) == "xdp"
        (left_out if is_xdp and name in seen else kept).append(item)
        seen.update([name] if is_xdp else [])
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)


def _driver_of(item: pytest.Function) -> str:
    callspec = getattr(item, "callspec", None)
    return str(callspec.params.get("driver", "")) if callspec else ""


@pytest.fixture
def driver(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Provide the packet driver of all that the test starts."""
    monkeypatch.setenv("HARP_DRIVER", request.param)
    return str(request.param)


@pytest.fixture
def make_lab(request: pytest.FixtureRequest) -> Iterator[Callable[[LabSpec], Lab]]:
    """Build labs that are gone when the test ends; over xdp with a switch, which can drop packets."""
    is_xdp = "driver" in request.fixturenames and request.getfixturevalue("driver") == "xdp"
    with ExitStack() as stack:

        def make(spec: LabSpec) -> Lab:
            switch = spec.switch or (is_xdp and spec.hosts == 2)
            return stack.enter_context(Lab(dataclasses.replace(spec, switch=switch)))

        yield make
