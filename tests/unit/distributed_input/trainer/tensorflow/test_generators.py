"""Generators return before the interpreter ends."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.trainer import open_consumers
from distributed_input.trainer.tensorflow import generators
from distributed_input.trainer.tensorflow.generators import TrackedGenerator


class Consumer:
    """A consumer whose next item does not come."""

    def __init__(self, name: str) -> None:
        self.source = Path("folder"), name
        self.waits, self._ended = threading.Event(), threading.Event()
        self.error: DistributedInputError | None = None

    def items(self) -> Iterator[int]:
        yield 1
        self.waits.set()
        self._ended.wait(10)
        if self.error is not None:
            raise self.error

    def end(self, error: DistributedInputError) -> None:
        self.error = error
        self._ended.set()

    stop = end

    def disown(self) -> None:
        pass


@pytest.fixture(autouse=True)
def program_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test end the consumers, although its process continues."""
    monkeypatch.setattr(generators, "_program_ends", threading.Event())
    monkeypatch.setattr(generators, "_open", weakref.WeakSet())
    monkeypatch.setattr(open_consumers, "_consumers", set())


def prefetched(consumer: Consumer) -> tuple[Iterator[tf.Tensor], tf.data.Dataset]:
    """Return an iterator of which a thread waits in the consumer."""
    dataset = tf.data.Dataset.from_generator(
        lambda: TrackedGenerator(consumer.items()), output_signature=tf.TensorSpec([], tf.int32)
    ).prefetch(2)
    iterator = iter(dataset)
    assert next(iterator).numpy() == 1
    assert consumer.waits.wait(10)
    return iterator, dataset


def test_a_waiting_thread_has_left_python_when_the_program_ends() -> None:
    consumer = Consumer("train")
    open_consumers.add(consumer)
    iterator, _ = prefetched(consumer)
    generators.stop_all()
    assert isinstance(consumer.error, UnavailableError)
    assert not any(one.is_busy for one in list(generators._open))
    with pytest.raises(StopIteration):  # without a warning of TensorFlow
        next(iterator)


def test_a_generator_that_does_not_return_ends_the_program_after_two_seconds() -> None:
    generator = TrackedGenerator(iter([1, 2]))
    generator.is_busy = True
    clock = [0.0]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    generators.stop_all(lambda: clock[0], sleep)
    assert 2.0 <= clock[0] < 2.1


def test_calls_of_tensorflow_after_the_end_of_a_generator_have_time() -> None:
    generator = TrackedGenerator(iter([1]))
    assert list(generator) == [1]
    clock = [generator.left_at]

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    generators.stop_all(lambda: clock[0], sleep)
    assert 0.05 <= clock[0] - generator.left_at < 0.06


def test_an_error_before_the_end_of_the_program_reaches_the_loop() -> None:
    consumer = Consumer("train")
    iterator, _ = prefetched(consumer)
    consumer.end(UnavailableError("the sidecar is gone"))
    with pytest.raises(tf.errors.UnknownError, match="the sidecar is gone"):
        next(iterator)
