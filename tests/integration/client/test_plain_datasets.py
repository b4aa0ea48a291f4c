"""The trainer's own dataset: a dataset that cannot be sent, and one that changes.

tests/compat tests how a plain dataset is sharded.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from testing.integration import devices, readers
from testing.integration.cluster import Cluster, spec
from testing.integration.readers import ids

assert devices.CPUS  # configured before TensorFlow starts


def test_a_dataset_that_calls_python_is_refused(cluster: Cluster) -> None:
    def halve(row: Any) -> Any:
        return row // 2

    dataset = tf.data.Dataset.range(8).map(lambda row: tf.py_function(halve, [row], tf.int64))
    (sidecar,) = cluster.add_sidecars({"calls-python": spec()})
    with readers.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=r"calls Python.*entry point"):
            data.dataset(dataset.map(lambda row: tf.ensure_shape(row, [])))


def test_a_restarted_trainer_may_provide_another_dataset(cluster: Cluster) -> None:
    """The sidecar continues, as when a container restarts or a notebook runs its next cell."""
    (sidecar,) = cluster.add_sidecars({"changed": spec(partitions=2, numSplits=2)})
    for count in (20, 30):
        rows = tf.data.Dataset.range(count)
        with readers.connect(sidecar) as data:
            dataset = data.dataset(lambda ctx, rows=rows: sharded(rows, ctx), global_batch_size=4)
            assert sorted(ids(dataset.as_numpy_iterator())) == list(range(count))


def sharded(rows: tf.data.Dataset, ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    mine = rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return mine.map(lambda row: {"id": row})
