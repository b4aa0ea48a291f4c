"""Elements as comparable values: of TensorFlow, of the numpy API, of a step of several replicas."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.rows.decode import Ragged, Sparse

_PADDING = re.compile(r"(, |(?<=\[))(0|0\.0|b''|False|\[\])\]")
NOISE = "uint64"
"""The dtype of random values, which are compared for independence, not for equality."""


@dataclass(frozen=True)
class Leaf:
    """One component of an element.

    Attributes:
        kind: dense, ragged, sparse or none.
        dtype: name of the dtype.
        shape: of a dense leaf.
        rows: nested lists; for sparse leaves, one dict of positions and values for each row.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    rows: Any

    @property
    def count(self) -> int | None:
        """The size of the first dimension; None for a scalar."""
        if self.kind == "none" or (self.kind == "dense" and not self.shape):
            return None
        return len(self.rows)


Element = tuple[Leaf, ...]


def structure_of(value: Any) -> str:
    """Return the nested structure of an element or an element_spec, without its leaves."""
    if isinstance(value, Mapping):
        parts = (f"{key!r}: {structure_of(value[key])}" for key in sorted(value))
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(structure_of, value))})"
    first = value.values[0] if isinstance(value, tf.distribute.DistributedValues) else value
    return "None" if first is None or isinstance(first, tf.NoneTensorSpec) else "_"


def element_of(value: Any) -> Element:
    """Return the components of an element, in the order of `tf.nest.flatten`."""
    return tuple(_leaf(part) for part in tf.nest.flatten(value))


def _leaf(part: Any) -> Leaf:
    if part is None:
        return Leaf("none", "", (), None)
    if isinstance(part, tf.RaggedTensor):
        return Leaf("ragged", part.dtype.name, (), part.to_list())
    if isinstance(part, Ragged):
        return Leaf("ragged", _name(part.values), (), _nested(part))
    if isinstance(part, tf.SparseTensor):
        indices, values = part.indices.numpy(), part.values.numpy()
        return _sparse(indices, values, part.dense_shape.numpy())
    if isinstance(part, Sparse):
        return _sparse(part.indices, part.values, part.dense_shape)
    array = np.asarray(part.numpy() if isinstance(part, tf.Tensor) else part)
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    if array.dtype.kind == "S":
        array = array.astype(object)
    return Leaf("dense", _name(array), array.shape, array.tolist())


def _name(array: Any) -> str:
    return "string" if array.dtype.kind in "OS" else str(array.dtype)


def _nested(part: Ragged) -> list[Any]:
    rows: list[Any] = np.asarray(part.values).tolist()
    for splits in reversed(part.row_splits):
        ends = np.asarray(splits).tolist()
        rows = [rows[start:end] for start, end in itertools.pairwise(ends)]
    return rows


def _sparse(indices: Any, values: Any, dense_shape: Any) -> Leaf:
    rows: list[dict[Any, Any]] = [{} for _ in range(int(dense_shape[0]))]
    for place, value in zip(np.asarray(indices).tolist(), np.asarray(values).tolist(), strict=True):
        rows[place[0]][tuple(place[1:])] = value
    return Leaf("sparse", _name(np.asarray(values)), (), rows)


def rows_of(element: Element) -> list[str]:
    """Return the rows of a batch, each as text. Raises ValueError if it is no batch."""
    leaves = [leaf for leaf in element if leaf.kind != "none" and leaf.dtype != NOISE]
    counts = {leaf.count for leaf in leaves}
    if len(counts) != 1 or None in counts:
        raise ValueError(f"components have {counts} rows")
    columns = [[(leaf.dtype, _plain(row)) for row in leaf.rows] for leaf in leaves]
    return [repr(row) for row in zip(*columns, strict=True)]


def whole(element: Element) -> str:
    """Return an element as text."""
    leaves = [leaf for leaf in element if leaf.kind != "none" and leaf.dtype != NOISE]
    return repr(tuple((leaf.dtype, _plain(_entries(leaf))) for leaf in leaves))


def _entries(leaf: Leaf) -> Any:
    """Return the rows of a leaf; the entries of a sparse leaf, as a row of a batch has them."""
    if leaf.kind != "sparse":
        return leaf.rows
    return {(i, *place): v for i, row in enumerate(leaf.rows) for place, v in row.items()}


def _plain(row: Any) -> Any:
    """Return a value without what only its representation has."""
    if isinstance(row, dict):
        return sorted(row.items())
    if isinstance(row, list):
        return [_plain(one) for one in row]
    return row


def without_padding(text: str) -> str:
    """Return a row without the padding at the end of each vector."""
    while (shorter := _PADDING.sub("]", text)) != text:
        text = shorter
    return text


def untyped(text: str) -> str:
    """Return a row of Python values without dtypes: a column has one dtype, 10 may become 10.0."""
    text = re.sub(r"\('[a-z0-9]+', ", "(", text).replace("True", "1").replace("False", "0")
    return re.sub(r"(?<![0-9.])(-?[0-9]+)\.0(?![0-9])", r"\1", text)


def is_empty(element: Element) -> bool:
    """Return whether an element has no rows, and scalars that are zeros or empty strings."""
    return all(leaf.count == 0 if leaf.count is not None else not leaf.rows for leaf in element)


def is_padding(row: str) -> bool:
    """Return whether a row has only zeros, empty strings and empty lists."""
    bare = re.sub(r"'[a-z]+[0-9]*'|b''|False|nan", "", row)
    return not re.search(r"[1-9]|True|b'", bare)


def atoms(elements: Iterable[Element]) -> list[str]:
    """Return all single values, without the structure."""
    found: list[str] = []

    def add(dtype: str, value: Any) -> None:
        if isinstance(value, dict):
            value = list(value.values())
        if isinstance(value, list):
            for one in value:
                add(dtype, one)
        else:
            found.append(f"'{dtype}' {value!r}")

    for element in elements:
        for leaf in element:
            if leaf.kind != "none" and leaf.dtype != NOISE:
                add(leaf.dtype, leaf.rows)
    return found


def noise_of(element: Element) -> list[int]:
    """Return the random values of an element."""
    found: list[int] = []

    def add(value: Any) -> None:
        if isinstance(value, list):
            for one in value:
                add(one)
        else:
            found.append(int(value))

    for leaf in element:
        if leaf.dtype == NOISE:
            add(leaf.rows)
    return found


def joined(parts: list[Element]) -> Element:
    """Return the parts of several replicas as one element, along the first dimension."""
    parts = [part for part in parts if any(leaf.count for leaf in part)] or parts[:1]
    leaves = []
    for group in zip(*parts, strict=True):
        first = group[0]
        if first.count is None:
            leaves.append(first)
            continue
        rows = [row for leaf in group for row in leaf.rows]
        shape = (len(rows), *first.shape[1:]) if first.kind == "dense" else ()
        leaves.append(Leaf(first.kind, first.dtype, shape, rows))
    return tuple(leaves)
