# SPDX-License-Identifier: Apache-2.0
"""An API server that knows one node and one DaemonSet, and the secrets of a pod that may talk to it."""

from __future__ import annotations

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import trustme

NODE = "gpu1"
DAEMONSET = "harp/harp-installer"
TOKEN = "a-token"  # noqa: S105 - of this server alone
NODE_PATH = f"/api/v1/nodes/{NODE}"
DAEMONSET_PATH = "/apis/apps/v1/namespaces/harp/daemonsets/harp-installer"


class Api:
    """A context manager; a test looks at `labels` and sets what is answered."""

    def __init__(self, folder: Path) -> None:
        self.labels = {"nvidia.com/gpu.present": "true"}
        self.daemonset: dict[str, Any] | None = {
            "metadata": {},
            "spec": {"template": {"spec": {"nodeSelector": {"nvidia.com/gpu.present": "true"}}}},
        }
        self.refuses: dict[str, int] = {}  # method and its code
        self.requests: list[str] = []
        authority = trustme.CA()
        self.secrets = folder / "secrets"
        self.secrets.mkdir()
        (self.secrets / "token").write_text(TOKEN + "\n")
        authority.cert_pem.write_to_path(str(self.secrets / "ca.crt"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def environment(self) -> dict[str, str]:
        """Return what a pod has in its environment."""
        host, port = self._server.server_address[:2]
        return {"KUBERNETES_SERVICE_HOST": str(host), "KUBERNETES_SERVICE_PORT": str(port)}

    def __enter__(self) -> Api:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Answer no more."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def answer(self, method: str, path: str, body: bytes, kind: str) -> tuple[int, dict[str, Any]]:
        """Carry out a request."""
        if method in self.refuses:
            return self.refuses[method], {"message": "not here"}
        if path == NODE_PATH and method == "PATCH" and kind == "application/merge-patch+json":
            for name, value in json.loads(body)["metadata"]["labels"].items():
                if value is None:
                    self.labels.pop(name, None)
                else:
                    self.labels[name] = value
        if path == NODE_PATH:
            return 200, {"metadata": {"name": NODE, "labels": self.labels}}
        if path == DAEMONSET_PATH and self.daemonset is not None:
            return 200, self.daemonset
        return 404, {"message": "not found"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                api.requests.append(f"{self.command} {self.path}")
                code, document = 401, {"message": "who are you"}
                if self.headers.get("Authorization") == f"Bearer {TOKEN}":
                    kind = self.headers.get("Content-Type") or ""
                    code, document = api.answer(self.command, self.path, body, kind)
                data = json.dumps(document).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_PATCH = _do  # noqa: N815 - http.server's names

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler
