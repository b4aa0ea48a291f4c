"""ParameterServerStrategy: its workers run none of our Python, and read from the stock service."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.runner.processes.trainers import free_ports
from testing.compat import parameter_server_program as program
from testing.compat.behaviour import Reference, behaviour
from testing.compat.stock_servers import StockServers

SECONDS = 90


@pytest.fixture
def servers() -> Iterator[StockServers]:
    with StockServers(static=False) as made:
        yield made


@behaviour(
    Reference.STRATEGIES,
    shows="ParameterServerStrategy: `create_per_worker_dataset`, in processes of their own",
    call="`spec: {tfDataService: {}}`, and `distribute` in its dataset_fn",
    note="the workers run none of our Python: tf.data service's own guarantees, not ours",
)
def test_workers_of_a_parameter_server_strategy_read_the_stock_service(
    servers: StockServers, tmp_path: Path
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
            assert time.monotonic() < deadline, "the cluster does not come up"
            time.sleep(0.05)
        tasks.append(start("chief", 0, found))
        log = tmp_path / "chief-0.log"
        assert tasks[-1].wait(SECONDS) == 0, log.read_text()[-3000:]
    finally:
        for task in tasks:
            task.kill()
            task.wait()
    rows = json.loads(found.read_text())
    # Dynamic sharding cuts batches at the borders of its splits.
    assert program.STEPS <= len(rows) <= program.ROWS
    assert set(rows) <= set(range(program.ROWS))
