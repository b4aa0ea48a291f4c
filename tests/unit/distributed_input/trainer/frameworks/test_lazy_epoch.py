from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from distributed_input.trainer.frameworks.lazy_epoch import LazyEpoch, LoopCounter


def test_an_epoch_begins_with_the_first_request() -> None:
    begun: list[LoopCounter] = []

    def begin(counter: LoopCounter) -> Iterator[Any]:
        begun.append(counter)
        return iter("ab")

    epoch = LazyEpoch(begin)
    assert iter(epoch) is epoch
    assert not begun
    assert next(epoch) == "a"
    assert list(epoch) == ["b"]
    assert begun == [epoch.counter]
    with pytest.raises(StopIteration):
        next(epoch)


@pytest.mark.parametrize(("ahead", "used"), [(0, [1, 2, 3]), (1, [0, 1, 3])])
def test_used_are_the_requests_but_those_ahead(ahead: int, used: list[int]) -> None:
    epoch = LazyEpoch(lambda _: iter("ab"))
    epoch.counter.ahead = ahead
    found = []
    for _ in range(3):
        next(epoch, None)
        found.append(epoch.counter.requested(1))
    assert found == used  # the third request got the end, so the loop uses what it has


def test_an_error_is_a_request_without_an_end() -> None:
    def fail(counter: LoopCounter) -> Iterator[Any]:
        yield "a"
        raise ValueError("broken")

    epoch = LazyEpoch(fail)
    next(epoch)
    with pytest.raises(ValueError, match="broken"):
        next(epoch)
    assert not epoch.counter.ended
