# SPDX-License-Identifier: Apache-2.0
"""Runs each test with every version of the plugin's table, initialised over loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.conformance import abi
from tests.conformance.child import ENVIRONMENT, Child, Start
from tests.conformance.driver import PLUGIN_FILE, Net

assert PLUGIN_FILE.is_file(), "build it first: ./harp_setup build"


@pytest.fixture(scope="module", autouse=True)
def _environment(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold for one module at a time: a wider scope lasts until the session's end, in other suites too."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("HARP_")]:
        del os.environ[name]
    if driver := request.config.getoption("--driver"):
        ENVIRONMENT["HARP_DRIVER"] = driver
    os.environ.update(ENVIRONMENT)
    if request.config.getoption("--xdp"):
        os.environ["HARP_DRIVER"] = "xdp"
    yield
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in before.items() if name.startswith("HARP_")})


@pytest.fixture(params=abi.VERSIONS, ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    """Provide each version in turn."""
    number: int = request.param
    return number


@pytest.fixture
def net(version: int) -> Iterator[Net]:
    """Provide an initialised table; a WARN that the test did not expect fails it."""
    made = Net(version)
    assert made.init() == abi.SUCCESS
    assert made.warns() == []
    yield made
    assert made.finalize() == abi.SUCCESS
    assert made.warns() == []


@pytest.fixture
def start() -> Iterator[Start]:
    """Start scenarios that do not outlive the test."""
    with ExitStack() as stack:

        def one(*arguments: Any, **options: Any) -> Child:
            child = Child(*arguments, **options)
            stack.callback(child.kill)
            return child

        yield one
