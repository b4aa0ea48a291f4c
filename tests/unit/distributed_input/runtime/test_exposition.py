"""Rendering and serving of metrics."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import metrics
from distributed_input.runtime.exposition import Exposition


def get(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def broken() -> list[metrics.Sample]:
    raise ZeroDivisionError


def test_samples_are_rendered_and_failing_sources_are_skipped():
    exposed = Exposition()
    exposed.add_source(lambda: [metrics.sample(metrics.SIDECAR_ROWS, 3, input='a"b', rank="0")])
    exposed.add_source(broken)
    exposed.add_source(
        lambda: [
            metrics.sample(metrics.SIDECAR_ROWS, 4, input="c", rank="1"),
            metrics.sample(metrics.WORKER_OPEN_STREAMS, 2),
        ]
    )
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(exposed.render().decode())
        for sample in family.samples
    }
    assert found["distributed_input_sidecar_rows_total", 'a"b', "0"] == 3
    assert found["distributed_input_sidecar_rows_total", "c", "1"] == 4
    assert found["distributed_input_worker_open_streams",] == 2
    assert found["distributed_input_process_resident_memory_bytes",] > 1e6


def test_metrics_and_health_are_served():
    healthy = True
    exposed = Exposition()
    exposed.add_source(lambda: [metrics.sample(metrics.WORKER_ROWS, 7)])
    server = exposed.serve("127.0.0.1:0", lambda: healthy)
    assert server is not None
    try:
        status, text = get(server.address, "/metrics?x=1")
        assert status == 200
        assert "distributed_input_worker_rows_total 7.0" in text
        assert get(server.address, "/healthz") == (200, "ok\n")
        healthy = False
        assert get(server.address, "/healthz")[0] == 503
        assert get(server.address, "/other")[0] == 404
        with pytest.raises(ConfigError, match=rf"--metrics-listen {server.address}: cannot bind"):
            exposed.serve(server.address, lambda: True)
    finally:
        server.close()


def test_off_starts_no_server():
    assert Exposition().serve("off", lambda: True) is None
