"""Encoding of a dataset's elements as runs of rows. Used by workers.

Values may be eager tensors or numpy arrays: any value with `__array__`, with `flat_values` and
`nested_row_splits`, or with `indices`, `values` and `dense_shape`. Dense numbers are not copied.
The buffers are views that keep the tensor alive.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from distributed_input.api.errors import SpecError
from distributed_input.rows import python_values
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.decode import Ragged, Sparse
from distributed_input.rows.elements import ElementSpec, Leaf, numpy_dtype
from distributed_input.rows.runs import Bytes, slice_run

Array: TypeAlias = npt.NDArray[Any]
Encoder: TypeAlias = Callable[[Any], tuple[int, list[Bytes]]]


def make_encoder(
    spec: ElementSpec, batched: bool, leaves_of: Callable[[Any], list[Any]] | None = None
) -> Encoder:
    """Return the function that encodes elements as runs.

    Args:
      spec: spec of a row. If elements are not batches, the spec of an element.
      batched: whether an element is a batch of rows, so that each leaf has a leading dimension.
        Otherwise an element is one row.
      leaves_of: from an element to its leaves. Default: an element has the structure of the spec.

    Returns:
      A function from an element to its number of rows and the buffers of the run. It raises
      SpecError, which names the component, if the element does not match the spec.
    """
    leaves = [(leaf, _ENCODERS[leaf.kind]) for leaf in spec.leaves]
    leaves_of = leaves_of or spec.flatten

    def encode(element: Any) -> tuple[int, list[Bytes]]:
        rows = -1 if batched else 1
        buffers: list[Bytes] = []
        values = leaves_of(element)
        for (leaf, encoder), value in zip(leaves, values, strict=True):
            count, parts = encoder(leaf, value, batched)
            if rows not in (-1, count):
                raise SpecError(
                    f"{leaf.label} has {count} rows and {spec.leaves[0].label} has {rows}. Every"
                    " component of a batch needs the same number of rows."
                )
            rows = count
            buffers += parts
        return max(rows, 0), buffers

    return encode


def zero_rows(spec: ElementSpec, rows: int, like: RowBlock | None = None) -> list[Bytes]:
    """Return the run of rows of zeros, or of empty strings, which fill up a batch.

    Args:
        spec: spec of a row.
        rows: number of rows.
        like: its last row has the sizes that the spec does not have. Without it they are 0. Ragged
            dimensions are always empty.
    """
    last: Sequence[Bytes] | None = None
    if like is not None and like.rows:
        last = slice_run(spec.columns, like.buffers, like.rows - 1, like.rows)
    buffers: list[Bytes] = []
    for leaf in spec.leaves:
        zeros = _zeros(leaf, rows, None if last is None else last[len(buffers) :])
        buffers += _ENCODERS[leaf.kind](leaf, zeros, True)[1]
    return buffers


def _zeros(leaf: Leaf, rows: int, last: Sequence[Bytes] | None) -> Any:
    """Return a batch of zeros. `last` begins with the leaf's columns of the last row."""
    sizes = [size or 0 for size in leaf.shape]
    dtype = np.dtype(object) if leaf.is_string else numpy_dtype(leaf.dtype)
    if leaf.kind == "sparse":
        indices = np.zeros((0, 1 + len(sizes)), np.int64)
        return Sparse(indices, np.zeros(0, dtype), np.array([rows, *sizes]))
    if leaf.kind == "unranked":
        sizes = [0] if last is None else last[1].view(np.int32).tolist()
    elif leaf.kind == "dense" and not leaf.is_static and last is not None:
        sizes = last[0].view(np.int32).tolist()
    return np.full((rows, *sizes), b"" if leaf.is_string else 0, dtype)


def _dense(leaf: Leaf, value: Any, batched: bool) -> tuple[int, list[Bytes]]:
    if hasattr(value, "nested_row_splits") or isinstance(value, Ragged):
        return _dense_from_ragged(leaf, value, batched)
    array = _array(leaf, value)
    shape = array.shape[1:] if batched else array.shape
    rows = array.shape[0] if batched and array.ndim else 1
    if (batched and not array.ndim) or not _fits(leaf.shape, shape):
        raise _shape_error(leaf, array.shape, batched)
    if leaf.is_static:
        if not leaf.is_string:
            return rows, [_bytes(array)]
        lengths, data = _string_bytes(leaf, array)
        sizes = lengths.reshape(rows, leaf.size).sum(axis=1, dtype=np.int64)
        return rows, [_bytes(lengths), _row_bytes(leaf, sizes), data]
    return rows, [_tiled(shape, rows), *_equal_rows(leaf, array, shape, rows)]


def _unranked(leaf: Leaf, value: Any, batched: bool) -> tuple[int, list[Bytes]]:
    array = _array(leaf, value)
    if batched and not array.ndim:
        raise SpecError(f"{leaf.label} is a scalar, expected a batch of rows")
    rows, shape = (array.shape[0], array.shape[1:]) if batched else (1, array.shape)
    ranks = _row_bytes(leaf, np.full(rows, 4 * len(shape)))
    return rows, [ranks, _tiled(shape, rows), *_equal_rows(leaf, array, shape, rows)]


def _tiled(shape: tuple[int, ...], rows: int) -> Bytes:
    return _bytes(np.tile(np.array(shape, np.int32), rows))


def _equal_rows(leaf: Leaf, array: Array, shape: tuple[int, ...], rows: int) -> list[Bytes]:
    """Return the variable-width columns of rows that have one shape."""
    counts = np.full(rows, int(np.prod(shape, dtype=np.int64)), np.int64)
    return _values(leaf, array.reshape(-1), _ends(counts))


def _dense_from_ragged(leaf: Leaf, value: Any, batched: bool) -> tuple[int, list[Bytes]]:
    """Encode rows whose first dimension is unknown, as `Dataset.ragged_batch` returns them."""
    flat, splits = _ragged_parts(leaf, value)
    inner: Any = leaf.shape[1:]
    if not batched or leaf.shape[:1] != (None,) or len(splits) != 1 or inner != flat.shape[1:]:
        raise SpecError(f"{leaf.label} is ragged, expected a dense tensor of shape {leaf.shape}")
    lengths = np.diff(splits[0])
    dims = np.empty((len(lengths), len(leaf.shape)), np.int32)
    dims[:, 0], dims[:, 1:] = lengths, inner
    return len(lengths), [_bytes(dims), *_values(leaf, flat, splits[0])]


def _ragged(leaf: Leaf, value: Any, batched: bool) -> tuple[int, list[Bytes]]:
    flat, splits = _ragged_parts(leaf, value)
    if len(splits) != leaf.ragged_rank + batched or not _fits(leaf.inner_shape, flat.shape[1:]):
        raise SpecError(
            f"{leaf.label} has {len(splits)} ragged dimensions and inner shape {flat.shape[1:]},"
            f" expected {leaf.ragged_rank + batched} and {leaf.inner_shape}"
        )
    outer = len(splits[0]) - 1 if splits else len(flat)
    if batched:  # row i is the items [ends[i], ends[i + 1]) of the next level
        ends, splits = splits[0], splits[1:]
    else:
        ends = np.array([0, outer])
    rows = len(ends) - 1
    buffers: list[Bytes] = []
    for level in splits:
        lengths = np.diff(level[ends[0] : ends[-1] + 1]).astype(np.int32)
        buffers += [_row_bytes(leaf, 4 * np.diff(ends)), _bytes(lengths)]
        ends = level[ends]
    return rows, [*buffers, *_values(leaf, flat, ends)]


def _sparse(leaf: Leaf, value: Any, batched: bool) -> tuple[int, list[Bytes]]:
    if not hasattr(value, "dense_shape"):
        raise SpecError(f"{leaf.label} is {type(value).__name__}, expected a sparse tensor")
    indices, shape = (_index_array(leaf, it) for it in (value.indices, value.dense_shape))
    values = _array(leaf, value.values)
    if not _fits(((None,) if batched else ()) + leaf.shape, shape.tolist()):
        raise _shape_error(leaf, tuple(shape.tolist()), batched)
    if not batched:
        ends = np.array([0, len(values)])
        return 1, _sparse_buffers(leaf, shape, indices, values, ends)
    rows = int(shape[0])
    row = indices[:, 0]
    if (row[1:] < row[:-1]).any():  # the indices of a sparse tensor may have any order
        order = np.argsort(row, kind="stable")
        indices, values, row = indices[order], values[order], row[order]
    ends = np.searchsorted(row, np.arange(rows + 1))
    return rows, _sparse_buffers(leaf, np.tile(shape[1:], rows), indices[:, 1:], values, ends)


def _index_array(leaf: Leaf, value: Any) -> Array:
    array = np.asarray(value)
    if array.size and array.dtype.kind not in "iu":
        raise SpecError(f"{leaf.label} has indices of type {array.dtype.name}, expected int64")
    return array.astype(np.int64, copy=False)


def _sparse_buffers(
    leaf: Leaf, shapes: Array, indices: Array, values: Array, ends: Array
) -> list[Bytes]:
    row_bytes = _row_bytes(leaf, 8 * len(leaf.shape) * np.diff(ends))
    return [_bytes(shapes), row_bytes, _bytes(indices), *_values(leaf, values, ends)]


_ENCODERS: dict[str, Callable[[Leaf, Any, bool], tuple[int, list[Bytes]]]] = {
    "dense": _dense,
    "ragged": _ragged,
    "sparse": _sparse,
    "unranked": _unranked,
}


def _values(leaf: Leaf, flat: Array, ends: Array) -> list[Bytes]:
    """Return the variable-width columns of items; row i is the items [ends[i], ends[i + 1])."""
    flat = flat[ends[0] : ends[-1]]
    counts = np.diff(ends)
    if not leaf.is_string:
        item = leaf.itemsize * int(np.prod(flat.shape[1:], dtype=np.int64))
        return [_row_bytes(leaf, item * counts), _bytes(flat)]
    lengths, data = _string_bytes(leaf, flat)
    item_ends = (ends - ends[0]) * int(np.prod(flat.shape[1:], dtype=np.int64))
    sizes = np.diff(_ends(lengths)[item_ends])
    per_row = _row_bytes(leaf, 4 * np.diff(item_ends))
    return [per_row, _bytes(lengths), _row_bytes(leaf, sizes), data]


def _array(leaf: Leaf, value: Any) -> Array:
    """Return the value as an array of the leaf's type, without a copy if it is one."""
    if leaf.is_string:
        return _string_array(leaf, value)
    dtype = numpy_dtype(leaf.dtype)
    if not hasattr(value, "__array__"):
        return python_values.to_array(leaf, value)
    array: Array = value.__array__()
    if array.dtype == dtype:
        return array
    if array.dtype.name == dtype.name:  # in another byte order
        return array.astype(dtype)
    raise SpecError(f"{leaf.label} is {array.dtype.name}, expected {leaf.dtype}. Cast it in a map.")


def _string_array(leaf: Leaf, value: Any) -> Array:
    value = value.__array__() if hasattr(value, "__array__") else value
    # __array__ of a scalar string tensor returns bytes
    array: Array = value if isinstance(value, np.ndarray) else np.asarray(value, object)
    if array.dtype.kind not in "OSU":
        raise SpecError(f"{leaf.label} is {array.dtype.name}, expected strings")
    return array


def _ragged_parts(leaf: Leaf, value: Any) -> tuple[Array, list[Array]]:
    """Return the flat values and the row splits, outermost first."""
    if isinstance(value, Ragged):
        return _array(leaf, value.values), list(value.row_splits)
    if hasattr(value, "nested_row_splits"):
        splits = [np.asarray(level) for level in value.nested_row_splits]
        return _array(leaf, value.flat_values), splits
    array = _array(leaf, value)  # a dense value for a ragged leaf: all rows have the same length
    levels = array.ndim - 1 - len(leaf.inner_shape)
    if levels < 0:
        raise _shape_error(leaf, array.shape, False)
    splits = []
    for level in range(levels):
        outer = int(np.prod(array.shape[: level + 1]))
        splits.append(np.arange(outer + 1) * array.shape[level + 1])
    return array.reshape(-1, *array.shape[levels + 1 :]), splits


def _string_bytes(leaf: Leaf, array: Array) -> tuple[npt.NDArray[np.uint32], Bytes]:
    items = array.reshape(-1).tolist()
    try:
        data = b"".join(items)
    except TypeError:  # some items are str
        items = [_encoded(leaf, item) if isinstance(item, str) else item for item in items]
        try:
            data = b"".join(items)
        except TypeError:
            other = next(item for item in items if not isinstance(item, (bytes, bytearray)))
            raise SpecError(
                f"{leaf.label} is {type(other).__name__} ({reprlib.repr(other)}), expected strings"
            ) from None
    lengths = np.fromiter(map(len, items), np.uint32, len(items))
    return lengths, np.frombuffer(data, np.uint8)


def _encoded(leaf: Leaf, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # a path of a file, whose name is not UTF-8
        raise SpecError(
            f"{leaf.label} is {text!r}, which has no UTF-8 encoding. Encode a path with os.fsencode"
        ) from error


def _bytes(array: Array) -> Bytes:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _ends(lengths: Array) -> Array:
    ends = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=ends[1:])
    return ends


def _row_bytes(leaf: Leaf, sizes: Array) -> Bytes:
    if sizes.size and sizes.max() >= 1 << 32:
        raise SpecError(f"{leaf.label}: a row has {sizes.max()} bytes, the maximum is 4 GiB")
    return _bytes(sizes.astype(np.uint32))


def _fits(expected: tuple[int | None, ...], shape: Any) -> bool:
    return len(expected) == len(shape) and all(
        known is None or known == size for known, size in zip(expected, shape, strict=True)
    )


def _shape_error(leaf: Leaf, shape: tuple[int, ...], batched: bool) -> SpecError:
    rows = "a batch of rows" if batched else "a row"
    return SpecError(f"{leaf.label} has shape {shape}, expected {rows} of shape {leaf.shape}")
