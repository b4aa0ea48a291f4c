"""Splits that read by index: each index once, in an order that is uniform and never changes."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from distributed_input.order import indexed
from distributed_input.order.indexed import Indexed, has_index, indexes, permute


def permutation(size: int, key: int) -> list[int]:
    return permute(np.arange(size, dtype=np.uint64), size, key).tolist()


@pytest.mark.parametrize("sorted_sizes", [4096, 0])
def test_each_index_is_returned_once(monkeypatch, sorted_sizes):
    monkeypatch.setattr(indexed, "_SORTED", sorted_sizes)
    for size in (*range(2, 130), 4096, 4097, 5000):
        assert sorted(permutation(size, 7)) == list(range(size))


def test_all_permutations_of_few_numbers_are_as_likely():
    counts = Counter(tuple(permutation(4, key)) for key in range(4800))
    assert len(counts) == 24
    assert (
        sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.7
    )  # p = 0.001, 23 degrees


def test_all_places_of_many_numbers_are_as_likely():
    size, tenths = 10_000, np.zeros((2, 10), int)
    for key in range(2000):
        places = permute(np.array([0, size - 1], np.uint64), size, key)
        tenths[[0, 1], places * 10 // size] += 1
    assert (((tenths - 200) ** 2 / 200).sum(axis=1) < 27.9).all()  # p = 0.001, 9 degrees


def test_the_order_is_a_contract():
    # A position counts rows of this order. If it changes, ORDER_VERSION of `identity` must too.
    assert permutation(6, 1) == [4, 1, 3, 5, 2, 0]
    assert permute(np.arange(5, dtype=np.uint64), 1_000_000, 1).tolist() == [
        741593,
        137621,
        458931,
        9584,
        899284,
    ]


@pytest.mark.parametrize("key", [None, 3])
@pytest.mark.parametrize("rows", [0, 1, 7, 5000])
def test_splits_divide_the_rows(rows, key):
    parts = [list(indexes(rows, split, 4, key)) for split in range(4)]
    assert sorted(itertools.chain(*parts)) == list(range(rows))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(list(indexes(rows, 2, 4, key, start)) == parts[2][start:] for start in (0, 1, 1200))


def test_epochs_and_seeds_have_orders_of_their_own_unless_nothing_is_shuffled():
    source = [f"row {index}" for index in range(40)]

    def read(dataset, seed, epoch):
        return [row for split in range(3) for row in dataset.rows(split, 3, seed, epoch)]

    shuffled, plain = Indexed(source), Indexed(source, shuffle=False)
    orders = {tuple(read(shuffled, *of)) for of in ((0, 0), (0, 1), (1, 0))}
    assert len(orders) == 3
    assert {tuple(sorted(one)) for one in orders} == {tuple(sorted(source))}
    assert read(plain, 0, 0) == read(plain, 1, 1) == source


def test_excluded_rows_are_not_read():
    class Source(list):
        def __getitem__(self, index):
            assert index != 3
            return index

    rows = Indexed(Source(range(8)), shuffle=False).rows(0, 1, 0, 0, excludes={3, 9}.__contains__)
    assert list(rows) == [0, 1, 2, 4, 5, 6, 7]


def test_only_what_cannot_be_iterated_is_known_to_be_indexed():
    class MapStyle:
        def __len__(self):
            return 1

        def __getitem__(self, index):
            return index

    assert has_index(MapStyle())
    assert not any(map(has_index, ([1], iter([1]), 3)))


class Together:
    """Returns several rows at a time. Keeps the calls. Index 70 fails."""

    def __init__(self, answer=list):
        self.calls, self.answer = [], answer

    def __len__(self):
        return 100

    def __getitem__(self, index):
        if index == 70:
            raise KeyError(index)
        return -index

    def __getitems__(self, some):
        self.calls.append(some)
        return self.answer(self[index] for index in some)


@pytest.mark.parametrize("start", [0, 1, 14, 16, 30, 47, 49])
def test_rows_are_read_together_from_the_same_rows_on_wherever_a_split_resumes(start, clock):
    source = Together()
    rows = Indexed(source, shuffle=False).rows(0, 2, 0, 0, start)
    assert list(rows) == [-index for index in range(start, 50)]
    calls = [call[0] for call in source.calls if call]
    if start + 3 <= 50:
        probed, first = [start, start + 1], start + 3
        others = {first, *range(first - first % 16 + 16, 50, 16)}
        assert calls == probed + sorted(one for one in others if one < 50)


@pytest.mark.parametrize("answer", [dict.fromkeys, sum, lambda rows: [sum(rows)]])
def test_rows_that_are_joined_for_another_reader_are_read_one_by_one(answer, clock):
    rows = Indexed(Together(answer), shuffle=False).rows(0, 2, 0, 0)
    assert list(rows) == [-index for index in range(50)]


@pytest.mark.parametrize("columns", [1, 2, 3, 16])
@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("rows", [1, 2, 3, 17, 18, 19, 20, 34])
def test_the_columns_of_a_batch_are_not_taken_for_rows(columns, kind, rows, clock):
    class Columns:
        def __len__(self):
            return rows

        def __getitem__(self, index):
            return tuple([index] * columns)

        def __getitems__(self, some):
            return kind([list(some)] * columns)

    found = list(Indexed(Columns(), shuffle=False).rows(0, 1, 0, 0))
    assert found == [tuple([index] * columns) for index in range(rows)]


def test_slow_rows_are_read_one_by_one(clock):
    source = Together()
    clock.step = 0.01
    rows = Indexed(source, shuffle=False).rows(0, 2, 0, 0)
    assert list(rows) == [-index for index in range(50)]
    assert len(source.calls) == 2


@pytest.fixture
def clock(monkeypatch):
    class Clock:
        now = step = 0.0

        def perf_counter(self):
            self.now += self.step
            return self.now

    clock = Clock()
    monkeypatch.setattr(indexed, "time", clock)
    return clock


def test_an_error_of_rows_that_are_read_together_is_raised_at_its_row(clock):
    rows = Indexed(Together(), shuffle=False).rows(1, 2, 0, 0)
    assert list(itertools.islice(rows, 20)) == [-index for index in range(50, 70)]
    with pytest.raises(KeyError, match="70"):
        next(rows)


@pytest.mark.parametrize("start", [18, 19, 20])
def test_an_error_of_the_first_rows_is_raised_at_its_row(start, clock):
    rows = Indexed(Together(), shuffle=False).rows(1, 2, 0, 0, start)
    assert list(itertools.islice(rows, 20 - start)) == [-index for index in range(50 + start, 70)]
    with pytest.raises(KeyError, match="70"):
        next(rows)


def test_rows_are_read_one_by_one_where_some_may_fail():
    failed, source = [], Together()
    rows = Indexed(source).rows(
        0, 1, 0, 0, failed=lambda error, index: failed.append((type(error), index))
    )
    assert sorted(rows) == [-index for index in reversed(range(100)) if index != 70]
    assert (failed, source.calls) == ([(KeyError, 70)], [])
