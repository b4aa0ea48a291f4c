"""Rows of variable length, as lists and as datasets."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from testing import packing

METHODS = ("best_fit", "first_fit", "concatenate_and_cut")


def rows_of(count: int, most: int) -> list[packing.Row]:
    """Return rows of at most this many values, some of them without values."""
    found: list[packing.Row] = []
    numbers, first = random.Random(count), 1
    for _ in range(count):
        size = min(most, int(numbers.lognormvariate(2.0, 1.0)))
        found.append(range(first, first + size))
        first += size
    return found


def dataset_of(rows: Sequence[packing.Row]) -> tf.data.Dataset:
    """Return a dataset of rows, as a graph."""
    values = np.concatenate([*rows, []]).astype(np.int32)
    ragged = tf.RaggedTensor.from_row_lengths(values, [len(row) for row in rows])
    return tf.data.Dataset.from_tensor_slices({"tokens": ragged})


def lists(dataset: tf.data.Dataset) -> list[dict[str, Any]]:
    return [{key: one.tolist() for key, one in row.items()} for row in dataset.as_numpy_iterator()]
