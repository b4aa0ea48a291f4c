"""Workers in the examples' environment, which has pyarrow."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from testing import examples
from testing.integration.cluster import Cluster

FOLDER = Path(__file__).parents[2] / "examples" / "data"
_READY_SECONDS = 120.0


@contextlib.contextmanager
def example_workers(cluster: Cluster, count: int, environment: Mapping[str, str]) -> Iterator[None]:
    """Start workers with the entry points of examples/data; return when they serve."""
    ready = [cluster.folder / f"example-worker-{index}.json" for index in range(count)]
    started = []
    for file in ready:
        flags = ["--listen", "127.0.0.1:0", "--dispatcher", cluster.address, "--path", str(FOLDER)]
        flags += ["--token-file", str(cluster.token), "--ready-file", str(file)]
        log = file.with_suffix(".log").open("wb")
        command = [examples.PYTHON, "-m", "distributed_input.cli", "worker", *flags]
        env = {"TF_CPP_MIN_LOG_LEVEL": "2", **os.environ, **environment}
        started.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
        log.close()
    try:
        for process, file in zip(started, ready, strict=True):
            _wait_ready(process, file)
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
        for file in ready:
            print(f"== {file.stem}\n{file.with_suffix('.log').read_text()}")


def _wait_ready(process: subprocess.Popen[bytes], file: Path) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not file.exists():
        assert process.poll() is None, file.with_suffix(".log").read_text()
        assert time.monotonic() < deadline, "a worker is not ready"
        time.sleep(0.05)
