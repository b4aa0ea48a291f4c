"""Splits that share a pass get the records that they would get alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.sharding import find_record_shard
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.datasets import shared_passes
from distributed_input.worker.datasets.shared_passes import Records, SharedPasses
from distributed_input.worker.datasets.split_iterator import options_of

ROW = ElementSpec(0, (Leaf("", "dense", "int64", ()),))


class Numbers(Records):
    """The numbers below `count`, without TensorFlow. `read` has the first one of each batch."""

    def __init__(self, count: int, num_splits: int, max_rows: int = 1000) -> None:
        self.num_splits, self.max_rows = num_splits, max_rows
        self.key = "numbers", "", 0, num_splits
        self.count = count
        self.read: list[int] = []
        self.own: list[tuple[int, int]] = []
        self.wait = threading.Event()
        self.wait.set()
        self.fails_at: int | None = None

    def batches(self, rows: int) -> Iterator[Any]:
        size = rows * self.num_splits
        for start in range(0, self.count, size):
            assert self.wait.wait(30)
            if self.fails_at is not None and start >= self.fails_at:
                raise ValueError("broken")
            self.read.append(start)
            yield [np.arange(start, min(start + size, self.count))]

    def of_split(self, split: int, rows: int, skipped: int) -> Iterator[Any]:
        self.own.append((split, skipped))
        mine = np.arange(split, self.count, self.num_splits)[skipped:]
        for start in range(0, len(mine), rows):
            yield [mine[start : start + rows]]


def take(reader: Iterator[Any], elements: int | None = None) -> list[int]:
    """Return the rows of the next elements, or of all."""
    out: list[int] = []
    while elements is None or elements > 0:
        element = next(reader, None)
        if element is None:
            break
        assert len(element)
        out += element.tolist()
        elements = None if elements is None else elements - 1
    return out


@settings(deadline=None)
@given(
    count=st.integers(0, 60),
    splits=st.integers(2, 5),
    rows=st.integers(1, 4),
    window=st.integers(1, 400),
    turns=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=12),
)
def test_a_split_has_its_records_in_any_order_of_reading(
    count: int, splits: int, rows: int, window: int, turns: list[tuple[int, int]]
) -> None:
    """Splits open when they are first read, some too late, and some fall behind the window."""
    numbers, passes = Numbers(count, splits, max_rows=rows), SharedPasses()
    readers: dict[int, Any] = {}
    found: dict[int, list[int]] = {split: [] for split in range(splits)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_passes, "_WINDOW_BYTES", window)
        patch.setattr(shared_passes, "_WAIT_SECONDS", 0.0)
        patch.setattr(shared_passes, "_OPEN_SECONDS", 0.0)
        for split, elements in [*((split % splits, n) for split, n in turns)]:
            reader = readers.get(split) or passes.read(numbers, ROW, split, rows)
            readers[split] = reader
            found[split] += take(reader, elements)
        for split in range(splits):
            reader = readers.get(split) or passes.read(numbers, ROW, split, rows)
            found[split] += take(reader)
    assert found == {split: list(range(split, count, splits)) for split in range(splits)}


def test_splits_of_one_pass_read_the_records_once() -> None:
    numbers, passes = Numbers(100, 4, max_rows=5), SharedPasses()
    readers = [passes.read(numbers, ROW, split, 5) for split in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(take, readers))
    assert found == [list(range(split, 100, 4)) for split in range(4)]
    assert (numbers.read, numbers.own) == ([0, 20, 40, 60, 80], [])


def test_a_split_that_opens_again_at_the_start_joins() -> None:
    numbers, passes = Numbers(100, 2, max_rows=5), SharedPasses()
    first, other = (passes.read(numbers, ROW, split, 5) for split in range(2))
    assert take(first, 3) == list(range(0, 30, 2))
    first = passes.read(numbers, ROW, 0, 5)
    assert take(first) == list(range(0, 100, 2))
    assert take(other) == list(range(1, 100, 2))
    assert numbers.read == list(range(0, 100, 10))


def test_the_window_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that does not advance loses its place after a wait, and reads on by itself."""
    monkeypatch.setattr(shared_passes, "_WINDOW_BYTES", 3 * 80)
    monkeypatch.setattr(shared_passes, "_OPEN_SECONDS", 0.0)
    monkeypatch.setattr(shared_passes, "_WAIT_SECONDS", 0.5)
    numbers, passes = Numbers(200, 2, max_rows=5), SharedPasses()
    fast, slow = (passes.read(numbers, ROW, split, 5) for split in range(2))
    assert take(slow, 2) == list(range(1, 20, 2))
    with ThreadPoolExecutor(1) as pool:  # it waits once, not for every chunk
        assert pool.submit(take, fast).result(5) == list(range(0, 200, 2))
    assert numbers.own == []
    assert take(slow) == list(range(21, 200, 2))
    assert numbers.own == [(1, 10)]
    late = passes.read(numbers, ROW, 0, 5)
    assert take(late) == list(range(0, 200, 2))
    assert numbers.own == [(1, 10)]


def test_a_pass_waits_for_splits_that_open_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_passes, "_WINDOW_BYTES", 80)
    numbers, passes = Numbers(200, 2, max_rows=5), SharedPasses()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(take, passes.read(numbers, ROW, 0, 5))
        assert wait([first], 0.5).not_done
        second = pool.submit(take, passes.read(numbers, ROW, 1, 5))
        assert first.result(10) == list(range(0, 200, 2))
        assert second.result(10) == list(range(1, 200, 2))
    assert numbers.read == list(range(0, 200, 10))


def test_a_closed_reader_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_passes, "_WINDOW_BYTES", 3 * 80)
    monkeypatch.setattr(shared_passes, "_OPEN_SECONDS", 0.0)
    numbers, passes = Numbers(200, 2, max_rows=5), SharedPasses()
    fast, slow = (passes.read(numbers, ROW, split, 5) for split in range(2))
    assert take(slow, 1)
    del slow
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(take, fast).result(5) == list(range(0, 200, 2))


def test_readers_wait_for_the_chunk_that_another_one_reads() -> None:
    numbers, passes = Numbers(40, 2, max_rows=5), SharedPasses()
    numbers.wait.clear()
    readers = [passes.read(numbers, ROW, split, 5) for split in range(2)]
    with ThreadPoolExecutor(2) as pool:
        found = [pool.submit(take, reader) for reader in readers]
        assert not any(one.done() for one in found)
        numbers.wait.set()
        assert [one.result(10) for one in found] == [list(range(0, 40, 2)), list(range(1, 40, 2))]
    assert numbers.read == [0, 10, 20, 30]


def test_an_error_reaches_every_split_after_its_rows() -> None:
    numbers, passes = Numbers(40, 2, max_rows=5), SharedPasses()
    numbers.fails_at = 20
    for split in range(2):
        reader = passes.read(numbers, ROW, split, 5)
        assert take(reader, 2) == list(range(split, 20, 2))
        for _ in range(2):
            with pytest.raises(ValueError, match="broken"):
                next(reader)


def test_quick_records_are_read_in_larger_chunks() -> None:
    numbers, passes = Numbers(4000, 2, max_rows=100), SharedPasses()
    reader = passes.read(numbers, ROW, 1, 2)
    sizes = [len(element) for element in reader]
    assert sizes[:7] == [2, 4, 8, 16, 32, 64, 100]
    assert sum(sizes) == 2000
    assert numbers.read == list(range(0, 4000, 4))


def test_the_records_of_a_graph() -> None:
    passes, splits = SharedPasses(), 3
    data = tf.data.Dataset.range(50).map(lambda x: {"n": tf.strings.as_string(x), "id": x})
    row = ElementSpec(
        {"id": 0, "n": 1}, (Leaf("id", "dense", "int64", ()), Leaf("n", "dense", "string", ()))
    )
    for split in range(splits):
        graph = serialize(data.shard(splits, split).batch(4))
        shard = find_record_shard(graph, splits, split, batched=True)
        assert shard is not None
        records = Records(shard, splits, "dataset", "", 2, data)
        found = [
            (int(number), text.decode())
            for element in passes.read(records, row, split, 5)
            for number, text in zip(element["id"], element["n"], strict=True)
        ]
        assert found == [(i, str(i)) for i in range(split, 50, splits)]
        alone = [int(i) for batch in records.of_split(split, 5, 6) for i in batch[0]]
        assert alone == list(range(split, 50, splits))[6:]


def test_the_records_have_the_options_of_the_split() -> None:
    options = tf.data.Options()
    options.threading.private_threadpool_size = 3
    data = tf.data.Dataset.range(50).map(lambda x: x).shard(2, 0).batch(4).with_options(options)
    shard = find_record_shard(serialize(data), 2, 0, batched=True)
    assert shard is not None
    records = Records(shard, 2, "dataset", "", 2, data)._records()
    assert options_of(records).threading_options.private_threadpool_size == 3


def test_a_later_run_has_a_pass_of_its_own() -> None:
    data = tf.data.Dataset.range(50).map(lambda x: x)
    shard = find_record_shard(serialize(data.shard(2, 0).batch(4)), 2, 0, batched=True)
    assert shard is not None
    keys = [Records(shard, 2, "dataset", run, 2, data).key for run in ("d.1", "d.1", "d.2")]
    assert keys[0] == keys[1] != keys[2]
