# SPDX-License-Identifier: Apache-2.0
"""Addresses from the cloud: both services as a server on loopback."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from harpctl.host.host import Host
from harpctl.network.metadata import (
    EC2_URL,
    TENCENT_URL,
    VENDOR,
    Address,
    Ec2,
    Tencent,
    look_up_addresses,
    sources_of,
)
from harpctl.network.speeds import known_speed

MAC1, MAC2, MAC3 = "52:54:00:00:00:11", "52:54:00:00:00:12", "52:54:00:00:00:13"
MACS = "/latest/meta-data/network/interfaces/macs"
TENCENT = {
    f"{MACS}/{MAC1}/primary-local-ipv4": "10.0.1.5",
    f"{MACS}/{MAC1}/local-ipv4s/10.0.1.5/gateway": "10.0.1.1",
    f"{MACS}/{MAC1}/local-ipv4s/10.0.1.5/subnet-mask": "255.255.240.0",
    f"{MACS}/{MAC2}/primary-local-ipv4": "10.0.2.5",
    f"{MACS}/{MAC2}/local-ipv4s/10.0.2.5/subnet-mask": "<html>no</html>",
}
EC2 = {
    f"{MACS}/{MAC1}/local-ipv4s": "172.31.5.9\n172.31.5.10",
    f"{MACS}/{MAC1}/subnet-ipv4-cidr-block": "172.31.0.0/20",
    f"{MACS}/{MAC2}/local-ipv4s": "172.31.5.11",
}
TOKEN = "a-session"  # noqa: S105


class Service:
    def __init__(self) -> None:
        self.paths: dict[str, str] = {}
        self.wants_token = False
        self.requests: list[str] = []
        self.url = ""


@pytest.fixture
def service() -> Iterator[Service]:
    state = Service()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self, text: str | None) -> None:
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def do_GET(self) -> None:
            state.requests.append(self.path)
            if state.wants_token and self.headers.get("X-aws-ec2-metadata-token") != TOKEN:
                self.send_response(401)
                self.end_headers()
                return
            self._answer(state.paths.get(self.path))

        def do_PUT(self) -> None:
            has_life = self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            self._answer(TOKEN if state.wants_token and self.path == "/latest/api/token" and has_life else None)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            del format, args

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/latest"
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_tencent(service: Service) -> None:
    service.paths = TENCENT
    found = look_up_addresses([MAC1, MAC2, MAC3], [Tencent(f"{service.url}/meta-data")])
    assert found == {MAC1: Address(cidr="10.0.1.5/20", gateway="10.0.1.1")}


def test_ec2(service: Service) -> None:
    service.paths, service.wants_token = EC2, True
    assert look_up_addresses([MAC1, MAC2], [Ec2(service.url)]) == {
        MAC1: Address(cidr="172.31.5.9/20", gateway="172.31.0.1")
    }


def test_the_mac_is_requested_in_lower_case_and_returned_as_it_was_given(service: Service) -> None:
    service.paths = {path.replace(MAC1, "aa:bb:cc:00:00:01"): text for path, text in TENCENT.items()}
    assert list(look_up_addresses(["AA:BB:CC:00:00:01"], [Tencent(f"{service.url}/meta-data")])) == [
        "AA:BB:CC:00:00:01"
    ]


def test_the_next_source_is_queried_where_the_first_has_nothing(service: Service) -> None:
    service.paths, service.wants_token = EC2, True
    assert MAC1 in look_up_addresses([MAC1], [Tencent(f"{service.url}/meta-data"), Ec2(service.url)])


@pytest.mark.parametrize(
    ("vendor", "names"),
    [("Tencent Cloud", ["Tencent"]), ("Amazon EC2", ["Ec2"]), ("Dell Inc.", []), ("", [])],
)
def test_only_the_cloud_that_the_firmware_names_is_queried(tmp_path: Path, vendor: str, names: list[str]) -> None:
    (tmp_path / "sys/class/dmi/id").mkdir(parents=True)
    (tmp_path / "sys/class/dmi/id/sys_vendor").write_text(f"{vendor}\n")
    assert [type(source).__name__ for source in sources_of(Host(tmp_path))] == names


def test_the_services_need_no_name_server() -> None:
    hosts = [urlsplit(url).hostname for url in (TENCENT_URL, EC2_URL)]
    assert all(ipaddress.ip_address(str(host)).is_link_local for host in hosts)


def test_no_service(service: Service) -> None:
    closed = "http://127.0.0.1:1/latest"
    assert look_up_addresses([MAC1], [Tencent(closed), Ec2(closed), Ec2(service.url)]) == {}


@pytest.mark.parametrize("page", ["<html>\n<body>Log in</body>", "10.0.1.5 or so"])
def test_a_server_that_answers_for_every_name(service: Service, page: str) -> None:
    """The answers of a captive portal are no address, and make no path for the next question."""
    service.paths = {f"{MACS}/{MAC1}/primary-local-ipv4": page}
    assert look_up_addresses([MAC1], [Tencent(f"{service.url}/meta-data")]) == {}


def test_a_server_that_does_not_speak_http(tmp_path: Path) -> None:
    vendor = tmp_path / VENDOR[1:]
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _address = server.accept()
            with client:
                client.recv(4096)
                client.sendall(b"220 mail.example ESMTP\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        assert known_speed(Host(tmp_path), 1, Ec2(url)) == 0
        thread.join()


def test_no_proxy(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    service.paths = TENCENT
    assert MAC1 in look_up_addresses([MAC1], [Tencent(f"{service.url}/meta-data")])


@pytest.mark.parametrize(
    ("kind", "enis", "speed"),
    [
        ("p4d.24xlarge", 1, 100_000),
        ("p4d.24xlarge", 4, 100_000),
        ("p4d.24xlarge", 8, 50_000),
        ("p5.48xlarge", 8, 100_000),
        ("p6-b200.48xlarge", 8, 200_000),
        ("p6-b300.48xlarge", 17, 220_000),
        ("g6e.24xlarge", 2, 100_000),
        ("g5.48xlarge", 8, 12_500),
        ("x9.metal", 1, 0),
    ],
)
def test_the_speed_of_a_known_machine(service: Service, tmp_path: Path, kind: str, enis: int, speed: int) -> None:
    service.paths, service.wants_token = {"/latest/meta-data/instance-type": kind}, True
    vendor = tmp_path / VENDOR[1:]
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    assert known_speed(Host(tmp_path), enis, Ec2(service.url)) == speed


def test_elsewhere_no_service_is_queried_for_a_speed(service: Service, tmp_path: Path) -> None:
    assert known_speed(Host(tmp_path), 1, Ec2(service.url)) == 0
    vendor = tmp_path / VENDOR[1:]
    vendor.parent.mkdir(parents=True)
    vendor.write_text("QEMU\n")
    assert known_speed(Host(tmp_path), 1, Ec2(service.url)) == 0
    assert service.requests == []


def test_a_service_that_is_not_there_costs_no_more_than_its_timeout(tmp_path: Path) -> None:
    vendor = tmp_path / VENDOR[1:]
    vendor.parent.mkdir(parents=True)
    vendor.write_text("Amazon EC2\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert known_speed(Host(tmp_path), 1, Ec2(f"http://127.0.0.1:{port}")) == 0
