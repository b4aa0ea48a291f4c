"""A coordinator of `ParameterServerStrategy` that reads DistributedInput.

The servers run in its own process. The environment has DISTRIBUTED_INPUT_DIR. The results are the
rows that the workers received, the rows of an inline evaluation, and the error of `distribute`.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

import distributed_input
from distributed_input.api.errors import ConfigError
from distributed_input.runtime.addresses import free_ports
from testing.compat.multiworker import numbers
from testing.processes.forks import own_arguments, write_results

WORKERS = 2


def cluster() -> tf.distribute.Strategy:
    """Start two workers and a parameter server."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(WORKERS + 1)]
    cluster_spec = tf.train.ClusterSpec({"worker": ports[:WORKERS], "ps": ports[WORKERS:]})
    for job, count in (("worker", WORKERS), ("ps", 1)):
        for task in range(count):
            tf.distribute.Server(cluster_spec, job_name=job, task_index=task, protocol="grpc")
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(cluster_spec, rpc_layer="grpc")
    return tf.distribute.ParameterServerStrategy(resolver)


def main(argv: Sequence[str]) -> int:
    """Schedule a step for every batch, evaluate inline, and call `distribute`."""
    _, path = own_arguments(argv)
    warnings.simplefilter("ignore")
    strategy = cluster()
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    result: dict[str, Any] = {}

    @tf.function
    def step(rows: Any) -> Any:
        return strategy.run(lambda rows: rows + 1, args=(rows,))

    with distributed_input.connect("train") as train:
        results = [coordinator.schedule(step, args=(rows,)) for rows in train.dataset(numbers)]
        coordinator.join()
        result["scheduled"] = [int(row) - 1 for one in results for row in one.fetch()]
        result["inline"] = [int(row) for rows in train.dataset(numbers) for row in rows]
        try:
            train.distribute(strategy, numbers)
        except ConfigError as error:
            result["refused"] = str(error)
    write_results(path, result)
    return 0
