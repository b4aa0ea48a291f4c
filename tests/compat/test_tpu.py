"""TPUStrategy without a TPU: the rows of each core and their shapes.

The strategy is TensorFlow's own. It reads the topology from its cluster resolver, and the resolver
here describes a slice that does not exist. Everything up to the transfer to the cores runs: the
input context, the replicas' parts, static shapes, the iterator. `strategy.run` needs the cores.
"""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.tpu.tpu_system_metadata import TPUSystemMetadata

from distributed_input import Input
from distributed_input.api.errors import ConfigError
from testing.compat.behaviour import Reference, behaviour

TPU = Reference.TPU
CORES = 4
NEEDS = "a TPU: batches stay on the host here (`experimental_fetch_to_device=False`)"
ON_HOST = tf.distribute.InputOptions(experimental_fetch_to_device=False)
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")


class Slice:
    """A TPUClusterResolver with the methods that input needs."""

    def __init__(self, hosts: int) -> None:
        self._hosts = hosts

    def get_tpu_system_metadata(self) -> TPUSystemMetadata:
        """Return four cores on this number of hosts."""
        job = "localhost" if self._hosts == 1 else "worker"
        each = CORES // self._hosts
        devices = [
            tf.config.LogicalDevice(
                f"/job:{job}/replica:0/task:{core // each}/device:TPU:{core % each}", "TPU"
            )
            for core in range(CORES)
        ]
        return TPUSystemMetadata(CORES, self._hosts, each, None, devices)


def slice_of(hosts: int) -> tf.distribute.Strategy:
    return tf.distribute.TPUStrategy(Slice(hosts))


def numbers(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(40).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return rows.batch(ctx.get_per_replica_batch_size(16), drop_remainder=True)


@behaviour(
    TPU,
    shows="`num_replicas_in_sync`; a batch divided among the cores of a host, with static shapes",
    call="`train.distribute(strategy, dataset_fn)`",
    needs=NEEDS,
    note="`experimental_run_v2` is `run` in TensorFlow 2",
)
def test_a_batch_is_divided_among_the_cores_of_a_host(train: Input) -> None:
    strategy = slice_of(hosts=1)
    assert strategy.num_replicas_in_sync == CORES
    dist = train.distribute(strategy, numbers, options=ON_HOST)
    assert dist.element_spec._value_specs == (tf.TensorSpec([4], tf.int64),) * CORES
    steps = [
        [rows.numpy().tolist() for rows in strategy.experimental_local_results(batch)]
        for batch in dist
    ]
    assert [[len(rows) for rows in step] for step in steps] == [[4] * CORES] * 2
    assert len({row for step in steps for rows in step for row in rows}) == 32


@behaviour(
    TPU,
    shows="`get_next_as_optional` in a `tf.function`, as a host training loop uses it",
    call="`iter(train.distribute(strategy, dataset_fn))`",
    needs=NEEDS,
)
def test_a_host_training_loop_reads_batches_for_all_cores(train: Input) -> None:
    strategy = slice_of(hosts=1)
    iterator = iter(train.distribute(strategy, numbers, options=ON_HOST))

    @tf.function
    def rows_of_all(iterator: Any) -> Any:
        total = 0
        for _ in tf.range(5):
            optional = iterator.get_next_as_optional()
            if not optional.has_value():
                break
            local = strategy.experimental_local_results(optional.get_value())
            total += sum(tf.shape(rows)[0] for rows in local)
        return total

    assert int(rows_of_all(iterator)) == 32


@behaviour(
    TPU,
    shows="sparse and ragged components stay on the host, or are a `ValueError`",
    call="`train.distribute(strategy, dataset_fn, options=...)`",
    needs=NEEDS,
)
def test_ragged_rows_stay_on_the_host(train: Input) -> None:
    def ragged(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(32).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
        return rows.map(tf.range).ragged_batch(ctx.get_per_replica_batch_size(16))

    strategy = slice_of(hosts=1)
    with pytest.raises(ValueError, match="experimental_fetch_to_device set to False"):
        train.distribute(strategy, ragged)
    dist = train.distribute(strategy, ragged, options=ON_HOST)
    lengths = sorted(
        length
        for batch in dist
        for rows in strategy.experimental_local_results(batch)
        for length in rows.row_lengths().numpy().tolist()
    )
    assert lengths == list(range(32))


@behaviour(
    TPU,
    shows="a slice of several hosts with one program for all of them",
    call="`ConfigError`: the other hosts cannot run the client. Use the tf.data service endpoint",
    note="Refused",
)
def test_a_slice_of_several_hosts_is_refused(train: Input) -> None:
    with pytest.raises(ConfigError, match=r"input of 2 hosts.*slice of one host.*tf\.data serv"):
        train.distribute(slice_of(hosts=2), numbers)
