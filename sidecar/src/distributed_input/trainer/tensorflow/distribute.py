"""Native tf.distribute datasets that count the steps that the loop requests.

The native iterator prefetches, so the batches that it has fetched are ahead of the training loop.
`CountingDataset` wraps the strategy's own dataset, and its iterators wrap the native iterators.
Each `get_next` first adds one to a variable, also inside a `tf.function`. A checkpoint looks up
the position by that count. A count of one more than the epoch has steps means that the loop has
seen the end of the epoch. After an error, it means that the loop has not got the failed step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.distribute import input_lib
from tensorflow.python.framework.composite_tensor import CompositeTensor

from distributed_input.api.errors import ConfigError
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks.keras_epochs import calling_epoch_loop
from distributed_input.trainer.tensorflow import keras_fit, step_counter

_MOST_ATTEMPTS = 10  # to create an iterator


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Return the number of replicas of this process, which share its part of a global batch."""
    workers = max(1, getattr(strategy.extended, "_num_workers", 1))
    return max(1, strategy.num_replicas_in_sync // workers)


def check(strategy: tf.distribute.Strategy, options: tf.distribute.InputOptions | None) -> None:
    """Raise ConfigError if the strategy needs more than one iterator in this process.

    It also rejects strategies that read in other processes, which have no sidecar.
    """
    per_replica = tf.distribute.InputReplicationMode.PER_REPLICA
    if options is not None and options.experimental_replication_mode == per_replica:
        raise ConfigError(
            "experimental_replication_mode PER_REPLICA wants an iterator for every replica, and an "
            "input has one: leave it at PER_WORKER; every replica gets rows of its own"
        )
    if isinstance(strategy, tf.distribute.ParameterServerStrategy):
        raise ConfigError(
            "the workers of ParameterServerStrategy run none of this package's code: read "
            "dataset() in the coordinator and schedule() its batches, or let "
            "create_per_worker_dataset read from the stock tf.data service endpoint"
        )
    hosts = getattr(strategy.extended, "num_hosts", 1)
    if hosts > 1:
        raise ConfigError(
            f"{type(strategy).__name__} makes the input of {hosts} hosts, of which only this one "
            "runs this package's code: take a slice of one host, or distribute a dataset that "
            "reads from the stock tf.data service endpoint"
        )


def distributed(
    strategy: tf.distribute.Strategy,
    dataset: tf.data.Dataset,
    consumer: Consumer,
    options: tf.distribute.InputOptions | None,
) -> Any:
    """Return the strategy's own dataset of `dataset`, whose elements are units."""
    # There is nothing to tune, and TensorFlow 2.21 may wait for a minute for the thread that does.
    untuned = tf.data.Options()
    untuned.autotune.enabled = False
    dataset = dataset.with_options(untuned)
    native = strategy.distribute_datasets_from_function(lambda _: dataset, options)
    if isinstance(native, tf.data.Dataset):  # the default strategy
        consumer.count_steps(None, prefetches=True)
        return keras_fit.WholeEpochDataset(native)
    counter = step_counter.StepVariable()
    consumer.count_steps(counter)

    def sample() -> Iterator[Any]:
        """Return an iterator over one step of zeros."""
        rows, spec = consumer.opened.unit_rows, dataset.element_spec
        step = strategy.experimental_distribute_values_from_function(
            lambda _: keras_fit.zeros(spec, rows)
        )
        return iter([step])

    return CountingDataset(native, counter.handle, _Source(consumer, counter, sample))


class _Source(NamedTuple):
    """What a dataset outside of functions needs to begin an epoch."""

    consumer: Consumer
    counter: step_counter.StepVariable
    sample: Callable[[], Iterator[Any]]


class CountingDataset(input_lib.DistributedDatasetsFromFunction):
    """A `tf.distribute.DistributedDataset` whose iterators count.

    It uses nothing of its base class but `reduce`: the strategy's own dataset does the work. Keras
    accepts a distributed dataset only if its class inherits from this class of TensorFlow.
    """

    def __init__(self, native: Any, counter: tf.Tensor, source: _Source | None = None) -> None:
        self._native = native
        self._counter = counter
        self._source = source

    def __iter__(self) -> Any:
        loop = calling_epoch_loop()
        if self._source is not None and loop is not None and loop.building:
            return self._source.sample()
        iterator, number = self._begin()
        if loop is not None:
            loop.read_whole_epochs()
        return CountingIterator(iterator, self._counter, number, self)

    def _begin(self) -> tuple[Any, tf.Tensor]:
        """Begin the next epoch, and return a native iterator of it and the iterator's number."""
        counting, number = step_counter.begin(self._counter)
        if self._source is not None:
            self._source.consumer.count_steps(self._source.counter)
            if tf.executing_eagerly():
                # The sidecar starts now, and not when the first batch is requested.
                self._source.consumer.begin()
        with step_counter.run_after(counting):
            return _iterator_of(self._native), number

    def restored(self) -> tuple[Any, tf.Tensor] | None:
        """Return a new native iterator and its number if a position was restored, else None."""
        if self._source is None or not self._source.consumer.can_move:
            return None
        return self._begin()

    @property
    def element_spec(self) -> Any:
        """The nested `tf.TypeSpec` of a step."""
        return self._native.element_spec

    @property
    def cardinality(self) -> Any:
        """The number of steps in an epoch, as TensorFlow defines it."""
        return self._native.cardinality

    def build(self) -> None:
        """Do nothing: the dataset is complete."""

    def auto_shard(self, num_shards: int, shard_ix: int) -> Any:
        """See TensorFlow; the dataset is this process's share already."""
        return self._native.auto_shard(num_shards, shard_ix)

    @property
    def _type_spec(self) -> tf.TypeSpec:
        return _CountingDatasetSpec(self._native._type_spec)  # noqa: SLF001


def _iterator_of(native: Any) -> Any:
    """Return an iterator of a strategy's dataset. It has requested nothing yet.

    With several replicas, TensorFlow's ops that create it sometimes raise the end of an iterator
    that another thread reads at the same time.
    """
    for _ in range(_MOST_ATTEMPTS - 1):
        with contextlib.suppress(tf.errors.OutOfRangeError):
            return iter(native)
    return iter(native)


class CountingIterator(tf.distribute.DistributedIterator, CompositeTensor):
    """A `tf.distribute.DistributedIterator` that adds one to a counter for every step.

    After a restore, it moves to the restored position. A function that captured the iterator raises
    an error instead, because its graph contains the old native iterator.
    """

    def __init__(
        self,
        native: Any,
        counter: tf.Tensor,
        number: tf.Tensor,
        dataset: CountingDataset | None = None,
    ) -> None:
        self._native = native
        self._counter = counter
        self._number = number
        self._dataset = dataset
        self._has_ended = False
        self._error: tf.errors.OpError | None = None

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self._has_ended:
            self.move()
        if self._has_ended:
            raise StopIteration
        try:
            return self.get_next()
        except tf.errors.OutOfRangeError:
            if self._error is not None:  # TensorFlow reports an end after each error
                raise self._error from None
            self._has_ended = True
            raise StopIteration from None
        except tf.errors.OpError as error:
            self._error = type(error)(None, None, error.message)  # without the frames of the loop
            raise

    def get_next(self, name: str | None = None) -> Any:
        """See `tf.distribute.DistributedIterator.get_next`."""
        with self._counted():
            return self._native.get_next(name)

    def get_next_as_optional(self) -> Any:
        """See `tf.distribute.DistributedIterator.get_next_as_optional`."""
        with self._counted():
            return self._native.get_next_as_optional()

    @property
    def element_spec(self) -> Any:
        """The nested `tf.TypeSpec` of a step."""
        return self._native.element_spec

    def move(self) -> None:
        """Move to the restored position if one was restored since the last step."""
        if self._dataset is not None and tf.executing_eagerly():
            restored = self._dataset.restored()
            if restored is not None:
                self._native, self._number = restored
                self._has_ended, self._error = False, None

    def _counted(self) -> AbstractContextManager[Any]:
        """Count one step before the ops that are created in this context."""
        self.move()
        return step_counter.run_after(step_counter.count_step(self._counter, self._number))

    @property
    def _type_spec(self) -> tf.TypeSpec:
        return _CountingIteratorSpec(self._native._type_spec)  # noqa: SLF001


class _CountingSpec(tf.TypeSpec):
    """The type of an argument of a `tf.function`: the native object and the counter."""

    def __init__(self, native: tf.TypeSpec) -> None:
        self._native = native

    def _serialize(self) -> tuple[tf.TypeSpec]:
        return (self._native,)

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return self._native, tf.TensorSpec([], tf.resource)

    def _to_components(self, value: Any) -> tuple[Any, ...]:
        return value._native, value._counter  # noqa: SLF001

    def _from_components(self, components: Any) -> Any:
        return self.value_type(*components)


class _CountingDatasetSpec(_CountingSpec):
    value_type = CountingDataset


class _CountingIteratorSpec(_CountingSpec):
    value_type = CountingIterator

    @property
    def _component_specs(self) -> tuple[Any, ...]:
        return *super()._component_specs, tf.TensorSpec([], tf.int64)

    def _to_components(self, value: Any) -> tuple[Any, ...]:
        value.move()
        return *super()._to_components(value), value._number  # noqa: SLF001
