"""Python sources of entry points: generators and other iterables, with their own troubles.

Each function takes the context and numbers, and yields the rows of one split.
"""

from __future__ import annotations

import itertools
import queue
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf


def _mine(context: Any, start: int, stop: int) -> range:
    return range(start, stop)[context.input_pipeline_id :: context.num_input_pipelines]


def numbers(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield Python numbers."""
    yield from _mine(context, start, stop)


def columns(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield dicts of arrays, strings and flags."""
    for n in _mine(context, start, stop):
        row = {"id": np.int64(n), "x": np.array([n, -n], np.float32), "name": f"row {n}é"}
        yield {**row, "flag": n % 2 == 0, "nested": (np.int16(n % 100), b"bytes")}


def vectors(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield vectors of different lengths."""
    for n in _mine(context, start, stop):
        yield {"id": n, "vector": np.full([n % 4 + 1], n, np.int32)}


def tensors(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield tensors, also ragged ones."""
    for n in _mine(context, start, stop):
        yield tf.constant(n, tf.int32), tf.ragged.constant([[n], [n] * (n % 3)], tf.int64)


def as_list(context: Any, start: int, stop: int) -> list[Any]:
    """Return a list of tuples."""
    return [(n, float(n) / 2) for n in _mine(context, start, stop)]


class Rows:
    """An iterable that can be iterated again."""

    def __init__(self, values: Iterable[int]) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter({"id": value} for value in self._values)


def iterable(context: Any, start: int, stop: int) -> Rows:
    """Return an object with `__iter__`."""
    return Rows(_mine(context, start, stop))


def array(context: Any, start: int, stop: int) -> Any:
    """Return an array, whose rows are the elements."""
    return np.array(_mine(context, start, stop), np.int32).reshape(-1, 1) * [1, 2]


def int_then_float(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield whole numbers first, as json.loads returns them, and fractions later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n if n % 1000 < 12 else n + 0.75}


def float_then_int(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield fractions first, and large whole numbers later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n + 0.5 if n % 1000 < 12 else (1 << 53) + n}


def growing(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield numbers that no longer fit into the first dtype."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": np.int8(n % 100) if n % 1000 < 12 else np.int64(n + 1000)}


def int_then_text(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield a number first, and a string later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n if n % 1000 < 12 else "unknown"}


def bool_then_int(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield a flag first, and a number later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": True if n % 1000 < 12 else 7}


def text_then_bytes(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield a str first, and bytes that are no UTF-8 later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": "text" if n % 1000 < 12 else b"\xff\xfe"}


def missing(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield rows without a column later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n} if n % 1000 < 12 else {"id": n}


def more_columns(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield rows with a new column later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n} if n % 1000 < 12 else {"id": n, "value": n, "late": n}


def none_later(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield None for a column later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": n if n % 1000 < 12 else None}


def rank_changes(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield a vector first, and a matrix later."""
    for n in _mine(context, start, stop):
        yield {"id": n, "value": np.full([2] if n % 1000 < 12 else [2, 1], n)}


def raising(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Raise an error at a row."""
    for n in _mine(context, start, stop):
        if n % 1000 > 12:
            raise LookupError(f"no row {n}")
        yield {"id": n}


def stopping(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Raise StopIteration in a generator, which Python makes a RuntimeError."""
    for n in _mine(context, start, stop):
        yield {"id": n if n % 1000 < 12 else next(iter(()))}


def database(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Read from sqlite, whose objects belong to one thread."""
    with sqlite3.connect(":memory:") as connection:
        connection.execute("create table rows (id integer)")
        connection.executemany(
            "insert into rows values (?)", [(n,) for n in _mine(context, start, stop)]
        )
        for (n,) in connection.execute("select id from rows order by id"):
            yield {"id": n}


def local_state(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Keep a state in a thread-local variable between rows."""
    state = threading.local()
    state.total = 0
    for n in _mine(context, start, stop):
        state.total += n
        yield {"id": n, "total": state.total}


def from_thread(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Read rows that another thread makes."""
    rows: queue.Queue[int | None] = queue.Queue(4)

    def fill() -> None:
        for n in _mine(context, start, stop):
            rows.put(n)
        rows.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (n := rows.get()) is not None:
        yield {"id": n}


def endless(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield the rows of this split again and again."""
    rows = _mine(context, start, stop)
    yield from ({"id": n} for n in itertools.cycle(rows))


def empty_splits(context: Any, start: int, stop: int) -> Iterator[Any]:
    """Yield rows in the first split only."""
    if not context.input_pipeline_id:
        yield from ({"id": n} for n in range(start, stop))


def batches(context: Any, start: int, stop: int, global_batch: int) -> Iterator[Any]:
    """Yield batches of rows, the last one smaller."""
    size = context.get_per_replica_batch_size(global_batch)
    rows = np.array(_mine(context, start, stop), np.int64)
    for first in range(0, len(rows), size):
        part = rows[first : first + size]
        yield {"id": part, "x": np.stack([part, part], axis=1).astype(np.float64)}


STEADY = (
    numbers, columns, tensors, as_list, iterable, array, database, local_state,
    from_thread, endless, empty_splits, batches,
)  # fmt: skip
"""Sources that must be read to their end."""
CHANGING = (
    int_then_float, float_then_int, growing, int_then_text, bool_then_int, text_then_bytes,
    missing, more_columns, none_later, rank_changes, raising, stopping, vectors,
)  # fmt: skip
"""Sources that may be refused while they are read: the error must be about the column or row."""
EXPECTED_TEXT = {
    "int_then_float": "value", "float_then_int": "value", "growing": "value",
    "int_then_text": "value", "bool_then_int": "value", "text_then_bytes": "value",
    "missing": "value", "more_columns": "late", "none_later": "value", "rank_changes": "value",
    "vectors": "vector", "raising": "LookupError", "stopping": "StopIteration",
}  # fmt: skip
"""What the error of such a source must contain."""
