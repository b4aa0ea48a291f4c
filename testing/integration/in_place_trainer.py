"""A trainer that overwrites its batches in place; it checks every row of every epoch.

Usage: python -m testing.integration.in_place_trainer ROWS EPOCHS WAY...
"""

from __future__ import annotations

import collections
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import distributed_input

HELD = 2
"""Batches that the loop keeps while their neighbours' slots are used again."""


def _negate(array: Any) -> Any:
    return np.negative(array, out=array)


def _numpy_function(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    values = tf.numpy_function(_negate, [batch["bytes"]], tf.uint8)
    return {"id": batch["id"], "bytes": tf.ensure_shape(values, batch["bytes"].shape)}


def _py_function(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    values = tf.py_function(lambda x: _negate(x.numpy()), [batch["bytes"]], tf.uint8)
    return {"id": batch["id"], "bytes": tf.ensure_shape(values, batch["bytes"].shape)}


WAYS: dict[str, Callable[[Any], Any]] = {
    "numpy_function": lambda dataset: dataset.map(_numpy_function),
    "py_function": lambda dataset: dataset.map(_py_function),
    "loop": lambda dataset: dataset,
}


def _check(ids: Any, values: Any) -> None:
    expected = np.negative((ids % 251).astype(np.uint8))
    assert np.array_equal(values, np.broadcast_to(expected[:, None], values.shape)), ids


def _read(dataset: Any, in_loop: bool) -> list[int]:
    """Read one epoch and return the row ids. `in_loop`: negate the values in a variable."""
    found: list[int] = []
    held: collections.deque[Any] = collections.deque(maxlen=HELD)
    variable: tf.Variable | None = None
    for batch in dataset:
        ids, values = batch["id"].numpy(), batch["bytes"]
        if in_loop:
            if variable is None:
                variable = tf.Variable(tf.zeros_like(values))
            variable.assign(values)  # the variable has the tensor's memory, without a copy
            del values, batch
            variable.assign_sub(2 * variable)  # in place
            values = variable.read_value()
        held.append((ids, values))
        for one in held if not in_loop else [held[-1]]:
            _check(one[0], np.asarray(one[1]))
        found += ids.tolist()
    return found


def main(rows: int, epochs: int, ways: list[str]) -> None:
    """Read `epochs` epochs of `rows` rows in each of these ways."""
    for way in ways:
        print(way, flush=True)
        with distributed_input.connect(timeout=20) as data:
            dataset = WAYS[way](data.dataset())
            for _ in range(epochs):
                assert sorted(_read(dataset, way == "loop")) == list(range(rows))


main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
