"""ParameterServerStrategy, whose workers run no Python of the program and read tf.data service."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.runtime.addresses import free_ports
from testing.compat import tf_data_service_parameter_server as program
from testing.compat.behaviour import Reference, behaviour
from testing.compat.tf_data_service_servers import TfDataServiceServers
from testing.processes.forks import Process, shared

SECONDS = 90


@pytest.fixture
def servers() -> Iterator[TfDataServiceServers]:
    with TfDataServiceServers(static=False) as started:
        yield started


@behaviour(
    Reference.STRATEGIES,
    shows="`ParameterServerStrategy`: `create_per_worker_dataset`, in separate processes",
    call="`spec: {encryption: None, tfDataService: {}}`, and `distribute` in its dataset_fn",
    note="The workers read tf.data service and have its guarantees",
)
def test_workers_of_a_parameter_server_strategy_read_tf_data_service(
    servers: TfDataServiceServers, tmp_path: Path
) -> None:
    names = [("ps", 0), ("worker", 0), ("worker", 1)]
    cluster: dict[str, list[str]] = {"chief": [], "ps": [], "worker": []}
    for (role, _), port in zip([*names, ("chief", 0)], free_ports(4), strict=True):
        cluster[role].append(f"127.0.0.1:{port}")

    def start(role: str, index: int) -> Process:
        argv = [role, str(index), json.dumps(cluster), servers.address]
        return shared().start(program.__name__, f"{role}-{index}", tmp_path, argv, heavy=True)

    tasks = [start(role, index) for role, index in names]
    try:
        for task in tasks:
            task.ready()
        chief = start("chief", 0)
        tasks.append(chief)
        assert chief.wait(SECONDS) == 0, chief.tail()
        rows = chief.ready()["rows"]
    finally:
        for task in tasks:
            task.kill()
    # Dynamic sharding ends a batch at the end of a split.
    assert program.STEPS <= len(rows) <= program.ROWS
    assert set(rows) <= set(range(program.ROWS))
