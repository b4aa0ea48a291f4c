"""Decoding of runs of rows to numpy arrays: the inverse of `distributed_input.rows.encode`.

Dense numbers of known shape are views of the buffers. They keep the buffers alive, and later writes
to the buffers change their values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from distributed_input.api.errors import SpecError
from distributed_input.rows.elements import ElementSpec, Leaf, numpy_dtype
from distributed_input.rows.runs import Buffer, Bytes, as_bytes, row_lengths

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A ragged tensor: flat values, and the row splits of each level, outermost first."""

    values: Array
    row_splits: tuple[Array, ...]


@dataclass(frozen=True, eq=False)
class Sparse:
    """A sparse tensor: int64 indices [nnz, rank], values [nnz], int64 dense_shape [rank]."""

    indices: Array
    values: Array
    dense_shape: Array


def decode(spec: ElementSpec, rows: int | None, buffers: Sequence[Buffer]) -> Any:
    """Return the rows of a run as one batch of numpy arrays, in the structure of the spec.

    Args:
      spec: spec of one row, or of a whole element.
      rows: number of rows, which becomes the leading dimension of each leaf. None if the run is one
        whole element; then no dimension is added.
      buffers: buffers of the run.

    Returns:
      Arrays for dense leaves, with bytes objects for strings. `Ragged` or `Sparse` for the others.

    Raises:
      SpecError: rows differ in the shape of a dense or unranked leaf. Names the leaf.
    """
    return spec.unflatten(decode_leaves(spec, rows, buffers))


def decode_leaves(spec: ElementSpec, rows: int | None, buffers: Sequence[Buffer]) -> list[Any]:
    """Return the leaves that `decode` would return, in the order of the spec."""
    source = iter(buffers)
    return [_DECODERS[leaf.kind](leaf, rows, source) for leaf in spec.leaves]


def _dense(leaf: Leaf, rows: int | None, source: Iterator[Buffer]) -> Array:
    count = 1 if rows is None else rows
    if leaf.is_static:
        shape = tuple(size for size in leaf.shape if size is not None)
        if not leaf.is_string:
            values = as_bytes(next(source)).view(numpy_dtype(leaf.dtype))
            return values.reshape(shape if rows is None else (count, *shape))
        lengths = as_bytes(next(source)).view(np.uint32)
        next(source)
    else:
        dims = as_bytes(next(source)).view(np.int32).reshape(count, len(leaf.shape))
        shape = _common_dims(leaf, dims)
        next(source)
        if leaf.is_string:
            lengths = as_bytes(next(source)).view(np.uint32)
            next(source)
    data = as_bytes(next(source))
    values = _strings(lengths, data) if leaf.is_string else data.view(numpy_dtype(leaf.dtype))
    if not leaf.is_static and (dims != shape).any():
        return _pad(leaf, values, dims, shape)
    return values.reshape(shape if rows is None else (count, *shape))


def _common_dims(leaf: Leaf, dims: npt.NDArray[np.int32]) -> tuple[int, ...]:
    """Return the shape of all rows of a batch: with padding, that of the longest ones."""
    if len(dims) == 0:
        return tuple(size or 0 for size in leaf.shape)
    if leaf.padding is None and (dims != dims[0]).any():
        other = dims[(dims != dims[0]).any(axis=1).argmax()]
        raise _shapes_error(leaf, tuple(dims[0].tolist()), tuple(other.tolist()))
    return tuple(dims.max(axis=0).tolist())


def _pad(leaf: Leaf, values: Array, dims: npt.NDArray[np.int32], shape: tuple[int, ...]) -> Array:
    """Return rows of several shapes as rows of one shape."""
    padding: Any = leaf.padding
    if leaf.is_string:
        padding = padding.encode("latin-1")
    elif isinstance(padding, str):
        padding = complex(padding)
    padded = np.full((len(dims), *shape), padding, values.dtype)
    ends = _splits(dims.prod(axis=1, dtype=np.int64), np.dtype(np.int64)).tolist()
    for row, sizes, (start, end) in zip(padded, dims.tolist(), pairwise(ends), strict=True):
        row[tuple(map(slice, sizes))] = values[start:end].reshape(sizes)
    return padded


def _shapes_error(leaf: Leaf, one: tuple[int, ...], other: tuple[int, ...]) -> SpecError:
    return SpecError(
        f"{leaf.label}: rows of one batch have shapes {one} and {other}. Make them equal: resize"
        " them, end the dataset with padded_batch, or pad them to a fixed size (padded_shapes). Or"
        " make them ragged (ragged_batch, tf.RaggedTensor)."
    )


def _unranked(leaf: Leaf, rows: int | None, source: Iterator[Buffer]) -> Array:
    lengths, flat = row_lengths(next(source)), as_bytes(next(source)).view(np.int32)
    values, counts = _values(leaf, source)
    ends, dims = _splits(lengths // 4, np.dtype(np.int64)).tolist(), flat.tolist()
    shapes = [
        # Without dimensions, it is a scalar, or a row that fills up a batch and has no values.
        tuple(dims[start:end]) if count or end > start else (0,)
        for (start, end), count in zip(pairwise(ends), counts.tolist(), strict=True)
    ]
    shape = shapes[0] if shapes else (0,)
    for other in shapes:
        if other != shape:
            raise _shapes_error(leaf, shape, other)
    return values.reshape(shape if rows is None else (rows, *shape))


def _ragged(leaf: Leaf, rows: int | None, source: Iterator[Buffer]) -> Ragged | Array:
    outer: npt.NDArray[Any] | None = None  # number of items of each row at the outermost level
    splits = []
    splits_dtype = np.dtype(leaf.row_splits_dtype)
    for _ in range(leaf.ragged_rank):
        sizes, data = row_lengths(next(source)), as_bytes(next(source))
        outer = sizes // 4 if outer is None else outer
        splits.append(_splits(data.view(np.int32), splits_dtype))
    values, counts = _values(leaf, source)
    values = values.reshape(-1, *(size or 0 for size in leaf.inner_shape))
    if rows is not None:
        splits.insert(0, _splits(counts // leaf.size if outer is None else outer, splits_dtype))
    return Ragged(values, tuple(splits)) if splits else values


def _sparse(leaf: Leaf, rows: int | None, source: Iterator[Buffer]) -> Sparse:
    rank = len(leaf.shape)
    count = 1 if rows is None else rows
    shapes = as_bytes(next(source)).view(np.int64).reshape(count, rank)
    next(source)
    indices = as_bytes(next(source)).view(np.int64)
    values, counts = _values(leaf, source)
    indices = indices.reshape(values.size, rank)
    if rows is None:
        return Sparse(indices, values, shapes[0])
    known = np.array([size or 0 for size in leaf.shape], np.int64)
    dense_shape = np.concatenate([[count], shapes.max(axis=0) if count else known])
    row = np.repeat(np.arange(count, dtype=np.int64), counts)
    return Sparse(np.column_stack([row, indices]), values, dense_shape.astype(np.int64))


_DECODERS = {"dense": _dense, "ragged": _ragged, "sparse": _sparse, "unranked": _unranked}


def _values(leaf: Leaf, source: Iterator[Buffer]) -> tuple[Array, Array]:
    """Return the flat items of a variable-width column, and the number of items of each row."""
    sizes, data = row_lengths(next(source)), as_bytes(next(source))
    if not leaf.is_string:
        dtype = numpy_dtype(leaf.dtype)
        return data.view(dtype), sizes // dtype.itemsize
    next(source)
    return _strings(data.view(np.uint32), as_bytes(next(source))), sizes // 4


def _splits(lengths: Array, dtype: np.dtype[Any]) -> Array:
    splits = np.zeros(len(lengths) + 1, dtype)
    np.cumsum(lengths, out=splits[1:])
    return splits


def _strings(lengths: npt.NDArray[np.uint32], data: Bytes) -> Array:
    raw = data.tobytes()
    ends = _splits(lengths, np.dtype(np.int64)).tolist()
    out = np.empty(len(lengths), object)
    # One bytes object for each item: numpy's string types remove trailing NULs.
    out[:] = [raw[start:end] for start, end in pairwise(ends)]
    return out
