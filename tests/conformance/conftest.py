# SPDX-License-Identifier: Apache-2.0
"""Gives each test every version of the plugin's table, initialised over loopback."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance import abi
from tests.conformance.driver import PLUGIN_FILE, Net

assert PLUGIN_FILE.is_file(), "build it first: ./harp_setup build"

# The versions without a context keep their configuration for the process, so it is the same for all tests
# here; what needs another one runs in a process of its own.
# Small messages go over the one carrier, large ones over the other.
ENVIRONMENT = {"HARP_IFNAME": "=lo", "HARP_ENGINE": "inline", "HARP_PATHS": "1", "HARP_DRIVER": "udp+tcp"}


@pytest.fixture(scope="module", autouse=True)
def _environment(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hold for one module at a time: a wider scope lasts until the session's end, in other suites too."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("HARP_")]:
        del os.environ[name]
    os.environ.update(ENVIRONMENT)
    if request.config.getoption("--xdp"):
        os.environ["HARP_DRIVER"] = "xdp"
    yield
    for name in ENVIRONMENT:
        os.environ.pop(name, None)
    os.environ.update({name: value for name, value in before.items() if name.startswith("HARP_")})


@pytest.fixture(params=abi.VERSIONS, ids=lambda version: f"v{version}")
def version(request: pytest.FixtureRequest) -> int:
    """Each version in turn."""
    number: int = request.param
    return number


@pytest.fixture
def net(version: int) -> Iterator[Net]:
    """Provide an initialised table; a WARN that the test did not ask for fails it."""
    made = Net(version)
    assert made.init() == abi.SUCCESS
    assert made.warns() == []
    yield made
    assert made.finalize() == abi.SUCCESS
    assert made.warns() == []
