"""The splits of a source that begins again after its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.order.repeated_splits import RepeatedSplits


def test_a_list_repeats_all_its_splits_in_another_order() -> None:
    splits = RepeatedSplits(3, 0, [5, 2, 8, 9, 1], 10)
    numbers = [splits[at] for at in range(200)]
    rounds = [numbers[at : at + 5] for at in range(0, 200, 5)]
    assert rounds[0] == [5, 2, 8, 9, 1]
    assert all(sorted(one) == [n * 10 + s for s in (1, 2, 5, 8, 9)] for n, one in enumerate(rounds))
    assert len({tuple(one % 10 for one in part) for part in rounds}) > 20
    assert [RepeatedSplits(3, 0, [5, 2, 8, 9, 1], 10)[at] for at in (199, 3, 77)] == [
        numbers[at] for at in (199, 3, 77)
    ]
    assert [splits.index(one) for one in numbers] == list(range(200))
    assert all(one in splits for one in numbers)
    assert 10 + 3 not in splits


@given(st.integers(0, 99), st.integers(1, 4))
def test_one_more_than_the_most_empty_splits_are_all_splits(seed: int, period: int) -> None:
    splits = RepeatedSplits(seed, 0, range(period), period)
    for first in range(6 * period):
        found = {splits[at] % period for at in range(first, first + splits.most_empty + 1)}
        assert found == set(range(period))


def test_the_last_splits_of_a_round_may_be_the_first_ones_of_the_next() -> None:
    splits = RepeatedSplits(0, 0, [0, 1], 2)
    assert any({splits[first] % 2, splits[first + 1] % 2} != {0, 1} for first in range(20))
