# SPDX-License-Identifier: Apache-2.0
"""Peers that are none of ours: of another wire version, or behind a handle that another plugin made."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from harplab.lab.lab import Lab
from harplab.lab.spec import LabSpec
from tests.conformance import abi
from tests.lab.job import statistics_of
from tests.lab.remote import ROOT, RemotePeer, connect_peers, transfer_messages
from tests.layer import load_layer

pytestmark = pytest.mark.lab
pytest.importorskip("scapy", reason="needs scapy: ./harp_setup build")
MakeLab = Callable[[LabSpec], Lab]
SOCKETS_HANDLE = struct.pack("=QQ", 0x564AB9F2FC4B9D6C, 2).ljust(128, b"\1")  # as NCCL's own sockets make it
BOTH_VERSIONS = "it speaks wire versions 2 to 2, this plugin 1 to 1"


def _start_fake(lab: Lab, host: int, *words: str) -> subprocess.Popen[str]:
    argv = lab.command(host, [sys.executable, "-m", "tests.lab.fake", *words])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def _only_warn(peer: RemotePeer) -> str:
    """Return the one WARN of a peer's log."""
    (warn,) = [line for line in peer.call("log") if line.startswith("WARN")]
    return str(warn)


def test_client_of_another_version(make_lab: MakeLab, plugin_file: Path) -> None:
    """Accept fails with both versions, the answer contains ours, and the next one that comes is served."""
    lab = make_lab(LabSpec())
    with RemotePeer(lab, 0, plugin_file) as receiver, RemotePeer(lab, 1, plugin_file) as sender:
        handle = receiver.call("listen")
        receiver.start("accept")
        output, _ = _start_fake(lab, 1, "client", handle).communicate(timeout=60)
        assert json.loads(output) == {
            "type": "REFUSE",
            "version_min": load_layer().WIRE_VERSION,
            "version_max": load_layer().WIRE_VERSION,
            "reason": "VERSION",
            "names_our_hello": True,
            "is_closed": True,
        }
        assert receiver.answer() == abi.REMOTE
        warn = _only_warn(receiver)
        assert BOTH_VERSIONS in warn
        assert lab.address(1) in warn
        receiver.start("accept")
        assert sender.call("connect", handle) == abi.SUCCESS
        assert receiver.answer() == abi.SUCCESS
        transfer_messages(receiver, sender, 8, 100_000)
        lines = receiver.call("close")
        assert not [line for line in lines if line.startswith("WARN")]
        assert statistics_of("\n".join(lines))["handshake_refused"] == 1


def test_without_a_kind_of_path_in_common(make_lab: MakeLab, plugin_file: Path) -> None:
    """Both sides have an error that says what to configure."""
    lab = make_lab(LabSpec())
    with (
        RemotePeer(lab, 0, plugin_file, {"HARP_DRIVER": "udp"}) as receiver,
        RemotePeer(lab, 1, plugin_file, {"HARP_DRIVER": "tcp"}) as sender,
    ):
        handle = receiver.call("listen")
        receiver.start("accept")
        assert sender.call("connect", handle) == abi.REMOTE
        assert receiver.answer() == abi.REMOTE
        for warn in (_only_warn(receiver), _only_warn(sender)):
            assert "no kind of path in common" in warn
            assert "configure the same driver" in warn


@pytest.mark.parametrize("macs_at", ["client", "server"])
def test_only_one_side_has_macs(make_lab: MakeLab, plugin_file: Path, macs_at: str) -> None:
    """Both sides have an error with both values; nothing falls back."""
    lab = make_lab(LabSpec())
    env = {"HARP_AUTH": "mac"}
    with (
        RemotePeer(lab, 0, plugin_file, env if macs_at == "server" else None) as receiver,
        RemotePeer(lab, 1, plugin_file, env if macs_at == "client" else None) as sender,
    ):
        handle = receiver.call("listen")
        receiver.start("accept")
        assert sender.call("connect", handle) == abi.REMOTE
        assert receiver.answer() == abi.REMOTE
        for warn in (_only_warn(receiver), _only_warn(sender)):
            for words in ("HARP_AUTH=mac", "HARP_AUTH=off", "set the same on all hosts"):
                assert words in warn


def test_server_of_another_version(make_lab: MakeLab, plugin_file: Path) -> None:
    lab = make_lab(LabSpec())
    with RemotePeer(lab, 1, plugin_file) as sender:
        server = _start_fake(lab, 0, "server", lab.address(0))
        assert server.stdout is not None
        handle = server.stdout.readline().strip()
        assert sender.call("connect", handle) == abi.REMOTE
        output, _ = server.communicate(timeout=60)
        ours = load_layer().WIRE_VERSION
        assert json.loads(output) == {"type": "HELLO", "version_min": ours, "version_max": ours}
        warn = _only_warn(sender)
        assert BOTH_VERSIONS in warn
        assert lab.address(0) in warn
        assert "eni0" in warn


@pytest.mark.parametrize("handle", [bytes(128), bytes(range(128)), SOCKETS_HANDLE])
def test_foreign_handle(make_lab: MakeLab, plugin_file: Path, handle: bytes) -> None:
    """One WARN contains what it may come from, and the plugin goes on to serve its own."""
    lab = make_lab(LabSpec())
    with RemotePeer(lab, 0, plugin_file) as receiver, RemotePeer(lab, 1, plugin_file) as sender:
        assert sender.call("connect", handle.hex()) == abi.REMOTE
        assert "handle is not one of HARP's" in _only_warn(sender)
        connect_peers(receiver, sender)
        transfer_messages(receiver, sender, 2, 1000)
