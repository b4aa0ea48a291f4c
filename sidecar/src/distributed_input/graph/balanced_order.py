"""An order of packed rows in which a rank's share of each step costs about the same.

The rows of a window are sorted by their cost and cut into as many strata as a step takes rows. Each
group of consecutive rows has one row of each stratum. All strata are walked upwards by every second
row, and then downwards by the others. So the groups of all splits of a run cost about the same at
the same step, also if their windows begin some rows apart. Rows of the end of a group and the
beginning of the next one are of different strata, too.

The order is a function of the rows of the window alone.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import tensorflow as tf

_GOLDEN = 0x9E3779B97F4A7C15  # its multiples are spread evenly, also a few of them


def balance(
    dataset: tf.data.Dataset, window: int, rows_per_step: int, segments: str, positions: str
) -> tf.data.Dataset:
    """Return the packed rows of each window in a balanced order.

    Args:
        dataset: packed rows: dictionaries of vectors of one length.
        window: rows that are sorted together. They are in memory.
        rows_per_step: rows that a rank takes of the dataset in a step.
        segments: name of the component with the number of the row of each value; 0: none.
        positions: name of the component with the place of each value in its row.
    """

    @tf.autograph.experimental.do_not_convert
    def reorder(rows: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        order = _traced(rows_per_step)(rows[segments], rows[positions])
        return {name: tf.gather(values, order) for name, values in rows.items()}

    return dataset.batch(window).map(reorder).unbatch()


@functools.lru_cache(maxsize=32)
def _traced(rows_per_step: int) -> Any:
    integers = tf.TensorSpec([None, None], tf.int32)
    function: Any = tf.function(
        lambda segments, positions: _order(segments, positions, rows_per_step),
        input_signature=(integers, integers),
        autograph=False,
    )
    return function.get_concrete_function()


def _order(segments: tf.Tensor, positions: tf.Tensor, strata: int) -> tf.Tensor:
    """Return the indexes of rows in their balanced order.

    The cost of a row is that of attention: the sum of the squares of the lengths in it. A square is
    the sum of the odd numbers before it.
    """
    odd = 2 * tf.cast(positions, tf.int64) + 1
    costs = tf.reduce_sum(tf.where(segments > 0, odd, 0), 1)
    by_cost = tf.argsort(costs, stable=True)
    count = tf.size(costs, tf.int64)
    at = tf.range(count)
    stratum = ((at + 1) * strata - 1) // tf.maximum(count, 1)
    first, end = stratum * count // strata, (stratum + 1) * count // strata
    place = at - first
    group = tf.where(place % 2 == 0, place // 2, end - first - 1 - place // 2)
    spread = np.argsort(np.argsort(np.arange(strata, dtype=np.uint64) * np.uint64(_GOLDEN)))
    turn = group * strata + tf.gather(tf.constant(spread, tf.int64), stratum)
    return tf.gather(by_cost, tf.argsort(turn))
