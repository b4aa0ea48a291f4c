"""An adapter as HorizontalPodAutoscalers know them: the external metrics API, of any numbers.

    with adapter(plane, cluster, value): ...

The API server finds it as it finds any other: by an APIService, a Service and its endpoints.
"""

from __future__ import annotations

import base64
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually

_GROUP, _VERSION = "external.metrics.k8s.io", "v1beta1"
_ROOT = f"/apis/{_GROUP}/{_VERSION}"
_API_SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
_NAME = "external-metrics"

Value = Callable[[str, str, str], float | None]
"""(namespace, metric, labels as NAME=VALUE,...) → its value; None: there is none."""


@contextmanager
def adapter(plane: ControlPlane, cluster: Cluster, value: Value, folder: Path) -> Iterator[None]:
    """Serve a metric to the API server; `folder` is for the adapter's certificate."""
    assert plane.authority, "a control plane of this process"
    pair = plane.authority.issue(f"{_NAME}.{cluster.namespace}.svc")
    (folder / "tls.pem").write_bytes(pair.certificate + pair.key)
    # Not on loopback: the API server knows no endpoints there.
    server = ThreadingHTTPServer(("0.0.0.0", 0), _handler(value))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _serve_at(cluster, server.server_port)
        with _registered(cluster, plane.authority.certificate):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def _serve_at(cluster: Cluster, port: int) -> None:
    """A Service of the cluster's namespace whose endpoint is a port of this machine."""
    namespace = f"/namespaces/{cluster.namespace}"
    cluster.call(
        "POST",
        f"/api/v1{namespace}/services",
        {"metadata": {"name": _NAME}, "spec": {"ports": [{"name": "https", "port": 443}]}},
    )
    cluster.call(
        "POST",
        f"/apis/discovery.k8s.io/v1{namespace}/endpointslices",
        {
            "metadata": {"name": _NAME, "labels": {"kubernetes.io/service-name": _NAME}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [_own_address()], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": port}],
        },
    )


@contextmanager
def _registered(cluster: Cluster, authority: bytes) -> Iterator[None]:
    name = f"{_VERSION}.{_GROUP}"
    spec = {
        "group": _GROUP,
        "version": _VERSION,
        "service": {"namespace": cluster.namespace, "name": _NAME},
        "caBundle": base64.b64encode(authority).decode(),
        "groupPriorityMinimum": 100,
        "versionPriority": 100,
    }
    cluster.call("POST", _API_SERVICES, {"metadata": {"name": name}, "spec": spec})

    def available() -> bool:
        found = cluster.call("GET", f"{_API_SERVICES}/{name}").get("status", {})
        conditions = {one["type"]: one["status"] for one in found.get("conditions", [])}
        return conditions.get("Available") == "True"

    try:
        eventually(available)
        yield
    finally:
        # As long as it is named and does not answer, no namespace can be deleted.
        cluster.call("DELETE", f"{_API_SERVICES}/{name}")


def _own_address() -> str:
    """One of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.connect(("192.0.2.1", 9))
        return str(asked.getsockname()[0])


def _handler(value: Value) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            labels = parse_qs(asked.query).get("labelSelector", [""])[0]
            found = _answer(asked.path, labels, value)
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    return Handler


def _answer(path: str, labels: str, value: Value) -> dict[str, Any] | None:
    if path == _ROOT:
        version = f"{_GROUP}/{_VERSION}"
        return {"kind": "APIResourceList", "groupVersion": version, "resources": []}
    parts = path.removeprefix(f"{_ROOT}/").split("/")
    if len(parts) != 3 or parts[0] != "namespaces":
        return None
    found = value(parts[1], parts[2], labels)
    item = {
        "metricName": parts[2],
        "metricLabels": {},
        "timestamp": "2026-01-01T00:00:00Z",
        "value": f"{round((found or 0) * 1000)}m",
    }
    items = [] if found is None else [item]
    kind = "ExternalMetricValueList"
    return {"kind": kind, "apiVersion": f"{_GROUP}/{_VERSION}", "metadata": {}, "items": items}
