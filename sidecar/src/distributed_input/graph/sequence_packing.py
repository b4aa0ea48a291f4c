"""Packing: rows of variable length become rows of one length, which hold one row or several.

A row goes to one of K open sequences. If it fits into none of them, the one with the most values
ends, and the row begins a new one. At the end of the dataset, all open ones end. So the result is a
function of the rows alone.

All of it is TensorFlow ops, so that the graph can be sent, compared, saved and resumed as others.
A call of a function handles a window of rows: a call for each row would cost more than its work.
The result does not depend on the windows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from distributed_input.api.config import PACKING_METHODS
from distributed_input.api.errors import ConfigError, SpecError
from distributed_input.graph import balanced_order

SEGMENTS, POSITIONS = "segment_ids", "positions"
MOST_VALUES = 1 << 24  # in a sequence
_CUT = "concatenate_and_cut"
_WINDOW = 64  # rows; the first packed row needs so many, and they are in memory together
_NUMBER_BITS = 32
_NUMBER = (1 << _NUMBER_BITS) - 1


class _RowPlaces(NamedTuple):
    """Where new rows go. Sequences have numbers: 0 to K - 1 are those that were open before.

    Attributes:
        lengths: numbers of values; a row that is cut counts as several. Shape [rows].
        sequences: numbers of their sequences. Shape [rows].
        ended: numbers of the sequences that have ended, in the order in which they did.
        still_open: numbers of the K others, the oldest first.
    """

    lengths: tf.Tensor
    sequences: tf.Tensor
    ended: tf.Tensor
    still_open: tf.Tensor


def pack(
    dataset: tf.data.Dataset,
    length: int,
    method: str = "best_fit",
    open_sequences: int = 64,
    *,
    balance_window: int = 0,
    rows_per_step: int = 1,
) -> tf.data.Dataset:
    """Pack rows of variable length into rows of `length` values.

    The result has the components of a row, filled up with zeros ("" for strings), and two more of
    int32: `segment_ids` has 1 for the values of the first row in a packed row, 2 for those of the
    second, and so on, and 0 behind the last one. `positions` has the place of a value in its row,
    or in its part of a row that was cut, from 0.

    Use it on the rows of one split: after `shard` and `shuffle`, before `batch`.

    Args:
        dataset: elements that are dictionaries of vectors, which have the same length in a row.
            Rows without values are left out.
        length: number of values of a packed row.
        method: "best_fit" puts a row into the open sequence with the least room for it, "first_fit"
            into the oldest one with room. "concatenate_and_cut" fills each sequence, and cuts rows
            at its end.
        open_sequences: number of sequences that are open at the same time, except when rows are
            cut. They are in memory.
        balance_window: number of consecutive packed rows that change their order, so that the rows
            that the ranks take in a step cost about the same. They are in memory. 0: none.
        rows_per_step: number of rows that a rank takes of the split in a step, for the balance:
            `context.get_per_replica_batch_size(global_batch_size)`.

    Raises:
        ConfigError: an argument is invalid.
        SpecError: the elements are no dictionaries of vectors.
    """
    _check(dataset.element_spec, length, method, open_sequences)
    if balance_window < 0 or rows_per_step < 1:
        raise ConfigError(
            f"packing with a balance window of {balance_window} rows and {rows_per_step} rows of a "
            "step: the window must be 0 or more, and the rows 1 or more"
        )
    count = 1 if method == _CUT else open_sequences
    types = {name: spec.dtype for name, spec in dataset.element_spec.items()}
    none = tf.zeros([0], tf.int64)
    nothing = {name: tf.zeros([0], dtype) for name, dtype in types.items()}

    @tf.autograph.experimental.do_not_convert
    def check(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return _checked(row, None if method == _CUT else length)

    @tf.autograph.experimental.do_not_convert
    def read(rows: dict[str, Any]) -> Any:
        return *_flat(rows), False

    step = _step(tuple(sorted(types.items())), length, method, count)

    @tf.autograph.experimental.do_not_convert
    def move(held: Any, window: Any) -> Any:
        return step(held, window)

    windows = dataset.map(check).ragged_batch(_WINDOW).map(read)
    windows = windows.concatenate(tf.data.Dataset.from_tensors((nothing, none, True)))
    packed = windows.scan((nothing, none, none), move).unbatch()
    if not balance_window:
        return packed
    return balanced_order.balance(packed, balance_window, rows_per_step, SEGMENTS, POSITIONS)


def _check(spec: Any, length: int, method: str, open_sequences: int) -> None:
    if method not in PACKING_METHODS:
        raise ConfigError(f"packing method {method!r}: use one of {', '.join(PACKING_METHODS)}")
    if not 1 <= length <= MOST_VALUES:
        raise ConfigError(f"packing length {length}: must be from 1 to {MOST_VALUES}")
    if open_sequences < 1:
        raise ConfigError(f"packing with {open_sequences} open sequences: must be 1 or more")
    if not isinstance(spec, dict):
        raise SpecError(
            "packing needs rows that are dictionaries of vectors, for example {'tokens': tokens}. "
            f"The dataset has {spec}: return a dictionary from a map"
        )
    for name, one in spec.items():
        if not isinstance(name, str):
            raise SpecError(f"packing needs components with names, and one has the key {name!r}")
        if name in (SEGMENTS, POSITIONS):
            raise SpecError(f"packing adds the component {name!r}, which the rows have: rename it")
        is_dense = isinstance(one, tf.TensorSpec) or getattr(one, "ragged_rank", None) == 0
        if not is_dense or one.shape.rank != 1:
            raise SpecError(
                f"packing needs rows whose components are vectors, and {name!r} is {one}. Remove "
                "batch() and components of other shapes; if the shape is unknown, add "
                "tf.ensure_shape(x, [None])"
            )


@functools.lru_cache(maxsize=32)
def _step(
    types: tuple[tuple[str, tf.DType], ...], length: int, method: str, count: int
) -> Callable[[Any, Any], Any]:
    """Return the function that packs the rows of a window.

    Its arguments are the open sequences and the window. It returns the open sequences after the
    window, and the packed rows that are complete.

    Tracing it takes some tenths of a second, and all splits have the same one.
    """
    values = {name: tf.TensorSpec([None], dtype) for name, dtype in types}
    integers = tf.TensorSpec([None], tf.int64)
    signature = (values, integers, integers), (values, integers, tf.TensorSpec([], tf.bool))

    def step(held: Any, window: Any) -> Any:
        values, lengths, sequences = held
        new_values, new_lengths, is_last = window
        room = length - tf.math.unsorted_segment_sum(lengths, sequences, count)
        if method == _CUT:
            plan = _cut(new_lengths, room, length)
        else:
            plan = _fit(new_lengths, room, length, oldest=method == "first_fit")
        return _move(
            {name: tf.concat([values[name], new_values[name]], 0) for name in values},
            tf.concat([lengths, plan.lengths], 0),
            tf.concat([sequences, plan.sequences], 0),
            plan,
            is_last,
            length,
        )

    function: Any = tf.function(step, input_signature=signature, autograph=False)
    return function.get_concrete_function()


def _checked(row: dict[str, tf.Tensor], most: int | None) -> dict[str, tf.Tensor]:
    """Return a row, or an error if its components differ in length or have more than `most` values.

    Here, and not where rows are together: spec.badRecords leaves out single rows.
    """
    first, *others = sorted(row)
    lengths = tf.size(row[first], tf.int64)
    checks = [
        tf.debugging.assert_equal(
            lengths,
            tf.size(row[other], tf.int64),
            f"packing: the components {first} and {other} of a row differ in length",
        )
        for other in others
    ]
    if most is not None:
        message = (
            f"packing: a row has more than {most} values (spec.packing.length). Cut it before, for "
            f"example tokens[:{most}], or use spec.packing.method ConcatenateAndCut"
        )
        checks.append(tf.debugging.assert_less_equal(lengths, tf.constant(most, tf.int64), message))
    with tf.control_dependencies(checks):
        return {name: tf.identity(one) for name, one in row.items()}


def _flat(rows: dict[str, Any]) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Return the values of the rows of a window, and the lengths of the rows that have values."""
    ragged = {
        name: one if isinstance(one, tf.RaggedTensor) else tf.RaggedTensor.from_tensor(one)
        for name, one in rows.items()
    }
    lengths = tf.cast(ragged[min(ragged)].row_lengths(), tf.int64)
    lengths = tf.boolean_mask(lengths, lengths > 0)
    return {name: one.flat_values for name, one in ragged.items()}, lengths


def _fit(lengths: tf.Tensor, room: tf.Tensor, length: int, oldest: bool) -> _RowPlaces:
    """Put each row into an open sequence with room for it: with the least room, or the oldest one.

    If there is none, the sequence with the least room ends.
    """
    # A code has the room of a sequence, and its number in the low bits. What a row leaves of it is
    # negative if the row does not fit. As an unsigned number, that is larger than all that fit. In
    # both cases, the least room is the lowest.
    scale = 1 << _NUMBER_BITS
    count, rows = tf.size(room, tf.int64), tf.size(lengths, tf.int64)
    numbers = count + tf.range(rows)  # a sequence that row r begins is K + r
    begun = (length - lengths) * scale + numbers
    needed = lengths * scale

    def place(row: tf.Tensor, code: tf.Tensor, found: tf.TensorArray) -> Any:
        left = code - tf.gather(needed, row)
        order = tf.where(left >= 0, left & _NUMBER, left) if oldest else left
        slot = tf.argmin(tf.bitcast(order, tf.uint64))
        chosen = tf.gather(left, slot)
        new = tf.where(chosen < 0, tf.gather(begun, row), chosen)
        code = tf.tensor_scatter_nd_update(code, tf.reshape(slot, [1, 1]), tf.reshape(new, [1]))
        return row + 1, code, found.write(tf.cast(row, tf.int32), chosen)

    found = tf.TensorArray(tf.int64, tf.cast(rows, tf.int32), element_shape=[])
    start = tf.constant(0, tf.int64), room * scale + tf.range(count), found
    _, code, found = tf.while_loop(lambda row, *_: row < rows, place, start, parallel_iterations=1)
    chosen = found.stack()
    is_new = chosen < 0
    sequences = chosen & _NUMBER
    return _RowPlaces(
        lengths,
        tf.where(is_new, numbers, sequences),
        tf.boolean_mask(sequences, is_new),
        tf.sort(code & _NUMBER),
    )


def _cut(lengths: tf.Tensor, room: tf.Tensor, length: int) -> _RowPlaces:
    """Put rows one behind the other, and cut them where a sequence is full."""
    ends = tf.cumsum(tf.concat([length - room, lengths], 0))
    last = ends[-1] // length
    bounds = tf.sort(tf.concat([ends, tf.range(1, last + 1) * length], 0))
    parts = bounds[1:] - bounds[:-1]
    is_part = parts > 0
    sequences = tf.boolean_mask(bounds[:-1], is_part) // length
    return _RowPlaces(tf.boolean_mask(parts, is_part), sequences, tf.range(last), last[None])


def _move(
    values: dict[str, tf.Tensor],
    lengths: tf.Tensor,
    sequences: tf.Tensor,
    plan: _RowPlaces,
    is_last: tf.Tensor,
    length: int,
) -> Any:
    """Return what stays open, and the packed rows of the sequences that have ended.

    `values` has the values of all rows, which are in an open sequence or new, in their order.
    """
    order = tf.concat([plan.ended, plan.still_open], 0)
    count = tf.size(order, tf.int64)
    ended = tf.where(is_last, count, tf.size(plan.ended, tf.int64))
    # The sequences of rows as indexes of `order`: first those that have ended.
    places = tf.scatter_nd(order[:, None], tf.range(count), tf.reduce_max(order, keepdims=True) + 1)
    places = tf.gather(places, sequences)
    rows = tf.argsort(places, stable=True)
    sorted_lengths, places = tf.gather(lengths, rows), tf.gather(places, rows)
    moved = tf.math.count_nonzero(places < ended)
    parts, kept = sorted_lengths[:moved], sorted_lengths[moved:]
    _, _, rows_in = tf.unique_with_counts(places[:moved], tf.int64)
    totals = tf.reduce_sum(tf.RaggedTensor.from_row_lengths(parts, rows_in, validate=False), 1)

    def packed(flat: tf.Tensor) -> tf.Tensor:
        ragged = tf.RaggedTensor.from_row_lengths(flat, totals, validate=False)
        return ragged.to_tensor(shape=[None, length])

    border = tf.reduce_sum(parts)
    held, result = {}, {}
    for name, flat in values.items():
        ragged = tf.RaggedTensor.from_row_lengths(flat, lengths, validate=False)
        flat = tf.gather(ragged, rows).flat_values
        result[name], held[name] = packed(flat[:border]), flat[border:]
    segments = tf.cast(tf.ragged.range(1, rows_in + 1).flat_values, tf.int32)
    result[SEGMENTS] = packed(tf.repeat(segments, parts))
    result[POSITIONS] = packed(tf.cast(tf.ragged.range(parts).flat_values, tf.int32))
    return (held, kept, places[moved:] - ended), result
