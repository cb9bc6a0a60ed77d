# SPDX-License-Identifier: Apache-2.0
"""The API server of the cluster that this pod runs in: labels of nodes, the DaemonSet."""

from __future__ import annotations

import http
import os
import re
import ssl
import urllib.error
import urllib.request
from typing import Any

import msgspec

from harpctl.errors import ExitCode, HarpError
from harpctl.host.host import Host

SECRETS = "/var/run/secrets/kubernetes.io/serviceaccount"
ADDRESS = ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
LABEL = "harp/version"
LABEL_BYTES_MAX = 63
TIMEOUT_S = 10.0
ANSWER_BYTES_MAX = 16 << 20
LOST_ACCESS = {http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN}
ACCESS = "Apply docs/how-to/deploy/access.yaml, which gives the service account what it needs."


class Response(msgspec.Struct, frozen=True):
    """An answer of the API server."""

    code: int
    document: dict[str, Any]

    @property
    def reason(self) -> str:
        """Return the server's message; "" where it sent none."""
        return str(self.document.get("message", ""))


class Cluster:
    """A connection to the API server; `host` is the pod's own file system, with its credentials."""

    def __init__(self, host: Host) -> None:
        self._host = host
        name, port = (os.environ.get(word, "") for word in ADDRESS)
        if not (name and port and host.is_file(f"{SECRETS}/token")):
            raise HarpError(
                "This is not a pod with a service account, so no API server is known.",
                "Leave --node out to install without a cluster.",
                ExitCode.MISSING,
            )
        self._url = f"https://{f'[{name}]' if ':' in name else name}:{port}"

    def request(self, method: str, path: str, body: object = None) -> Response:
        """Send a request; a body is a merge patch. Raises HarpError where no answer comes."""
        headers = {"Authorization": f"Bearer {self._host.read_word(f'{SECRETS}/token')}"}  # it is renewed
        data = None
        if body is not None:
            data = msgspec.json.encode(body)
            headers["Content-Type"] = "application/merge-patch+json"
        request = urllib.request.Request(self._url + path, data, headers, method=method)  # noqa: S310 - https
        try:
            context = ssl.create_default_context(cadata=self._host.read_text(f"{SECRETS}/ca.crt"))
            direct = urllib.request.ProxyHandler({})
            opener = urllib.request.build_opener(direct, urllib.request.HTTPSHandler(context=context))
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return Response(answer.status, _parse_object(answer.read(ANSWER_BYTES_MAX)))
        except urllib.error.HTTPError as error:
            with error:
                return Response(error.code, _parse_object(error.read(ANSWER_BYTES_MAX)))
        except (OSError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            raise HarpError(
                f"The API server at {self._url} does not answer: {why}.",
                "Look whether pods of this node reach it.",
            ) from None


def _parse_object(data: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.MsgspecError:
        return {}


def label_value(version: str) -> str:
    """Return a version as the value of a label may be written."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", version)[:LABEL_BYTES_MAX].strip("._-")


def set_label(cluster: Cluster, node: str, value: str | None) -> None:
    """Set the label of a node; None takes it away, and so does a node that is gone. Raises HarpError."""
    answer = cluster.request("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"labels": {LABEL: value}}})
    is_gone = answer.code == http.HTTPStatus.NOT_FOUND and value is None
    if answer.code != http.HTTPStatus.OK and not is_gone:
        hint = ACCESS if value is not None else f"Do it by hand: kubectl label node {node} {LABEL}-"
        raise HarpError(
            f"The label {LABEL} of node {node} can't be {'set' if value else 'removed'}: "
            f"{answer.code} {answer.reason}".strip().rstrip(".")
            + ".",
            hint,
        )


def is_wanted(cluster: Cluster, node: str, namespace: str, name: str) -> bool:
    """Return whether a DaemonSet still selects a node for a pod.

    One that this service account may no longer read counts as deleted: its access was deleted with it.
    Raises HarpError where the API server does not answer that.
    """
    answer = cluster.request("GET", f"/apis/apps/v1/namespaces/{namespace}/daemonsets/{name}")
    if answer.code in LOST_ACCESS | {http.HTTPStatus.NOT_FOUND}:
        return False
    if answer.code != http.HTTPStatus.OK:
        raise HarpError(
            f"The DaemonSet {namespace}/{name} can't be read: {answer.code} {answer.reason}.",
            "Apply docs/how-to/deploy/access.yaml, which gives the pod the right to read it.",
        )
    found = answer.document
    if found.get("metadata", {}).get("deletionTimestamp"):
        return False
    selector = found.get("spec", {}).get("template", {}).get("spec", {}).get("nodeSelector") or {}
    if not selector:
        return True
    labels = cluster.request("GET", f"/api/v1/nodes/{node}").document.get("metadata", {}).get("labels")
    return labels is None or selector.items() <= labels.items()
