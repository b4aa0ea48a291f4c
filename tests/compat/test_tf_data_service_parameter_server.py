"""ParameterServerStrategy, whose workers run no Python of the program and read tf.data service."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.runner.processes.trainers import free_ports
from testing.compat import tf_data_service_parameter_server as program
from testing.compat.behaviour import Reference, behaviour
from testing.compat.tf_data_service_servers import TfDataServiceServers

SECONDS = 90


@pytest.fixture
def servers() -> Iterator[TfDataServiceServers]:
    with TfDataServiceServers(static=False) as started:
        yield started


@behaviour(
    Reference.STRATEGIES,
    shows="`ParameterServerStrategy`: `create_per_worker_dataset`, in separate processes",
    call="`spec: {tfDataService: {}}`, and `distribute` in its dataset_fn",
    note="The workers read tf.data service and have its guarantees",
)
def test_workers_of_a_parameter_server_strategy_read_tf_data_service(
    servers: TfDataServiceServers, tmp_path: Path
) -> None:
    names = [("ps", 0), ("worker", 0), ("worker", 1)]
    cluster: dict[str, list[str]] = {"chief": [], "ps": [], "worker": []}
    for (role, _), port in zip([*names, ("chief", 0)], free_ports(4), strict=True):
        cluster[role].append(f"127.0.0.1:{port}")
    found = tmp_path / "found.json"

    def start(role: str, index: int, out: Path) -> subprocess.Popen[bytes]:
        argv = [sys.executable, program.__file__, role, str(index), json.dumps(cluster)]
        with (tmp_path / f"{role}-{index}.log").open("wb") as log:
            return subprocess.Popen([*argv, servers.address, str(out)], stdout=log, stderr=log)

    tasks = [start(role, index, tmp_path / f"{role}-{index}.up") for role, index in names]
    try:
        deadline = time.monotonic() + SECONDS
        while not all((tmp_path / f"{role}-{index}.up").exists() for role, index in names):
            assert time.monotonic() < deadline, "the cluster does not start"
            time.sleep(0.05)
        tasks.append(start("chief", 0, found))
        log = tmp_path / "chief-0.log"
        assert tasks[-1].wait(SECONDS) == 0, log.read_text()[-3000:]
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    rows = json.loads(found.read_text())
    # Dynamic sharding ends a batch at the end of a split.
    assert program.STEPS <= len(rows) <= program.ROWS
    assert set(rows) <= set(range(program.ROWS))
