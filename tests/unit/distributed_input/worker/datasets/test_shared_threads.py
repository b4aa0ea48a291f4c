"""Splits of one dataset run on the same private threads, which end with the last split."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.worker.datasets import shared_threads
from distributed_input.worker.datasets.shared_threads import options_of, share_threads

THREADS, ROWS = 2, 8


class Calls:
    """Records the threads that a dataset's function runs on, of which two must run at once."""

    def __init__(self) -> None:
        self.threads: set[int] = set()
        self._both = threading.Barrier(THREADS)

    def __call__(self, row: np.int64) -> np.int64:
        self.threads.add(threading.get_ident())
        self._both.wait(10)
        return row

    def dataset(self) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(ROWS).map(
            lambda row: tf.ensure_shape(tf.numpy_function(self, [row], tf.int64), []),
            num_parallel_calls=THREADS,
        )
        options = tf.data.Options()
        options.threading.private_threadpool_size = THREADS
        return rows.with_options(options)


@pytest.fixture(autouse=True)
def no_pool_is_left() -> Iterator[None]:
    yield
    gc.collect()
    assert not shared_threads._pools


def read(dataset: tf.data.Dataset) -> Any:
    """Return the iterator at its end, whose threads still exist."""
    iterator = iter(dataset)
    assert [int(row) for row in iterator] == list(range(ROWS))
    return iterator


def test_splits_of_one_dataset_share_threads() -> None:
    first, second = Calls(), Calls()
    iterators = [read(share_threads(one.dataset(), "d")) for one in (first, second)]
    assert len(first.threads) == THREADS
    assert first.threads == second.threads
    del iterators


def test_splits_of_other_datasets_have_other_threads() -> None:
    first, second = Calls(), Calls()
    iterators = [
        read(share_threads(one.dataset(), name)) for one, name in ((first, "d"), (second, "e"))
    ]
    assert not first.threads & second.threads
    del iterators


def test_the_other_options_stay() -> None:
    options = tf.data.Options()
    options.autotune.cpu_budget = 3
    shared = options_of(share_threads(Calls().dataset().with_options(options), "d"))
    assert shared.autotune_options.cpu_budget == 3
    assert shared.threading_options.private_threadpool_size == 1


def test_a_dataset_without_private_threads_stays_as_it_is() -> None:
    dataset = tf.data.Dataset.range(1)
    assert share_threads(dataset, "d") is dataset
