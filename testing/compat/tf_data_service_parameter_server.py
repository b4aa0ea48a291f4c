"""A user's ParameterServerStrategy program: the arguments are ROLE INDEX CLUSTER SERVICE.

Its workers are plain `tf.distribute.Server`s, which run the coordinator's graph. Their input can
therefore only come from tf.data service. The program imports nothing from DistributedInput.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from testing.processes.forks import own_arguments, write_results

ROWS, STEPS = 60, 6


def main(argv: Sequence[str]) -> int:
    """Serve as one task of the cluster, or train as its coordinator."""
    (role, index, cluster, service), path = own_arguments(argv)
    spec = tf.train.ClusterSpec(json.loads(cluster))
    if role != "chief":
        server = tf.distribute.Server(spec, job_name=role, task_index=int(index), protocol="grpc")
        write_results(path, {})
        server.join()
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        spec, task_type="chief", task_id=0, rpc_layer="grpc"
    )
    write_results(path, {"rows": train(resolver, service)})
    return 0


def train(resolver: Any, service: str) -> list[int]:
    """Return the rows that the workers read in some steps, in any order."""
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64)

    def dataset_fn(_context: Any) -> tf.data.Dataset:
        # Endless, because a worker without data would end the coordinator.
        rows = tf.data.Dataset.range(ROWS).batch(ROWS // STEPS).repeat()
        return rows.apply(
            tf.data.experimental.service.distribute(
                "distributed_epoch", service, job_name="parameter-server"
            )
        )

    @tf.function
    def per_worker_dataset() -> tf.data.Dataset:
        return strategy.distribute_datasets_from_function(dataset_fn)

    @tf.function
    def step(iterator: Any) -> tf.Tensor:
        rows = next(iterator)
        total.assign_add(tf.reduce_sum(rows))
        return rows

    dataset = coordinator.create_per_worker_dataset(per_worker_dataset)
    iterator = iter(dataset)
    steps = [coordinator.schedule(step, args=(iterator,)) for _ in range(STEPS)]
    coordinator.join()
    found = [row for one in steps for row in one.fetch().tolist()]
    assert int(total.numpy()) == sum(found)
    return found
