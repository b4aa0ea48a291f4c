"""Runs KEDA's operator as a process, and a Prometheus that answers with one value.

    with run_keda(plane, folder), prometheus(2.0) as (address, queries):
        ...

KEDA's adapter, which serves metrics to HorizontalPodAutoscalers, does not run.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from distributed_input.runtime.addresses import free_ports
from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import Daemon
from testing.cluster.pki import Authority
from testing.ecosystem.controllers import install_files, running


@contextmanager
def run_keda(plane: ControlPlane, folder: Path) -> Iterator[Daemon]:
    """Install KEDA's definitions and run its operator. Yield when it is ready."""
    authority = Authority()
    pair = authority.issue("keda-operator", "", ("127.0.0.1",))
    for name, content in (
        ("ca.crt", authority.certificate),
        ("tls.crt", pair.certificate),
        ("tls.key", pair.key),
    ):
        (folder / name).write_bytes(content)
    install_files(plane, "keda", "config/crd/bases/*.yaml")
    health, metrics = free_ports(2)
    argv = [
        str(binary("keda")),
        f"--health-probe-bind-address=127.0.0.1:{health}",
        f"--metrics-service-bind-address=127.0.0.1:{metrics}",
        "--metrics-bind-address=0",
        f"--cert-dir={folder}",
    ]
    environment = {"KUBECONFIG": str(plane.kubeconfig), "WATCH_NAMESPACE": ""}
    environment |= {"POD_NAMESPACE": "default", "KEDA_CLUSTER_OBJECT_NAMESPACE": "default"}
    daemon = Daemon(folder, "keda", argv, die_with_parent=True, env=environment)
    with running(daemon, health):
        yield daemon


@contextmanager
def prometheus(value: float) -> Iterator[tuple[str, list[str]]]:
    """Serve one value for each query. Yield the address, and the queries so far."""
    queries: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            queries.extend(parse_qs(urlsplit(self.path).query).get("query", ()))
            result = [{"metric": {}, "value": [time.time(), str(value)]}]
            data = {"resultType": "vector", "result": result}
            body = json.dumps({"status": "success", "data": data}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", queries
    finally:
        server.shutdown()
        server.server_close()
        thread.join(20)
