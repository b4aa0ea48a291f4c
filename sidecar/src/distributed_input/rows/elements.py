"""Specs of rows and elements: their structure, leaves and physical columns.

The package's docstring describes the layout of rows in columns and buffers.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distributed_input.api.errors import SpecError
from distributed_input.rows import structure as nested

try:
    import ml_dtypes
except ImportError:  # installed with TensorFlow; without it, its types are read as integers
    ml_dtypes = None

_NATIVE = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64"
    " complex64 complex128".split()
)
_EXTENDED = {
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e4m3b11fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float4_e2m1fn": 1,
    "int4": 1,
    "uint4": 1,
}
_VERSIONS = 1, 2, 3
"""Versions of the JSON of a spec. 2 adds unranked leaves, 3 adds padding; other specs are 1."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Return the numpy type of a leaf's numbers.

    For a type of `ml_dtypes` (bfloat16, float8, ...) it is an unsigned integer of the same width if
    that package is not installed.

    Raises:
      SpecError: there is no numpy type of this name.
    """
    if name in _NATIVE:
        return np.dtype(name)
    if name in _EXTENDED:
        if ml_dtypes is not None and hasattr(ml_dtypes, name):
            found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
            return found
        return np.dtype(f"uint{8 * _EXTENDED[name]}")
    raise SpecError(f"no numpy type for {name!r}")


def is_supported_dtype(name: str) -> bool:
    """Return whether a leaf may have this type."""
    return name == "string" or name in _NATIVE or name in _EXTENDED


@dataclass(frozen=True)
class Column:
    """A physical column of rows.

    Attributes:
      name: path of the leaf, with a suffix for auxiliary columns ("x:lengths").
      row_bytes: bytes of each row of a fixed-width column; None for a variable-width column.
    """

    name: str
    row_bytes: int | None

    @property
    def buffers(self) -> int:
        """Return the number of buffers that the column has in a run."""
        return 1 if self.row_bytes is not None else 2


@dataclass(frozen=True)
class Leaf:
    """One tensor of a row, which TensorFlow calls a component.

    Attributes:
      path: position in the structure ("image", "1", "x/y"); empty if the row is this leaf.
      kind: "dense", "ragged", "sparse", or "unranked": dense, with a rank that is not known.
      dtype: TensorFlow's name of the type ("float32", "string", ...).
      shape: shape in one row, with None for unknown sizes. For a ragged leaf, the full shape. For
        an unranked leaf, ().
      ragged_rank: number of partitioned dimensions of a ragged row. 0 is a row of a ragged batch
        of rank 1: a vector whose length differs between rows.
      row_splits_dtype: "int32" or "int64"; used by ragged leaves only.
      padding: value that makes rows of a dense leaf as long as the longest one of a batch; text
        (latin-1) for strings, and for complex numbers. None: the rows of a batch have one shape.
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    ragged_rank: int = 0
    row_splits_dtype: str = "int64"
    padding: float | str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("dense", "ragged", "sparse", "unranked"):
            raise SpecError(f"{self.label}: unknown kind {self.kind!r}")
        if not is_supported_dtype(self.dtype):
            raise SpecError(
                f"{self.label} has type {self.dtype}, which cannot be sent. Cast it or remove it"
                " in a map."
            )
        if self.kind == "ragged":
            self._check_ragged()

    def _check_ragged(self) -> None:
        if not 0 <= self.ragged_rank < max(len(self.shape), 1):
            raise SpecError(
                f"{self.label}: ragged rank {self.ragged_rank} does not fit shape {self.shape}"
            )
        if not self.shape or None in self.inner_shape or 0 in self.inner_shape:
            raise SpecError(
                f"{self.label}: the dimensions after the last ragged one must be known and not 0,"
                f" but the shape is {self.shape}. Set them with tf.ensure_shape."
            )

    @property
    def label(self) -> str:
        """Return the name of the leaf in error messages."""
        return f"component {self.path!r}" if self.path else "the element"

    @property
    def is_string(self) -> bool:
        return self.dtype == "string"

    @property
    def is_static(self) -> bool:
        """Return whether the leaf is dense and all its sizes are known."""
        return self.kind == "dense" and None not in self.shape

    @property
    def inner_shape(self) -> tuple[int | None, ...]:
        """Return the shape of one item of a ragged leaf's flat values."""
        return self.shape[self.ragged_rank + 1 :]

    @property
    def itemsize(self) -> int:
        """Return the bytes of one number."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Return the items in a row of a static leaf, or in one flat value of a ragged leaf."""
        sizes = self.inner_shape if self.kind == "ragged" else self.shape
        return math.prod(size for size in sizes if size is not None)

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the physical columns of the leaf, in their order."""
        name = self.path or "element"
        values = [Column(name, None)]
        if self.is_string:
            values.insert(0, Column(f"{name}:lengths", None))
        if self.kind == "ragged":
            rows = [Column(f"{name}:rows{level}", None) for level in range(self.ragged_rank)]
            return (*rows, *values)
        if self.kind == "sparse":
            rank = len(self.shape)
            return (Column(f"{name}:shape", 8 * rank), Column(f"{name}:indices", None), *values)
        if self.kind == "unranked":
            return (Column(f"{name}:dims", None), *values)
        if not self.is_static:
            return (Column(f"{name}:dims", 4 * len(self.shape)), *values)
        if self.is_string:
            return (Column(f"{name}:lengths", 4 * self.size), Column(name, None))
        return (Column(name, self.itemsize * self.size),)

    def unbatched(self) -> Leaf:
        """Return the leaf of one row, if this is the leaf of a batch of rows.

        Raises:
          SpecError: the leaf is a scalar.
        """
        if self.kind == "unranked":
            return self
        if not self.shape:
            raise SpecError(
                f"{self.label} is a scalar and has no batch dimension. Every component of a batched"
                " dataset needs one. Remove the component, or set no global batch size."
            )
        if self.kind != "ragged":
            return replace(self, shape=self.shape[1:])
        if self.ragged_rank == 0:
            return replace(self, kind="dense", shape=self.shape[1:])
        return replace(self, shape=self.shape[1:], ragged_rank=self.ragged_rank - 1)


@dataclass(frozen=True)
class ElementSpec:
    """The spec of a row or of a whole element.

    Attributes:
      structure: nested structure as in `distributed_input.rows.structure`; its numbers are indices
        of `leaves`.
      leaves: leaves in the order of `tf.nest`.
    """

    structure: Any
    leaves: tuple[Leaf, ...]

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """Return the physical columns of all leaves, in their order."""
        return tuple(column for leaf in self.leaves for column in leaf.columns)

    @property
    def buffer_count(self) -> int:
        """Return the number of buffers of a run."""
        return sum(column.buffers for column in self.columns)

    @property
    def is_static(self) -> bool:
        """Return whether every leaf is dense and all sizes are known."""
        return all(leaf.is_static for leaf in self.leaves)

    def unbatched(self) -> ElementSpec:
        """Return the spec of a row, if this is the spec of a batch of rows.

        Raises:
          SpecError: a leaf is a scalar. Names the leaf.
        """
        return ElementSpec(self.structure, tuple(leaf.unbatched() for leaf in self.leaves))

    def padded_with(self, paddings: Sequence[Any]) -> ElementSpec:
        """Return the spec with a padding value, or None, for each leaf; () changes nothing."""
        if len(paddings) != len(self.leaves):
            return self
        pairs = zip(self.leaves, paddings, strict=True)
        leaves = [
            replace(leaf, padding=value) if leaf.kind == "dense" and not leaf.is_static else leaf
            for leaf, value in pairs
        ]
        return ElementSpec(self.structure, tuple(leaves))

    def flatten(self, element: Any) -> list[Any]:
        """Return the leaves of an element, in order. Raises SpecError if its structure differs."""
        return nested.flatten(self.structure, element)

    def unflatten(self, leaves: list[Any] | tuple[Any, ...], none: Any = None) -> Any:
        """Return an element of this structure with these leaves, and `none` in place of None."""
        return nested.unflatten(self.structure, leaves.__getitem__, none)

    def to_json(self) -> str:
        """Return compact JSON, which is the same for equal specs."""
        version = 2 if any(leaf.kind == "unranked" for leaf in self.leaves) else 1
        if any(leaf.padding is not None for leaf in self.leaves):
            version = 3
        leaves = [_leaf_to_plain(leaf) for leaf in self.leaves]
        plain = {"v": version, "s": nested.to_plain(self.structure), "l": leaves}
        return json.dumps(plain, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ElementSpec:
        """Return the spec in the text that `to_json` returned.

        Raises:
          SpecError: the text is not a spec, or its version is not supported.
        """
        try:
            plain = json.loads(text)
            version = plain["v"]
            if version in _VERSIONS:
                leaves = tuple(
                    Leaf(path, kind, dtype, _checked_shape(shape), *rest)
                    for path, kind, dtype, shape, *rest in plain["l"]
                )
                spec = ElementSpec(nested.from_plain(plain["s"]), leaves)
                nested.unflatten(spec.structure, range(len(leaves)).index)
                return spec
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise SpecError(f"not an element spec: {error}: {text[:80]!r}") from error
        raise SpecError(
            f"element spec has version {version}, this release supports {_VERSIONS}. Use the same"
            " release of distributed-input in trainers, sidecars and workers."
        )


def _leaf_to_plain(leaf: Leaf) -> list[Any]:
    plain = [leaf.path, leaf.kind, leaf.dtype, leaf.shape]
    if leaf.padding is not None:
        return [*plain, leaf.ragged_rank, leaf.row_splits_dtype, leaf.padding]
    return [*plain, leaf.ragged_rank, leaf.row_splits_dtype] if leaf.kind == "ragged" else plain


def _checked_shape(shape: list[int | None]) -> tuple[int | None, ...]:
    if not all(size is None or (type(size) is int and size >= 0) for size in shape):
        raise ValueError(f"{shape} is not a shape")
    return tuple(shape)
