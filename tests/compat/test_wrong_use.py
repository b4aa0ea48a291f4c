"""Wrong use raises one error soon, of the documented type and with the remedy.

TensorFlow's iterators have their own error types. A ValueError or TypeError becomes
`tf.errors.InvalidArgumentError`, other errors become `tf.errors.UnknownError`. The message begins
with the name of the DistributedInput error.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from distributed_input import Input
from distributed_input.api import errors
from testing.compat.behaviour import Reference, behaviour
from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.integration.datasets import broken
from testing.integration.devices import CPUS

WRONG_USE = Reference.WRONG_USE
# TensorFlow warns in the same way.
pytestmark = [
    pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding"),
    pytest.mark.timeout(100),
]


@pytest.fixture
def strategy() -> tf.distribute.Strategy:
    return tf.distribute.MirroredStrategy(CPUS)


def numbers(ctx: tf.distribute.InputContext, count: int = 40, batch: int = 8) -> tf.data.Dataset:
    rows = tf.data.Dataset.range(count).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return rows.batch(ctx.get_per_replica_batch_size(batch))


@contextlib.contextmanager
def raises_in_iterators(kind: type[Exception], message: str) -> Iterator[None]:
    """Require an error of this kind, in the form that TensorFlow's iterators raise."""
    invalid = issubclass(kind, ValueError | TypeError)
    outer = tf.errors.InvalidArgumentError if invalid else tf.errors.UnknownError
    with pytest.raises(outer, match=rf"(?s){kind.__name__}: .*{message}"):
        yield


# element_spec.


@behaviour(
    WRONG_USE,
    shows="a batch that does not match the `element_spec` in an `input_signature`",
    call="`TypeError`, as in TensorFlow",
)
def test_a_batch_of_another_spec_is_a_type_error(train: Input, strategy: Any) -> None:
    dist = train.distribute(strategy, numbers)
    step = tf.function(lambda rows: rows, input_signature=[dist.element_spec])
    step(next(iter(dist)))
    other = strategy.experimental_distribute_values_from_function(lambda ctx: tf.constant([1.0]))
    with pytest.raises(TypeError, match="int64"):
        step(other)


@behaviour(
    WRONG_USE,
    shows="a `dataset_fn` whose splits have different `element_spec`s",
    call="`SpecError` with the split, the component and both types",
)
def test_splits_of_different_specs_are_refused(train: Input, strategy: Any) -> None:
    message = r"split \d+ .* component 'value' is dense float32 \(\) instead of dense int64 \(\)"
    with pytest.raises(errors.SpecError, match=message):
        train.distribute(strategy, broken.differing)


@behaviour(
    WRONG_USE,
    shows="an entry point whose splits have different `element_spec`s",
    call="`SpecError`; in the loop, `tf.errors.InvalidArgumentError`",
)
def test_splits_of_different_specs_in_a_worker_are_refused(shared: Cluster, strategy: Any) -> None:
    one = spec("broken:differing", globalBatchSize=8, numSplits=4)
    (sidecar,) = shared.add_sidecars({"differing": one})
    message = "split 3 are not those of the job: component 'value' is dense float32"
    with readers.connect(sidecar) as data:
        with raises_in_iterators(errors.SpecError, message):
            for _ in data.distribute(strategy):
                pass


# Batches.


@behaviour(
    WRONG_USE,
    shows="`get_per_replica_batch_size(10)` with four partitions, which do not divide it",
    call="`ConfigError`, a `ValueError` as in TensorFlow, with the valid numbers",
)
@behaviour(
    WRONG_USE,
    shows="a global batch of 9 rows for two replicas",
    call="`ConfigError`, a `ValueError`, with the valid batches and replicas",
)
def test_batches_that_do_not_divide_evenly_are_refused(shared: Cluster, strategy: Any) -> None:
    inputs = {
        "four": spec(partitions=4),
        "odd": spec("rows:numbered", globalBatchSize=9, partitions=3),
        "asks": spec("rows:shuffled", {"global_batch": 16}, globalBatchSize=8),
    }
    (sidecar,) = shared.add_sidecars(inputs)
    with readers.connect(sidecar, "four") as data:
        message = r"10 .*(Use one of|choose spec\.partitions among) \[1, 2, 5, 10\]"
        for kind in (ValueError, errors.ConfigError):
            with pytest.raises(kind, match=message):
                data.distribute(strategy, lambda ctx: numbers(ctx, batch=10))
            with pytest.raises(kind, match=message):
                data.distribute(strategy, tf.data.Dataset.range(20).batch(10))
    with readers.connect(sidecar, "odd") as data:
        with pytest.raises(errors.ConfigError, match=r"2 replicas .* cannot divide a batch of 9"):
            data.distribute(strategy)
    with readers.connect(sidecar, "asks") as data:
        with pytest.raises(
            errors.ConfigError, match=r"globalBatchSize is 8, but .* 16 rows .*: make them"
        ):
            data.distribute(strategy)


@behaviour(
    WRONG_USE,
    shows="`InputOptions(experimental_replication_mode=PER_REPLICA)`",
    call="`ConfigError`: an input has one iterator, and every replica gets different rows",
)
def test_an_iterator_for_every_replica_is_refused(train: Input, strategy: Any) -> None:
    mode = tf.distribute.InputReplicationMode.PER_REPLICA
    options = tf.distribute.InputOptions(experimental_replication_mode=mode)
    with pytest.raises(errors.ConfigError, match="leave it at PER_WORKER"):
        train.distribute(strategy, numbers, options=options)


# Trainers.


@behaviour(
    WRONG_USE,
    shows="more trainers than partitions, or a number that does not divide them",
    call="`ConfigError` with the valid numbers",
)
@pytest.mark.parametrize(
    ("consumers", "message"),
    [
        (3, r"spec\.partitions: 3 trainers cannot share 2 partitions: .*Set it to 3 or more"),
        (4, r"spec\.partitions: 4 trainers cannot share 2 partitions: .*Set it to 4 or more"),
    ],
)
def test_more_trainers_than_partitions_are_refused(
    shared: Cluster, strategy: Any, consumers: int, message: str
) -> None:
    one = spec("rows:numbered", globalBatchSize=8, partitions=2)
    (sidecar,) = shared.add_sidecars({f"crowd-{consumers}": one}, consumers, only=1)
    with readers.connect(sidecar) as data:
        with pytest.raises(errors.ConfigError, match=message):
            data.distribute(strategy)


@behaviour(
    WRONG_USE,
    shows="two trainers with the same index",
    call="`FencedError` in the older one, permanently; in the loop, `tf.errors.UnknownError`",
)
def test_two_trainers_with_the_same_index_fence_the_older_one(
    shared: Cluster, strategy: Any
) -> None:
    # The older one first reads the batches that are ready: few, because rows are large and slow.
    rows = {"rows": 100_000, "kib": 64, "milliseconds": 5}
    inputs = {"twins": spec("wide:slow", rows, globalBatchSize=4, buffer="1Mi")}
    ((older,), (newer,)) = (shared.add_sidecars(inputs) for _ in range(2))
    message = "this trainer was consumer 0 of 1 and stops here.*set different consumer indices"
    with readers.connect(older) as first, readers.connect(newer) as second:
        batches = iter(first.distribute(strategy))
        next(batches)
        other = iter(second.distribute(strategy))
        next(other)
        with raises_in_iterators(errors.FencedError, message):
            for _ in batches:
                pass
        with pytest.raises(errors.FencedError, match=message):
            iter(first.distribute(strategy))
        next(other)  # continues


@behaviour(
    WRONG_USE,
    shows="two readers of one input in one trainer",
    call="`FencedError` in the older one: give the second reader another job",
)
def test_two_readers_of_one_input_fence_the_older_one(own: Any, strategy: Any) -> None:
    def endless(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        return numbers(ctx).repeat()

    with readers.connect(own, "train") as older:
        batches = iter(older.distribute(strategy, endless))
        next(batches)
        with readers.connect(own, "train") as newer:
            found = iter(newer.distribute(strategy, endless))
            next(found)
            with raises_in_iterators(
                errors.FencedError, "input train was opened again: .*job of its own"
            ):
                for _ in batches:
                    pass
            next(found)  # continues


@behaviour(
    WRONG_USE,
    shows="another dataset while trainers read the job",
    call="`JobConflictError` with the difference",
)
def test_another_dataset_for_a_running_job_is_refused(shared: Cluster, strategy: Any) -> None:
    first, second = shared.add_sidecars({"changing": spec(partitions=2)}, 2)
    with readers.connect(second) as stays:
        with readers.connect(first) as data:
            dataset = data.distribute(strategy, numbers)
            other = stays.distribute(strategy, numbers)
            next(iter(dataset))
            next(iter(other))
        with readers.connect(first) as data:
            message = r"job changing is already registered and differs in: dataset_id.*another name"
            with pytest.raises(errors.JobConflictError, match=message):
                data.distribute(strategy, lambda ctx: numbers(ctx, count=48))
