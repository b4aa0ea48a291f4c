"""Runs a real Prometheus and promtool, from Debian's package."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from testing.cluster.binaries import cache_dir, create_once
from testing.cluster.debian import unpack
from testing.operator.processes import eventually
from testing.operator.webhooks import free_port

_SECONDS = 60.0


def binary(name: str) -> Path:
    """Return the path of `prometheus` or `promtool`: this machine's or Debian's.

    Raises:
        testing.cluster.debian.AptMissingError: it is missing, and there is no apt-get.
    """
    if installed := shutil.which(name):
        return Path(installed)
    package = create_once(cache_dir() / "prometheus", "apt", lambda new: unpack("prometheus", new))
    return package / "usr" / "bin" / name


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run promtool and return the completed process."""
    command = [binary("promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **query: str) -> Any:
        """Get a path below /api/v1. Raises ValueError with the server's message."""
        try:
            with urllib.request.urlopen(
                f"{self._url}/{path}?{urlencode(query)}", timeout=20
            ) as response:
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the current series: each has a `metric` (labels) and a `value` (time, text)."""
        return list(self.get("query", query=expression)["result"])


def scrape_config(
    port: int, endpoint: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return a scrape configuration as the Prometheus operator makes it for a monitor's endpoint.

    Args:
        port: of this machine.
        endpoint: of a ServiceMonitor or PodMonitor.
        labels: of the target, such as the namespace and the name of its pod.
    """
    relabelings = [
        {
            re.sub("[A-Z]", lambda found: f"_{found[0].lower()}", key): one
            for key, one in rule.items()
        }
        for rule in endpoint.get("metricRelabelings", ())
    ]
    return {
        "job_name": "operator",
        "honor_labels": endpoint.get("honorLabels", False),
        "metric_relabel_configs": relabelings,
        "static_configs": [{"targets": [f"127.0.0.1:{port}"], "labels": dict(labels or {})}],
    }


@contextmanager
def run_prometheus(scrape: Mapping[str, Any], rules: Path, folder: Path) -> Iterator[Prometheus]:
    """Run a Prometheus with these rules and this scrape configuration, every second."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [dict(scrape)],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    listen_port = free_port()
    command: list[str | Path] = [
        binary("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{listen_port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        prometheus = Prometheus(f"http://127.0.0.1:{listen_port}/api/v1")

        def scraped() -> bool:
            try:
                return bool(prometheus.query("up == 1"))
            except (OSError, ValueError):  # it is starting
                return False

        eventually(scraped)
        yield prometheus
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_SECONDS)
