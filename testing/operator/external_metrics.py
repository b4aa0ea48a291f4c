"""An adapter that serves the external metrics API to HorizontalPodAutoscalers.

    with run_adapter(plane, cluster, value, folder): ...

The API server finds it by an APIService, a Service and its endpoints, like any adapter.
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
"""(namespace, metric, labels as NAME=VALUE,...) → the value, or None if there is none."""


@contextmanager
def run_adapter(
    plane: ControlPlane, cluster: Cluster, value: Value, folder: Path
) -> Iterator[None]:
    """Serve a metric to the API server. folder: for the adapter's certificate."""
    assert plane.authority, "another process created the control plane"
    pair = plane.authority.issue(f"{_NAME}.{cluster.namespace}.svc")
    (folder / "tls.pem").write_bytes(pair.certificate + pair.key)
    # Not on loopback: the API server accepts no loopback endpoints.
    server = ThreadingHTTPServer(("0.0.0.0", 0), _handler(value))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "tls.pem")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        _create_service(cluster, server.server_port)
        with _registered_api_service(cluster, plane.authority.certificate):
            yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)


def _create_service(cluster: Cluster, port: int) -> None:
    """Create a Service whose endpoint is a port of this machine."""
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
def _registered_api_service(cluster: Cluster, authority: bytes) -> Iterator[None]:
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
        # An APIService that does not respond blocks the deletion of namespaces.
        cluster.call("DELETE", f"{_API_SERVICES}/{name}")


def _own_address() -> str:
    """Return an address of this machine that is not loopback. Sends no packet."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.connect(("192.0.2.1", 9))
        return str(sock.getsockname()[0])


def _handler(value: Value) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            labels = parse_qs(url.query).get("labelSelector", [""])[0]
            found = _response_to(url.path, labels, value)
            body = json.dumps(found or {}).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    return Handler


def _response_to(path: str, labels: str, value: Value) -> dict[str, Any] | None:
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
