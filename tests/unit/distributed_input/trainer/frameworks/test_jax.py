"""The iterator of JAX's batches fetches what has arrived. It knows what the loop has got."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.api.errors import PositionError, UnavailableError
from distributed_input.trainer.frameworks.jax import JaxBatches
from distributed_input.trainer.frameworks.lazy_epoch import LoopCounter
from distributed_input.trainer.input import _Batches


class FakeInput:
    """Epochs of five batches: (generation, number).

    Attributes:
        counter: of the epoch that is being read.
        fetched: the batches that were fetched in this epoch.
        arrived: the batches of an epoch that have arrived.
        failure: raised after this number of batches.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.counter = LoopCounter()
        self.fetched = 0
        self.arrived = 100
        self.failure: int | None = None
        self.restored: list[bytes] = []

    def begin(self, counter: LoopCounter) -> Iterator[Any]:
        self.counter, self.fetched = counter, 0
        self.generation += 1
        return _Batches(self.read(self.generation))

    def read(self, generation: int) -> Iterator[Any]:
        for number in range(5):
            if self.counter.is_invalid or self.generation != generation:
                raise PositionError("another iterator or position")
            if number == self.failure:
                raise UnavailableError("no worker")
            self.fetched += 1
            yield generation, number

    def has_arrived(self) -> bool:
        return self.fetched < self.arrived

    def position(self) -> bytes:
        return b"%d" % self.counter.used

    def restore(self, position: bytes) -> None:
        self.restored.append(position)
        self.counter.invalidate()

    def batches(self, prefetch: int = 2) -> JaxBatches:
        return JaxBatches(self, self.begin, self.has_arrived, prefetch)


def test_each_loop_reads_an_epoch() -> None:
    batches = FakeInput().batches()
    assert list(batches) == [(1, number) for number in range(5)]
    assert next(batches, "end") == "end"
    assert list(batches) == [(2, number) for number in range(5)]


@pytest.mark.parametrize(("prefetch", "arrived", "fetched"), [(2, 9, 3), (0, 9, 1), (2, 2, 2)])
def test_it_fetches_a_number_of_batches_that_have_arrived(
    prefetch: int, arrived: int, fetched: int
) -> None:
    data = FakeInput()
    data.arrived = arrived
    batches = data.batches(prefetch)
    next(batches)
    assert data.fetched == fetched


def test_the_position_does_not_count_what_the_loop_has_not_got() -> None:
    data = FakeInput()
    batches = data.batches()
    next(batches)
    assert data.fetched == 3
    assert batches.get_state() == b"MQ=="  # 1
    batches.set_state(b"MQ==")
    assert data.restored == [b"1"]
    assert next(batches) == (2, 0)
    with pytest.raises(PositionError, match="get_state"):
        batches.set_state(b"{}")


def test_batches_ahead_are_not_returned_after_a_restore_or_in_another_epoch() -> None:
    for change in (lambda data: data.restore(b""), lambda data: data.begin(LoopCounter())):
        data = FakeInput()
        batches = data.batches()
        next(batches)
        change(data)
        with pytest.raises(PositionError, match="another"):
            next(batches)


def test_an_error_comes_behind_the_batches_before_it_and_a_loop_continues() -> None:
    data = FakeInput()
    data.failure = 2
    batches = data.batches()
    assert [next(batches), next(batches)] == [(1, 0), (1, 1)]
    with pytest.raises(UnavailableError):
        next(batches)
    data.failure = None
    assert next(iter(batches)) == (2, 0)
