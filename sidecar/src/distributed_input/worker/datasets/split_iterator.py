"""The elements of one split, with their spec."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata import batching
from distributed_input.worker.datasets.cache_files import CacheWriter, CachingIterator


@dataclass(frozen=True)
class SplitIterator:
    """The elements of one split.

    Attributes:
        elements: iterator over the elements, from the first one.
        row: spec of one row.
        batched: whether an element is a batch of rows.
    """

    elements: Iterator[Any]
    row: ElementSpec
    batched: bool


def iterate_dataset(
    dataset: tf.data.Dataset,
    row: ElementSpec,
    batched: bool,
    batch_rows: int,
    writers: Sequence[CacheWriter] = (),
) -> SplitIterator:
    """Return the elements of a dataset in a fixed order, with one element prefetched.

    Args:
        dataset: the dataset of the split.
        row: spec of one row.
        batched: whether the dataset's elements are batches of rows.
        batch_rows: minimum number of rows in an element; 0 leaves the elements as they are.
        writers: files that the dataset's caches write.
    """
    options = tf.data.Options()
    options.deterministic = True  # a replay must produce the same rows
    if batch_rows:
        dataset = batching.batch_rows(dataset, row, batched, batch_rows)
    # TensorFlow produces the next element while the worker sends this one.
    dataset = dataset.prefetch(1).with_options(options)
    elements = iter(dataset)
    if writers:
        elements = CachingIterator(elements, list(writers))
    return SplitIterator(elements, row, batched or bool(batch_rows))
