"""How the rows of a dataset look: leaves, their physical columns, and the spec of both.

A *row* is the unit that is cut, counted and checked. Its leaves are laid out in columns of two
kinds, fixed (so many bytes a row) and variable (a length a row, then the bytes), so that whoever
moves rows needs to know the columns only. A *run* of n rows is a list of 1-D byte buffers, in the
order of the columns: for a fixed column one buffer of n * row_bytes; for a variable one two, the
uint32 byte lengths of the n rows, then their bytes. All numbers are little endian.

No TensorFlow here: `distributed_input.tfdata.type_specs` converts from and to TensorFlow's specs.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from distributed_input.api.errors import SpecError
from distributed_input.rows import structure as nested

try:
    import ml_dtypes
except ImportError:  # comes with TensorFlow; without it such leaves are read as unsigned integers
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
    "int4": 1,
    "uint4": 1,
}
_VERSION = 1


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The numpy type of a leaf's numbers: its own, or unsigned integers of the same width where
    it is one of `ml_dtypes` (bfloat16, float8...) and that package is not installed.
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
    """True of the types that a leaf may have."""
    return name == "string" or name in _NATIVE or name in _EXTENDED


@dataclass(frozen=True)
class Column:
    """A physical column: `row_bytes` for each row, or None where rows have lengths of their own."""

    name: str
    row_bytes: int | None

    @property
    def buffers(self) -> int:
        """How many buffers it takes in a run."""
        return 1 if self.row_bytes is not None else 2


@dataclass(frozen=True)
class Leaf:
    """One tensor of a row: what TensorFlow calls a component.

    Attributes:
      path: where it is in the structure ("image", "1", "x/y"); empty where it is all there is.
      kind: "dense", "ragged" or "sparse".
      dtype: TensorFlow's name of the type ("float32", "string", ...).
      shape: of a row, None for unknown sizes. Ragged: the full shape.
      ragged_rank: partitioned dimensions of a ragged row; 0 is a row of a ragged batch of rank 1,
        a vector whose length differs from row to row.
      row_splits_dtype: "int32" or "int64", ragged only.
    """

    path: str
    kind: str
    dtype: str
    shape: tuple[int | None, ...]
    ragged_rank: int = 0
    row_splits_dtype: str = "int64"

    def __post_init__(self) -> None:
        if self.kind not in ("dense", "ragged", "sparse"):
            raise SpecError(f"{self.label}: unknown kind {self.kind!r}")
        if not is_supported_dtype(self.dtype):
            raise SpecError(
                f"{self.label} has type {self.dtype}, which cannot be sent: cast it in a map, or"
                " drop it"
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
                f" shape is {self.shape}: give them with tf.ensure_shape"
            )

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"component {self.path!r}" if self.path else "the element"

    @property
    def is_string(self) -> bool:
        return self.dtype == "string"

    @property
    def is_static(self) -> bool:
        """Dense, and every size known."""
        return self.kind == "dense" and None not in self.shape

    @property
    def inner_shape(self) -> tuple[int | None, ...]:
        """Ragged: the dimensions of one item of the flat values."""
        return self.shape[self.ragged_rank + 1 :]

    @property
    def itemsize(self) -> int:
        """Bytes of one number."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Items in a row of a static leaf; items in one flat value of a ragged one."""
        sizes = self.inner_shape if self.kind == "ragged" else self.shape
        return math.prod(size for size in sizes if size is not None)

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """Its physical columns in their order."""
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
        if not self.is_static:
            return (Column(f"{name}:dims", 4 * len(self.shape)), *values)
        if self.is_string:
            return (Column(f"{name}:lengths", 4 * self.size), Column(name, None))
        return (Column(name, self.itemsize * self.size),)

    def unbatched(self) -> Leaf:
        """The leaf of one row, where this is the leaf of a batch of rows.

        Raises:
          SpecError: it is a scalar.
        """
        if not self.shape:
            raise SpecError(
                f"{self.label} is a scalar and has no batch dimension: every component of a batched"
                " dataset needs one; drop the component, or give no global batch size"
            )
        if self.kind != "ragged":
            return replace(self, shape=self.shape[1:])
        if self.ragged_rank == 0:
            return replace(self, kind="dense", shape=self.shape[1:])
        return replace(self, shape=self.shape[1:], ragged_rank=self.ragged_rank - 1)


@dataclass(frozen=True)
class ElementSpec:
    """The spec of a row, or of a whole element: its structure and its leaves.

    `structure` is nested as `distributed_input.rows.structure` says; numbers in it index `leaves`.
    """

    structure: Any
    leaves: tuple[Leaf, ...]

    @functools.cached_property
    def columns(self) -> tuple[Column, ...]:
        """The physical columns of all leaves, in order."""
        return tuple(column for leaf in self.leaves for column in leaf.columns)

    @property
    def buffer_count(self) -> int:
        """How many buffers a run has."""
        return sum(column.buffers for column in self.columns)

    @property
    def is_static(self) -> bool:
        """Every leaf is dense with known sizes."""
        return all(leaf.is_static for leaf in self.leaves)

    def unbatched(self) -> ElementSpec:
        """The spec of a row, where this is the spec of a batch of rows.

        Raises:
          SpecError: a leaf is a scalar; names it.
        """
        return ElementSpec(self.structure, tuple(leaf.unbatched() for leaf in self.leaves))

    def flatten(self, element: Any) -> list[Any]:
        """The leaves of an element of this structure, in order. Raises SpecError if it is not."""
        return nested.flatten(self.structure, element)

    def unflatten(self, leaves: list[Any] | tuple[Any, ...], none: Any = None) -> Any:
        """An element of this structure with these leaves; `none` stands for None."""
        return nested.unflatten(self.structure, leaves.__getitem__, none)

    def to_json(self) -> str:
        """Compact JSON, the same for equal specs; `from_json` reads it."""
        leaves = [
            [leaf.path, leaf.kind, leaf.dtype, leaf.shape]
            + ([leaf.ragged_rank, leaf.row_splits_dtype] if leaf.kind == "ragged" else [])
            for leaf in self.leaves
        ]
        plain = {"v": _VERSION, "s": nested.to_plain(self.structure), "l": leaves}
        return json.dumps(plain, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> ElementSpec:
        """Reads `to_json`'s text.

        Raises:
          SpecError: it is not one, or of a later version.
        """
        try:
            plain = json.loads(text)
            version = plain["v"]
            if version == _VERSION:
                leaves = tuple(
                    Leaf(path, kind, dtype, tuple(shape), *rest)
                    for path, kind, dtype, shape, *rest in plain["l"]
                )
                return ElementSpec(nested.from_plain(plain["s"]), leaves)
        except (ValueError, KeyError, TypeError) as error:
            raise SpecError(f"not an element spec: {error}: {text[:80]!r}") from error
        raise SpecError(
            f"element spec of version {version}, this is {_VERSION}: use the same release of"
            " distributed-input in trainers, sidecars and workers"
        )
