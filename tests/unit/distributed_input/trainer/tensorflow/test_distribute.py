"""The datasets of strategies, without an input. `tests/compat` has them with one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.ops import script_ops

from distributed_input.api.proto.types_pb2 import DROP
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.trainer.tensorflow import dataset, distribute
from distributed_input.trainer.tensorflow.distribute import CountingDataset
from distributed_input.trainer.tensorflow.step_counter import StepVariable


class NativeDataset:
    """A strategy's dataset. Its first iterators fail with the end of another thread's iterator."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def __iter__(self) -> Iterator[Any]:
        if self.failures:
            self.failures -= 1
            raise tf.errors.OutOfRangeError(None, None, "End of sequence [Op:GeneratorDataset]")
        return self

    def __next__(self) -> Any:
        raise NotImplementedError

    def get_next(self, _name: str | None) -> Any:
        raise tf.errors.OutOfRangeError(None, None, "End of sequence [Op:IteratorGetNext]")


def test_the_end_of_another_threads_iterator_does_not_end_a_new_one() -> None:
    native, counter = NativeDataset(3), StepVariable()
    assert list(CountingDataset(native, counter.handle)) == []
    assert counter.requested(1) == 1, "it is one iterator"


def test_an_end_that_comes_again_and_again_is_an_error() -> None:
    with pytest.raises(tf.errors.OutOfRangeError, match="GeneratorDataset"):
        iter(CountingDataset(NativeDataset(1000), StepVariable().handle))


class Consumer:
    """The consumer of an input with four units of 8 rows in each epoch."""

    can_move = False
    spec = ElementSpec(0, (Leaf("", "dense", "int64", ()),))
    opened = SimpleNamespace(unit_rows=8, job=SimpleNamespace(infinite=False, remainder=DROP))

    def count_steps(self, *args: Any, **options: Any) -> None:
        """Do nothing."""

    def begin(self) -> None:
        """Do nothing."""

    def bursts(self) -> Iterator[list[Any]]:
        row = np.arange(8, dtype=np.int64).view(np.uint8)
        for _ in range(2):
            yield [SimpleNamespace(rows=8, buffers=[row])] * 2


def kept() -> tuple[int, int, int]:
    """Return the numbers of TensorFlow's functions, of Python functions in it, and of objects."""
    gc.collect()
    functions = context.context().list_function_names()
    return len(functions), script_ops._py_funcs.size(), len(gc.get_objects())


def test_nothing_waits_for_the_tuning_of_a_dataset_that_is_deleted() -> None:
    consumer: Any = Consumer()
    units = dataset.as_dataset(consumer)
    distributed = distribute.distributed(tf.distribute.get_strategy(), units, consumer, None)
    assert distributed.options().autotune.enabled is False


@pytest.mark.slow
@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]])
def test_an_epoch_leaves_nothing_behind(devices: list[str]) -> None:
    """Programs read the same dataset for hundreds of epochs."""
    consumer: Any = Consumer()
    with tf.init_scope():
        strategy = tf.distribute.MirroredStrategy(devices)
        units = dataset.as_dataset(consumer)
        distributed = distribute.distributed(strategy, units, consumer, None)
    counts = []
    for _ in range(8):
        assert sum(1 for _ in distributed) == 4 // len(devices)
        counts.append(kept())
    functions, tokens, objects = zip(*counts[3:], strict=True)
    assert len(set(functions)) == len(set(tokens)) == 1, counts
    assert max(objects) - min(objects) < len(objects), "less than one for each epoch"
