# SPDX-License-Identifier: Apache-2.0
"""Asks the cloud for the address of an ENI that has none in this guest: Tencent Cloud's and EC2's metadata.

Both serve one tree per MAC address over plain HTTP on a link-local address; never by way of a proxy.
"""

from __future__ import annotations

import http.client
import ipaddress
import urllib.error
import urllib.request
from collections.abc import Sequence

import msgspec

from harpctl.host.host import Host

VENDOR = "/sys/class/dmi/id/sys_vendor"
TIMEOUT_S = 2.0
ANSWER_BYTES_MAX = 4096
TENCENT_URL = "http://169.254.0.23/latest/meta-data"
EC2_URL = "http://169.254.169.254/latest"
SESSION_S = "60"
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """An ENI's primary address as the cloud has it."""

    cidr: str  # with prefix length: 10.0.1.5/24
    gateway: str  # "" unknown


def _fetch_text(url: str, *, method: str = "GET", headers: dict[str, str] | None = None) -> str:
    """Return a short answer's text; "" for a path that the service doesn't have. Raises OSError."""
    request = urllib.request.Request(url, method=method, headers=headers or {})  # noqa: S310 - our own URLs
    try:
        with _OPENER.open(request, timeout=TIMEOUT_S) as answer:
            return str(answer.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")).strip()
    except urllib.error.HTTPError as error:
        error.close()
        return ""
    except http.client.HTTPException as error:  # a server of another protocol, or a path that can't be
        raise OSError(str(error)) from error


def _make_address(ip: str, size: str, gateway: str) -> Address | None:
    """Put the parts together; `size` is a netmask or a subnet. None where they make no sense."""
    try:
        prefix = ipaddress.ip_network(size if "/" in size else f"0.0.0.0/{size}").prefixlen
        address = ipaddress.ip_interface(f"{ip}/{prefix}")
        if gateway:
            ipaddress.ip_address(gateway)
    except ValueError:
        return None
    return Address(cidr=str(address), gateway=gateway)


class Tencent:
    """Tencent Cloud."""

    vendor = "Tencent Cloud"  # as the firmware of the cloud's machines names it

    def __init__(self, url: str = TENCENT_URL) -> None:
        self._macs = f"{url}/network/interfaces/macs"

    def find_address(self, mac: str) -> Address | None:
        """Return an ENI's address; None where it is not known. Raises OSError where there is no service."""
        base = f"{self._macs}/{mac}"
        ip = _fetch_text(f"{base}/primary-local-ipv4")
        if not ip:
            return None
        local = f"{base}/local-ipv4s/{ip}"
        return _make_address(ip, _fetch_text(f"{local}/subnet-mask"), _fetch_text(f"{local}/gateway"))


class Ec2:
    """EC2: asked with a session token (IMDSv2). Its router is the first address of each subnet."""

    vendor = "Amazon EC2"

    def __init__(self, url: str = EC2_URL) -> None:
        self._url = url
        self._token = ""

    def find_address(self, mac: str) -> Address | None:
        """Return an ENI's address; None where it is not known. Raises OSError where there is no service."""
        base = f"network/interfaces/macs/{mac}"
        ips = self._read_path(f"{base}/local-ipv4s").split()
        subnet = self._read_path(f"{base}/subnet-ipv4-cidr-block")
        if not ips or "/" not in subnet:
            return None
        try:
            router = str(ipaddress.ip_network(subnet)[1])
        except (ValueError, IndexError):
            return None
        return _make_address(ips[0], subnet, router)

    def read_instance_type(self) -> str:
        """Return the kind of the machine, such as p4d.24xlarge; "" where it is unknown. Raises OSError."""
        return self._read_path("instance-type")

    def _read_path(self, path: str) -> str:
        if not self._token:
            seconds = {"X-aws-ec2-metadata-token-ttl-seconds": SESSION_S}
            self._token = _fetch_text(f"{self._url}/api/token", method="PUT", headers=seconds)
            if not self._token:
                return ""
        headers = {"X-aws-ec2-metadata-token": self._token}
        return _fetch_text(f"{self._url}/meta-data/{path}", headers=headers)


Source = Tencent | Ec2


def sources_of(host: Host) -> tuple[Source, ...]:
    """Return the service of the cloud that the firmware names; elsewhere anybody might answer."""
    vendor = host.read_word(VENDOR)
    return tuple(source for source in (Tencent(), Ec2()) if source.vendor == vendor)


def look_up_addresses(macs: Sequence[str], sources: Sequence[Source]) -> dict[str, Address]:
    """Return the addresses that the cloud knows for some MAC addresses; {} where there is no service.

    A source that doesn't answer is not asked again. Where there is none at all it takes some seconds.
    """
    found: dict[str, Address] = {}
    for source in sources:
        try:
            for mac in macs:
                if mac not in found and (address := source.find_address(mac.lower())):
                    found[mac] = address
        except (OSError, ValueError):
            continue
        if found:
            break
    return found
