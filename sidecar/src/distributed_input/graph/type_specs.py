"""Conversion between `tf.TypeSpec`s and `ElementSpec`s.

`from_tf(to_tf(spec)) == spec`, except for a ragged leaf of rank 0: TensorFlow represents it as a
dense tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.api.errors import SpecError
from distributed_input.rows import structure as nested
from distributed_input.rows.decode import Ragged, Sparse
from distributed_input.rows.elements import ElementSpec, Leaf


def from_tf(element_spec: Any) -> ElementSpec:
    """Return the spec of a dataset's elements.

    Raises:
      SpecError: a component has an unsupported kind or type, or it is ragged or sparse and its rank
        is unknown; the message names it.
    """

    def is_none(value: Any) -> bool:
        return value is None or isinstance(value, NoneTensorSpec)

    return _spec(element_spec, _leaf, is_none=is_none)


def from_values(element: Any) -> ElementSpec:
    """Return the spec of an element of arrays, tensors, numbers, strings, `Ragged` and `Sparse`.

    All elements must have the same sizes, except for sparse components and ragged dimensions.
    Python floats become float32, and integers int64. Lists are arrays. Tuples and dicts are
    structure.

    Raises:
      SpecError: a component has an unsupported kind or type; the message names it.
    """
    return _spec(element, _leaf_of_value, list_is_leaf=True)


def _spec(element: Any, leaf_of: Callable[[str, Any], Leaf], **options: Any) -> ElementSpec:
    leaves: list[Leaf] = []

    def add(path: str, value: Any) -> int:
        leaves.append(leaf_of(path, value))
        return len(leaves) - 1

    return ElementSpec(nested.build(element, add, **options), tuple(leaves))


def spec_of_iterable(elements: Iterable[Any], function: object = None) -> ElementSpec:
    """Return the spec of a Python iterable's elements.

    Its first element has the spec, unless it or the function that returned it has the attribute
    `element_spec`, with `tf.TypeSpec`s as in `tf.data.Dataset.element_spec`.

    Raises:
      SpecError: there are no elements, or the first one is not a nested structure of arrays.
    """
    for owner in (elements, function):
        declared = getattr(owner, "element_spec", None)
        if declared is not None:
            return from_tf(declared)
    for element in elements:
        return from_values(element)
    raise SpecError(
        "the entry point's first split has no elements, so their spec is unknown. Return a "
        "tf.data.Dataset, which has a spec, set `element_spec` on the entry point's function, or "
        "return at least one element for split 0."
    )


def graph_spec(element: ElementSpec) -> Any:
    """Return the nested `tf.TypeSpec`s of a dataset with these elements, as its graph has them.

    There, also a ragged component of rank 0 is a variant.
    """
    leaves = [_type_spec(leaf, [], leaf.kind == "ragged") for leaf in element.leaves]
    return element.unflatten(leaves, none=NoneTensorSpec())


def to_tf(spec: ElementSpec, batched: bool = False, static_batch: int | None = None) -> Any:
    """Return the nested `tf.TypeSpec`s of a row, of a whole element, or of a batch of rows.

    A batch has a leading dimension for the rows, of size `static_batch` if that is known.
    """
    rows = [static_batch] if batched else []
    leaves = [_type_spec(leaf, rows) for leaf in spec.leaves]
    return spec.unflatten(leaves, none=NoneTensorSpec())


def check_spec(element_spec: Any, expected: ElementSpec, split: int) -> None:
    """Check that the elements of a split have the job's spec.

    Raises:
      SpecError: the specs differ. Names the component.
    """
    found = from_tf(element_spec)
    if found == expected:
        return
    raise SpecError(
        f"the elements of split {split} are not those of the job: "
        f"{_difference(found, expected)}. Every split must have the same element_spec."
    )


def _difference(found: ElementSpec, expected: ElementSpec) -> str:
    if found.structure != expected.structure:
        return f"elements {to_tf(found)} instead of {to_tf(expected)}"
    for ours, theirs in zip(found.leaves, expected.leaves, strict=True):
        if ours != theirs:
            return (
                f"{ours.label} is {ours.kind} {ours.dtype} {ours.shape} instead of "
                f"{theirs.kind} {theirs.dtype} {theirs.shape}"
            )
    return "other components"


def _leaf(path: str, spec: Any) -> Leaf:
    label = f"component {path!r}" if path else "the element"
    if not isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec, tf.SparseTensorSpec)):
        raise SpecError(
            f"{label} is a {type(spec).__name__}, which cannot be sent: return tensors, ragged or"
            " sparse tensors in dicts, tuples or namedtuples"
        )
    if spec.shape.rank is None:
        if isinstance(spec, tf.TensorSpec):
            return Leaf(path, "unranked", spec.dtype.name, ())
        raise SpecError(
            f"{label} is a {type(spec).__name__} of unknown rank, which cannot be sent: set its"
            " rank with tf.ensure_shape in a map"
        )
    shape = tuple(spec.shape.as_list())
    if isinstance(spec, tf.RaggedTensorSpec):
        if spec.ragged_rank < 0:
            raise SpecError(
                f"{label} is a scalar that TensorFlow keeps as a ragged tensor, as unbatch() does:"
                " add a map, such as .map(lambda row: row), which makes it a tensor"
            )
        return Leaf(
            path, "ragged", spec.dtype.name, shape, spec.ragged_rank, spec.row_splits_dtype.name
        )
    kind = "sparse" if isinstance(spec, tf.SparseTensorSpec) else "dense"
    return Leaf(path, kind, spec.dtype.name, shape)


def _leaf_of_value(path: str, value: Any) -> Leaf:
    if tf.is_tensor(value):
        return _leaf(path, tf.type_spec_from_value(value))
    if isinstance(value, Ragged):
        rank = len(value.row_splits)
        shape = (None,) * (rank + 1) + np.shape(value.values)[1:]
        splits = np.asarray(value.row_splits[0]).dtype.name if rank else "int64"
        return Leaf(path, "ragged", _dtype_of(path, value.values), shape, rank, splits)
    if isinstance(value, Sparse):
        shape = (None,) * len(value.dense_shape)
        return Leaf(path, "sparse", _dtype_of(path, value.values), shape)
    return Leaf(path, "dense", _dtype_of(path, value), np.shape(value))


def _dtype_of(path: str, value: Any) -> str:
    """Return TensorFlow's name for the type of an array, or of a value that becomes an array."""
    array = np.asarray(value)
    if array.dtype.kind in "SU" or (array.dtype == object and _is_text(array)):
        return "string"
    if array.dtype == object:
        label = f"component {path!r}" if path else "the element"
        raise SpecError(
            f"{label} is {type(value).__name__}, which is no array of numbers or strings: return"
            " numpy arrays in dicts and tuples, and distributed_input.Ragged where lengths differ"
        )
    if not hasattr(value, "dtype") and array.dtype == np.float64:
        return "float32"
    return array.dtype.name


def _is_text(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(item, (str, bytes)) for item in array.reshape(-1).tolist())


def _type_spec(leaf: Leaf, rows: list[int | None], is_variant: bool = False) -> tf.TypeSpec:
    shape = [*rows, *leaf.shape]
    dtype = tf.dtypes.as_dtype(leaf.dtype)
    if leaf.kind == "unranked":
        return tf.TensorSpec(None, dtype)
    if leaf.kind == "sparse":
        return tf.SparseTensorSpec(shape, dtype)
    ragged_rank = leaf.ragged_rank + len(rows)
    if leaf.kind == "dense" or (ragged_rank == 0 and not is_variant):
        return tf.TensorSpec(shape, dtype)
    return tf.RaggedTensorSpec(
        shape, dtype, ragged_rank, row_splits_dtype=tf.dtypes.as_dtype(leaf.row_splits_dtype)
    )
