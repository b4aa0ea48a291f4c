"""Native tf.distribute datasets that count what the loop consumes.

The native iterator runs ahead of the loop, so what it fetched says nothing of what was
trained on. Ours is the native one with one addition: each `get_next` first adds one to a
variable, inside `tf.function` too. The checkpointed position is looked up by that count; one
more than the epoch has steps says that the loop has seen its end.
"""

from __future__ import annotations

import contextlib
import inspect
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import input_lib
from tensorflow.python.ops.resource_variable_ops import ResourceVariable

from distributed_input.api.errors import ConfigError
from distributed_input.client.reader import InputReader
from distributed_input.client.tensorflow import fit


def local_replicas(strategy: tf.distribute.Strategy) -> int:
    """Replicas of this process: those that its share of a global batch is cut for."""
    workers = max(1, getattr(strategy.extended, "_num_workers", 1))
    return max(1, strategy.num_replicas_in_sync // workers)


def check(strategy: tf.distribute.Strategy, options: tf.distribute.InputOptions | None) -> None:
    """Raise ConfigError where one iterator in this process is not all that the strategy wants.

    Other processes run no Python of ours, and have no sidecar beside them.
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
    reader: InputReader,
    options: tf.distribute.InputOptions | None,
) -> Any:
    """`dataset`, whose elements are what one replica gets, as the strategy's own dataset."""
    native = strategy.distribute_datasets_from_function(lambda _: dataset, options)
    if not isinstance(native, input_lib.DistributedDatasetsFromFunction):
        reader.count_steps(None, prefetches=True)
        return fit.read_whole(native)  # the default strategy hands out the plain dataset
    native.__class__ = _CountingDataset
    native.counter = _counter()
    native.reader = reader
    native.unit_spec = dataset.element_spec
    reader.count_steps(native.counter)
    return native


def _counter() -> Any:
    """Steps asked for since the iterator was made; on the host, whatever the strategy."""
    with tf.init_scope(), tf.device("CPU:0"):
        # Not tf.Variable: a strategy's scope would make that a mirrored one.
        return ResourceVariable(tf.constant(0, tf.int64), trainable=False, name="steps_asked")


class _CountingDataset(input_lib.DistributedDatasetsFromFunction):
    """A DistributedDataset whose iterators count."""

    counter: Any
    reader: InputReader
    unit_spec: Any

    def __iter__(self) -> Any:
        caller = inspect.currentframe()
        caller = caller.f_back if caller is not None else None
        if fit.only_looks(caller):
            rows = self.reader.opened.unit_rows
            batch = self._strategy.experimental_distribute_values_from_function(
                lambda _: fit.zeros(self.unit_spec, rows)
            )
            return iter([batch])
        fit.let_epochs_differ(caller)
        self.reader.count_steps(self.counter)
        if tf.executing_eagerly():
            # The sidecar starts at once, not when the first batch is asked for.
            self.reader.begin()
        self.counter.assign(0)
        iterator = super().__iter__()
        iterator.__class__ = _CountingIterator
        iterator.counter = self.counter
        return iterator


class _CountingIterator(input_lib.DistributedIterator):
    """A DistributedIterator that adds one to a variable with every step that it hands out."""

    counter: Any

    def get_next(self, name: str | None = None) -> Any:
        """See `tf.distribute.DistributedIterator.get_next`."""
        with self._counted():
            return super().get_next(name)

    def get_next_as_optional(self) -> Any:
        """See `tf.distribute.DistributedIterator.get_next_as_optional`."""
        with self._counted():
            return super().get_next_as_optional()

    def _counted(self) -> AbstractContextManager[Any]:
        """Count now; in a graph, whatever is made within comes after."""
        counted = self.counter.assign_add(1, read_value=False)
        if tf.executing_eagerly():
            return contextlib.nullcontext()
        return tf.control_dependencies([counted])

    @property
    def _type_spec(self) -> Any:
        spec = super()._type_spec
        spec.__class__ = _CountingIteratorSpec
        spec.counter = self.counter
        return spec


class _CountingIteratorSpec(input_lib.DistributedIteratorSpec):
    """What a `tf.function` knows of our iterator: it counts inside as well."""

    counter: Any

    @property
    def value_type(self) -> Any:
        """The class of values."""
        return _CountingIterator

    def _from_components(self, components: Any) -> Any:
        iterator = super()._from_components(components)
        iterator.__class__ = _CountingIterator
        iterator.counter = self.counter
        return iterator
