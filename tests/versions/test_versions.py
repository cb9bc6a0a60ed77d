# SPDX-License-Identifier: Apache-2.0
"""The plugin of each release against the present one: they work together, or each refuses the other.

All is over loopback, without root. A release that has no wire version in common is refused as a plugin is
that is built here with another one.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from harpctl.facts.elf import version_key
from tests import native
from tests.bench.conftest import Perf, free_port, wait_for_end
from tests.conformance import abi
from tests.conftest import BUILD_DIR, PLUGIN_DIR
from tests.lab.remote import RemotePeer
from tests.versions.stored import Stored, facts_of, list_stored, store_library

SIZES = ("--sizes", "0,8,4K,70000,1M", "--iters", 8, "--warmup", 1, "--connections", 2)
CARRIERS = ("udp", "tcp", "udp+tcp")
OTHER_WIRE = "build/other_wire/libnccl-net.so"
OK = 0


class Here:
    """The machine that all peers run on."""

    def command(self, _host: int, argv: Sequence[str]) -> list[str]:
        """Return the command as it is."""
        return list(argv)


def _wire_versions(library: Path) -> tuple[int, int]:
    oldest, newest = facts_of(library).wire
    return oldest, newest


def _have_common_version(one: Path, other: Path) -> bool:
    (oldest, newest), (other_oldest, other_newest) = _wire_versions(one), _wire_versions(other)
    return oldest <= other_newest and other_oldest <= newest


def _refuse_each_other(listening: Path, connecting: Path) -> None:
    """Let both sides fail, each with one WARN that names both wire versions and what to do."""
    (low, high), (other_low, other_high) = _wire_versions(listening), _wire_versions(connecting)
    with (
        RemotePeer(Here(), 0, listening, ifname="lo") as receiver,
        RemotePeer(Here(), 1, connecting, ifname="lo") as sender,
    ):
        handle = receiver.call("listen")
        receiver.start("accept")
        assert sender.call("connect", handle) == abi.REMOTE
        assert receiver.answer() == abi.REMOTE
        texts = {
            receiver: f"wire versions {other_low} to {other_high}, this plugin {low} to {high}",
            sender: f"wire versions {low} to {high}, this plugin {other_low} to {other_high}",
        }
        for peer, text in texts.items():
            (warn,) = [line for line in peer.call("log") if line.startswith("WARN")]
            assert text in warn
            assert "install the same" in warn


def _move_checked_messages(libraries: Sequence[Path], carrier: str) -> None:
    """Let a rank of each move messages both ways."""
    meet = f"127.0.0.1:{free_port()}"
    env = {"HARP_IFNAME": "=lo", "HARP_DRIVER": carrier}
    ranks = [Perf(BUILD_DIR / "harp-perf", library) for library in libraries]
    for number, rank in enumerate(ranks):
        own = ("--rank", number, "--nranks", len(ranks), "--rendezvous", meet)
        rank.start("--mode", "bidir", *SIZES, *own, env=env)
    for rank in ranks:
        ended = wait_for_end(rank.running[0])
        assert ended.code == OK, ended.err


@pytest.fixture(params=list_stored(), ids=lambda one: one.version)
def release(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Provide the plugin of each release."""
    one: Stored = request.param
    return one.unpack(tmp_path)


@pytest.fixture(scope="session")
def other_wire() -> Path:
    """Provide the present plugin with another wire version."""
    built = native.run_make(OTHER_WIRE)
    assert built.returncode == 0, built.stdout[-native.TAIL_CHARS :]
    return PLUGIN_DIR / OTHER_WIRE


@pytest.mark.parametrize("carrier", CARRIERS)
@pytest.mark.parametrize("old_is_first", [False, True])
def test_old_and_new(release: Path, plugin_file: Path, carrier: str, old_is_first: bool) -> None:
    sides = [release, plugin_file] if old_is_first else [plugin_file, release]
    if _have_common_version(*sides):
        _move_checked_messages(sides, carrier)
    else:
        _refuse_each_other(*sides)


@pytest.mark.parametrize("other_listens", [False, True])
def test_another_wire_version_is_refused_by_both(other_wire: Path, plugin_file: Path, other_listens: bool) -> None:
    assert not _have_common_version(other_wire, plugin_file)
    sides = [other_wire, plugin_file] if other_listens else [plugin_file, other_wire]
    _refuse_each_other(*sides)


def test_what_is_stored_is_what_it_is_called(release: Path) -> None:
    facts = facts_of(release)
    assert release.name == f"libnccl-net-{facts.version}.{facts.machine}.so"
    assert version_key(facts.glibc) <= (2, 27)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the stored ones are for x86-64")
def test_there_is_a_release() -> None:
    assert list_stored()


def test_a_library_replaces_that_of_its_release(
    plugin_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = msgspec.structs.replace(facts_of(plugin_file), version="1.2.0-3-gabc1234")
    monkeypatch.setattr("tests.versions.stored.facts_of", lambda _library: facts)
    for version in ("1.1.0", "1.2.0", "1.2.0-2-gabc1233"):
        (tmp_path / f"libnccl-net-{version}.{facts.machine}.so.xz").write_bytes(b"")
    file = store_library(plugin_file, tmp_path)
    assert [one.version for one in list_stored(tmp_path)] == ["1.1.0", facts.version]
    assert Stored(file, facts.version).unpack(tmp_path).read_bytes() == plugin_file.read_bytes()


@pytest.mark.parametrize("version", ["1.2.0-3-gabc1234-dirty", ""])
def test_what_nobody_can_build_again_is_not_stored(
    plugin_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    facts = msgspec.structs.replace(facts_of(plugin_file), version=version)
    monkeypatch.setattr("tests.versions.stored.facts_of", lambda _library: facts)
    with pytest.raises(ValueError, match="commit everything"):
        store_library(plugin_file, tmp_path)
    assert list_stored(tmp_path) == []
