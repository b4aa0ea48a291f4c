"""Decode runs of rows into tensors with the user's structure.

A generator yields the flat tuples of arrays that `components` returns. `from_arrays` returns the
dataset of their tensors, with the user's structure.

`leading` is the leading dimension of batches of rows: (None,), or (N,) if all batches have N rows.
It is () for whole elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
import tensorflow as tf

from distributed_input.graph import type_specs
from distributed_input.rows.decode import Ragged, Sparse, decode_leaves
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.runs import Buffer
from distributed_input.rows.structure import Structure
from distributed_input.trainer.tensorflow.generators import TrackedGenerator

Array = npt.NDArray[Any]
Leading: TypeAlias = tuple[int | None, ...]


def _leaf_signature(leaf: Leaf, leading: Leading) -> list[tf.TensorSpec]:
    """Return the flat specs of the arrays that `components` returns for a leaf."""
    dtype = tf.dtypes.as_dtype(leaf.dtype)
    if leaf.kind == "unranked":
        return [tf.TensorSpec(None, dtype)]
    if leaf.kind == "dense":
        return [tf.TensorSpec([*leading, *leaf.shape], dtype)]
    if leaf.kind == "sparse":
        rank = len(leaf.shape) + len(leading)
        shapes = (([None, rank], tf.int64), ([None], dtype), ([rank], tf.int64))
        return [tf.TensorSpec(shape, kind) for shape, kind in shapes]
    splits_dtype = tf.dtypes.as_dtype(leaf.row_splits_dtype)
    sizes = [*leading, *leaf.shape[: leaf.ragged_rank + 1]]
    splits = sizes[: leaf.ragged_rank + len(leading)]
    # Only the outermost level has a fixed number of splits.
    lengths = [None if i or size is None else size + 1 for i, size in enumerate(splits)]
    flat = [None, *leaf.inner_shape] if splits else list(leaf.shape)
    return [tf.TensorSpec(flat, dtype), *(tf.TensorSpec([n], splits_dtype) for n in lengths)]


def components(spec: ElementSpec, rows: int | None, buffers: Sequence[Buffer]) -> tuple[Array, ...]:
    """Decode a run into the flat tuple of arrays.

    Dense numbers of known shape are views of the buffers and keep them alive.

    Raises:
      SpecError: the shape of a dense or unranked leaf differs between rows.
    """
    out: list[Array] = []
    for value in decode_leaves(spec, rows, buffers):
        if isinstance(value, Ragged):
            out += [value.values, *value.row_splits]
        elif isinstance(value, Sparse):
            out += [value.indices, value.values, value.dense_shape]
        else:
            out.append(value)
    return tuple(out)


def from_arrays(
    generate: Callable[[], Iterator[tuple[Array, ...]]],
    spec: ElementSpec,
    leading: Leading,
    *,
    stacked: bool = False,
) -> tf.data.Dataset:
    """Return the dataset of the arrays that a generator yields, with the user's structure.

    Args:
      generate: returns an iterator over results of `components`.
      spec: of a row, or of a whole element.
      leading: see this module.
      stacked: each array has several batches, in a further leading dimension. All leaves are dense.
    """
    plain = all(leaf.kind == "dense" for leaf in spec.leaves) and _is_plain(spec.structure)
    types: Any = tuple(one for leaf in spec.leaves for one in _leaf_signature(leaf, leading))
    if plain:
        types = element_spec(spec, leading)
    if stacked:
        types = tf.nest.map_structure(
            lambda one: tf.TensorSpec([None, *one.shape], one.dtype, one.name), types
        )

    def produce() -> TrackedGenerator[Any]:
        # The generator adds the structure: a map would take a fifth of the time of a unit.
        return TrackedGenerator(map(spec.unflatten, generate()) if plain else generate())

    dataset = tf.data.Dataset.from_generator(produce, output_signature=types)
    if stacked:
        # `unbatch` did the same, but TensorFlow 2.21 crashed under MultiWorkerMirroredStrategy.
        slices = tf.data.Dataset.from_tensor_slices
        dataset = dataset.flat_map(
            (lambda *parts: slices(parts)) if isinstance(types, tuple) else slices
        )
    if plain:
        return dataset
    return dataset.map(lambda *parts: pack(spec, parts, leading))


def _is_plain(structure: Structure) -> bool:
    """Return whether tf.data regards all leaves of a structure as its components."""
    if isinstance(structure, Mapping):
        return all(map(_is_plain, structure.values()))
    if isinstance(structure, tuple):
        return all(map(_is_plain, structure))
    return isinstance(structure, int)  # not None, and not a list, which becomes one tensor


def pack(spec: ElementSpec, tensors: Sequence[tf.Tensor], leading: Leading) -> Any:
    """Return the user's structure of the flat tensors of `components`."""
    source = iter(tensors)
    leaves = []
    for leaf in spec.leaves:
        parts = [next(source) for _ in _leaf_signature(leaf, leading)]
        shape = [*leading, *leaf.shape]
        if leaf.kind == "unranked":
            leaves.append(parts[0])
        elif leaf.kind == "dense":
            leaves.append(tf.ensure_shape(parts[0], shape))
        elif leaf.kind == "sparse":
            leaves.append(_pack_sparse(shape, *parts))
        else:
            leaves.append(_pack_ragged(shape, parts[0], parts[1:]))
    return spec.unflatten(leaves)


def _pack_sparse(
    shape: list[int | None], indices: tf.Tensor, values: tf.Tensor, dense_shape: tf.Tensor
) -> tf.SparseTensor:
    # Known sizes are constants, so that the static shape is kept.
    sizes = [
        dense_shape[i] if size is None else tf.constant(size, tf.int64)
        for i, size in enumerate(shape)
    ]
    return tf.SparseTensor(indices, values, tf.stack(sizes) if sizes else dense_shape)


def _pack_ragged(
    shape: list[int | None], flat: tf.Tensor, splits: Sequence[tf.Tensor]
) -> tf.Tensor | tf.RaggedTensor:
    value = flat
    for level in reversed(range(len(splits))):
        uniform = shape[level + 1]
        if uniform is None:
            value = tf.RaggedTensor.from_row_splits(value, splits[level], validate=False)
            continue
        rows = tf.shape(splits[level], splits[level].dtype)[0] - 1
        if level == 0 and shape[0] is not None:
            rows = tf.constant(shape[0], splits[level].dtype)
        value = tf.RaggedTensor.from_uniform_row_length(
            value, tf.constant(uniform, splits[level].dtype), rows, validate=False
        )
    return value


def element_spec(spec: ElementSpec, leading: Leading) -> Any:
    """Return the nested TypeSpec of the result of `pack`: that of the trainer's dataset."""
    return type_specs.to_tf(spec, bool(leading), *leading)
