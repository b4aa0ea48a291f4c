"""A real Prometheus, and promtool: Debian's, in the cache."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
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
    """`prometheus` or `promtool`: this machine's own, or Debian's.

    Raises:
        testing.cluster.debian.Missing: there is none, and this machine has no apt-get.
    """
    if own := shutil.which(name):
        return Path(own)
    made = create_once(cache_dir() / "prometheus", "apt", lambda new: unpack("prometheus", new))
    return made / "usr" / "bin" / name


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it; what it says is in `stdout` and `stderr`."""
    command = [binary("promtool"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)


class Prometheus:
    """One that runs."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get(self, path: str, **query: str) -> Any:
        """Of its HTTP API, below /api/v1; raises ValueError with its words where it refuses."""
        try:
            with urllib.request.urlopen(f"{self._url}/{path}?{urlencode(query)}", timeout=20) as it:
                return json.load(it)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["error"]) from error

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it gives now: each a `metric` (labels) and a `value` (time, text)."""
        return list(self.get("query", query=expression)["result"])


@contextmanager
def scraping(port: int, rules: Path, folder: Path) -> Iterator[Prometheus]:
    """One that scrapes what listens on a port of this machine each second, and has these rules."""
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": "operator", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
        ],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    own = free_port()
    command: list[str | Path] = [
        binary("prometheus"),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        found = Prometheus(f"http://127.0.0.1:{own}/api/v1")

        def scraped() -> bool:
            try:
                return bool(found.query('up{job="operator"} == 1'))
            except (OSError, ValueError):  # it comes up
                return False

        eventually(scraped)
        yield found
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_SECONDS)
