# SPDX-License-Identifier: Apache-2.0
"""Queries of the running machine: children that may die, and a responder on the loopback interface."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harpctl.doctor.host_clock import NEVER_SAID_US, STA_UNSYNC, TIME_ERROR, clock_state
from harpctl.doctor.machine import Machine, in_child
from harpctl.doctor.path_probe import ECHO, REFUSED, probe_path, probe_tcp, probe_udp
from harpctl.doctor.probe_packet import HEAD_BYTES, answer_to, make_request
from harpctl.doctor.responder import Responder, own_addresses
from harpctl.errors import HarpError

LOCAL = "127.0.0.1"
WAIT_S = 20


# ---- children ----


def test_answer_of_a_child() -> None:
    assert in_child(lambda: "") == ""
    assert in_child(lambda: "no pages") == "no pages"
    assert len(in_child(lambda: "x" * 100_000)) == 4095


def test_child_that_is_killed() -> None:
    def die() -> str:
        os.kill(os.getpid(), signal.SIGBUS)
        return "alive"

    assert in_child(die) == "it was killed by SIGBUS"


def test_child_that_raises() -> None:
    def fall() -> str:
        raise ValueError

    assert in_child(fall) == "it ended without an answer"


def test_child_that_hangs() -> None:
    def hang() -> str:
        signal.pause()
        return ""

    assert in_child(hang, timeout_s=0.05) == "it did not end within 0.05 s"


def test_child_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def shout() -> str:
        os.write(1, b"noise")
        os.write(2, b"noise")
        return ""

    assert in_child(shout) == ""
    assert capfd.readouterr() == ("", "")


def test_library(plugin_file: Path, tmp_path: Path) -> None:
    machine = Machine()
    assert machine.load(str(plugin_file), ("ncclNetPlugin_v12", "ncclNetPlugin_v4")) == ""
    assert machine.load(str(plugin_file), ("ncclNetPlugin_v99",)) == "it lacks ncclNetPlugin_v99"
    assert "cannot open shared object file" in machine.load(str(tmp_path / "absent.so"), ())
    (tmp_path / "text.so").write_text("no library")
    assert "too short" in machine.load(str(tmp_path / "text.so"), ())


def test_hugepage() -> None:
    """A page is had exactly where one is free; pages of 8 KiB no processor has."""
    free = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    has_free = free.is_file() and int(free.read_text()) > 0
    assert (Machine().use_page(2 << 20) == "") == has_free
    assert Machine().use_page(8 << 10).startswith("mmap: ")


def test_egress_over_loopback() -> None:
    assert Machine().egress(LOCAL, "127.0.0.2") == "lo"
    assert Machine().egress("203.0.113.77", "203.0.113.78") == ""  # not an address of ours


def test_clock() -> None:
    """The state is told from status and return value, as the plugin tells it."""
    assert clock_state(0, 0, 250).is_disciplined
    assert clock_state(0, 0, 250).error_us == 250
    assert clock_state(0, 0, NEVER_SAID_US).error_us is None
    assert not clock_state(TIME_ERROR, 0, 0).is_disciplined
    assert not clock_state(0, STA_UNSYNC, 0).is_disciplined
    clock = Machine().clock()
    assert not clock.refusal
    assert clock.error_us is None or 0 <= clock.error_us < NEVER_SAID_US


# ---- the responder ----


@pytest.fixture
def answering() -> Iterator[tuple[Responder, int]]:
    with socket.socket() as free:
        free.bind((LOCAL, 0))
        port = free.getsockname()[1]
    stop = threading.Event()
    with Responder([LOCAL], port) as responder:
        thread = threading.Thread(target=responder.run, args=(WAIT_S, stop.is_set))
        thread.start()
        try:
            yield responder, port
        finally:
            stop.set()
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_reach_over_loopback(answering: tuple[Responder, int]) -> None:
    _responder, port = answering
    found = probe_path(LOCAL, LOCAL, port, 65536, ())
    assert (found.udp, found.full, found.passed, found.tcp) == (ECHO, ECHO, 65536, {port: ECHO})
    assert probe_udp(LOCAL, LOCAL, port, [24, 100, 1472]) == dict.fromkeys((24, 100, 1472), ECHO)


def test_nobody_there(answering: tuple[Responder, int]) -> None:
    del answering
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind((LOCAL, 0))
        port = free.getsockname()[1]
    assert probe_udp(LOCAL, LOCAL, port, [HEAD_BYTES]) == {HEAD_BYTES: REFUSED}
    assert probe_tcp(LOCAL, LOCAL, port) == REFUSED


def test_answers_probes_alone(answering: tuple[Responder, int]) -> None:
    responder, port = answering
    request = make_request(500)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.settimeout(WAIT_S)
        out.connect((LOCAL, port))
        answer = answer_to(request)
        assert answer is not None
        for other in (b"", b"x" * 500, answer, request[: HEAD_BYTES - 1], b"HARPdoc2" + request[8:]):
            out.send(other)
        out.send(request)
        assert out.recv(1 << 16) == answer
    assert responder.answered == 1
    assert len(answer) == len(request)
    assert answer != request


def test_answers_so_many_a_second(answering: tuple[Responder, int], monkeypatch: pytest.MonkeyPatch) -> None:
    responder, port = answering
    monkeypatch.setattr(responder, "rate", 3)
    begin = time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        out.settimeout(WAIT_S)
        out.connect((LOCAL, port))
        for _ in range(100):
            out.send(make_request(HEAD_BYTES))
        for _ in range(3):
            out.recv(1 << 16)
    assert 3 <= responder.answered <= 3 + 3 * (time.monotonic() - begin + 1)


def test_port_in_use(answering: tuple[Responder, int]) -> None:
    _responder, port = answering
    with pytest.raises(HarpError, match=f"{LOCAL} port {port} cannot be listened on") as caught:
        Responder([LOCAL], port)
    assert "--port" in caught.value.hint


def test_ends_by_itself() -> None:
    with Responder([LOCAL], 0) as responder:
        responder.run(0.01)


def test_own_addresses() -> None:
    addresses = own_addresses()
    assert addresses
    assert not any("%" in address for address in addresses)
