"""The metrics of a process in Prometheus' text format, served over HTTP.

exposed = Exposition()
exposed.add_source(source)
server = exposed.serve("0.0.0.0:9090", healthy)
"""

from __future__ import annotations

import http.server
import math
import threading
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from distributed_input.api.errors import ConfigError
from distributed_input.api.flags import METRICS_OFF
from distributed_input.runtime import addresses, logs, metrics

_log = logs.get("runtime.exposition")

SampleSource = Callable[[], Iterable[metrics.Sample]]


class Exposition(Collector):
    """The metrics of one process: samples from sources, and CPU time and memory."""

    def __init__(self) -> None:
        self._sources: list[SampleSource] = []
        self._registry = CollectorRegistry(auto_describe=False)
        # distributed_input_process_resident_memory_bytes, ..._cpu_seconds_total, ..._open_fds
        ProcessCollector(namespace=metrics.PREFIX.rstrip("_"), registry=self._registry)
        self._registry.register(self)

    def add_source(self, source: SampleSource) -> None:
        """Add a function that returns samples. Every scrape calls it on another thread."""
        self._sources.append(source)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def serve(self, listen: str, healthy: Callable[[], bool]) -> MetricsServer | None:
        """Serve /metrics and /healthz on `listen`; return None if `listen` is "off".

        Raises:
            ConfigError: the address is invalid or in use.
        """
        return None if listen == METRICS_OFF else MetricsServer(listen, self.render, healthy)

    def collect(self) -> Iterator[Metric]:
        """Yield the samples of all sources, by metric."""
        families: dict[str, CounterMetricFamily | GaugeMetricFamily] = {}
        for definition, value, labels in self._samples():
            kind = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
            family = families.setdefault(
                definition.name, kind(definition.name, definition.help, labels=definition.labels)
            )
            if not math.isnan(value):
                family.add_metric(labels, value)
        yield from families.values()

    def _samples(self) -> Iterator[metrics.Sample]:
        for source in list(self._sources):
            try:
                yield from source()
            except Exception:  # noqa: BLE001 - must not hide the other metrics
                _log.exception("metrics source failed")


class MetricsServer:
    """An HTTP server: /metrics, and /healthz with 200 or 503. It serves from its construction."""

    def __init__(
        self, listen: str, render: Callable[[], bytes], healthy: Callable[[], bool]
    ) -> None:
        host, port = addresses.parse(listen, "--metrics-listen")
        try:
            self._server = http.server.ThreadingHTTPServer((host, port), _handler(render, healthy))
        except OSError as error:
            raise ConfigError(
                f"--metrics-listen {listen}: cannot bind ({error.strerror or error}): set another "
                "port, port 0 for a free port, or off"
            ) from error
        self.port: int = self._server.server_address[1]
        self.address = addresses.join(host, self.port)
        """host:port that the server is bound to."""
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()

    def close(self) -> None:
        """Stop serving and free the port."""
        self._server.shutdown()
        self._server.server_close()


def _handler(
    render: Callable[[], bytes], healthy: Callable[[], bool]
) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10.0  # seconds until it closes an idle connection

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
                self._respond(200, render(), CONTENT_TYPE_LATEST)
            elif path == "/healthz":
                is_healthy = healthy()
                body = b"ok\n" if is_healthy else b"not serving\n"
                self._respond(200 if is_healthy else 503, body)
            else:
                self._respond(404, b"/metrics or /healthz\n")

        def _respond(self, status: int, body: bytes, kind: str = "text/plain") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
            """Log nothing: probes come every few seconds."""

    return Handler
