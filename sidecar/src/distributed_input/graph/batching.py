"""Batch a dataset's rows into elements of a given size, and join batches of ragged and sparse rows.

TensorFlow returns a ragged or sparse component to Python through several ops, which costs more than
its rows if batches are small. Here, TensorFlow joins consecutive batches and takes their components
apart in C++. Python gets one element of numpy arrays for many rows. A component becomes a variant,
`Dataset.batch` joins variants, and `RaggedTensorFromVariant` joins their values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.api.errors import SpecError
from distributed_input.graph.analysis.batches import batch_size, drops_remainder, is_row_map
from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.datasets import MAPS, PASSES, kind, main_scope
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.rows.decode import Ragged, Sparse
from distributed_input.rows.elements import ElementSpec, Leaf, numpy_dtype


def can_batch(spec: ElementSpec, batched: bool) -> bool:
    """Return whether `batch_rows` keeps the rows of the dataset unchanged."""
    if not all(map(_has_kernel, spec.leaves)):
        return False
    return spec.is_static if batched else all(map(_can_batch, spec.leaves))


def batch_rows(
    dataset: tf.data.Dataset, spec: ElementSpec, batched: bool, rows: int
) -> tf.data.Dataset:
    """Return the dataset with `rows` rows in each element, for `make_encoder`.

    The last element may have fewer rows. Batches with at least `rows` rows are not changed.
    `can_batch` must return True for the spec of a row.
    """
    if batched:
        specs = component_specs(dataset)
        if (specs[0].shape[0] or 0) >= rows:
            return dataset
        # TensorFlow keeps batches of scalars as variants if they were made of ragged rows.
        dense = all(isinstance(spec, tf.TensorSpec) for spec in specs)
        return _rebatch(dataset, rows) if dense else dataset.rebatch(rows)
    return dataset.batch(rows) if spec.is_static else dataset.ragged_batch(rows)


def with_batch_size(graph_def: GraphDef, rows: int) -> GraphDef | None:
    """Return the graph of a split with `rows` rows in each element but the last, as a new graph.

    The worker changes the op that batches. To batch a dataset again copies each row once more, and
    each element costs every op behind the batch a wake-up of a thread. `prefetch` holds as many
    rows as before.

    None if the last op does not batch rows, apart from ops that keep elements and maps whose rows
    have the same bytes in any batch, or if the op drops the last rows.
    """
    main = main_scope(graph_def)
    passed, node = main.tail(PASSES | MAPS)
    if node is None or kind(node.op) not in ("Batch", "ParallelBatch"):
        return None
    if drops_remainder(main, node) is not False:
        return None
    maps = [one for one in passed if kind(one.op) in MAPS]
    if not all(is_row_map(main, one, exact=True) for one in maps):
        return None
    shapes = [shape for one in maps for shape in one.attr["output_shapes"].list.shape]
    if any(shape.dim and shape.dim[0].size >= 0 for shape in shapes):
        return None  # the number of rows is set, for example by set_shape
    sizes = {str(node.name): rows}
    before = batch_size(main, node) or rows
    for one in passed:
        elements = main.value(one, 1) if kind(one.op) == "Prefetch" else None
        if elements is not None and elements > 0:  # else AUTOTUNE
            sizes[str(one.name)] = max(1, int(elements) * before // rows)
    out = node_defs.copy_of(graph_def)
    nodes = node_defs.by_name(out.node)
    for name, size in sizes.items():
        nodes[name].input[1] = node_defs.add_const(out.node, f"{name}/size", size).name
    return out


def _rebatch(dataset: tf.data.Dataset, rows: int) -> tf.data.Dataset:
    """Rebatch a dataset of dense tensors.

    `Dataset.rebatch` also converts components that are not dense: it would trace a function for
    each split, and call it for each element.
    """
    spec = tf.nest.map_structure(_of_any_rows, dataset.element_spec)
    parts = [_of_any_rows(part) for part in component_specs(dataset)]
    return serialization.derive(
        dataset,
        tf.raw_ops.RebatchDatasetV2,
        spec,
        batch_sizes=tf.constant([rows], tf.int64),
        drop_remainder=False,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
    )


def _of_any_rows(spec: tf.TypeSpec) -> tf.TypeSpec:
    if isinstance(spec, NoneTensorSpec):
        return spec
    return tf.TensorSpec([None, *spec.shape[1:]], spec.dtype)


def _has_kernel(leaf: Leaf) -> bool:
    """Return whether TensorFlow can copy a tensor into a batch: not float8, float4, int4, uint4."""
    return leaf.is_string or leaf.dtype == "bfloat16" or numpy_dtype(leaf.dtype).isbuiltin == 1


def _can_batch(leaf: Leaf) -> bool:
    if leaf.kind in ("ragged", "unranked"):
        return leaf.kind == "ragged"
    # A batch has one shape. Only the first dimension of the rows may differ: it becomes ragged.
    unknown = leaf.shape[1:] if leaf.kind == "dense" else leaf.shape
    return None not in unknown


Leaves = Callable[[Sequence[tf.Tensor]], list[Any]]
"""From the components of a joined element to the leaves of its rows, for `make_encoder`."""


def can_join(row: ElementSpec, dataset: tf.data.Dataset | None = None) -> bool:
    """Return whether batches of these rows can be joined, and need it.

    Without a dataset, only the rows are known.
    """
    if row.is_static or not all(map(_can_join, row.leaves)):
        return False
    # TensorFlow keeps a RaggedTensorSpec without ragged dimensions as a variant of its own kind.
    specs = component_specs(dataset) if dataset is not None else []
    return all(getattr(spec, "ragged_rank", 1) for spec in specs)


def _can_join(leaf: Leaf) -> bool:
    has_kernel = leaf.is_string or numpy_dtype(leaf.dtype).isbuiltin == 1
    known = leaf.kind == "ragged" or (leaf.kind != "unranked" and None not in leaf.shape)
    return known and has_kernel


def component_specs(dataset: tf.data.Dataset) -> list[tf.TypeSpec]:
    """Return the specs of a dataset's components."""
    specs = tf.nest.flatten(dataset.element_spec)
    return [spec for spec in specs if not isinstance(spec, NoneTensorSpec)]


def static_batch_size(dataset: tf.data.Dataset) -> int | None:
    """Return the number of rows of every batch, if a component's spec has it."""
    shapes = (spec.shape for spec in component_specs(dataset))
    return next((shape[0] for shape in shapes if shape.rank and shape[0] is not None), None)


def join(dataset: tf.data.Dataset, count: int, calls: int = 0) -> tuple[tf.data.Dataset, Leaves]:
    """Return a dataset whose elements have the rows of `count` batches, and their leaves.

    The last element may have fewer batches. `calls`: see `map_traced`.
    """
    specs = tuple(component_specs(dataset))
    if count == 1:
        joined = map_traced(dataset, _flat_function(specs), calls)
    else:
        split, merge = _functions(specs)
        joined = map_traced(map_traced(dataset, split, calls).batch(count), merge, calls)
    return joined, functools.partial(_leaves, specs)


@functools.lru_cache(maxsize=64)
def _flat_function(specs: tuple[tf.TypeSpec, ...]) -> Any:
    """Return the function that takes the components of one batch apart."""
    return trace(functools.partial(_flatten, specs), [_component(spec) for spec in specs])


def _flatten(specs: Sequence[tf.TypeSpec], *components: tf.Tensor) -> list[tf.Tensor]:
    """Return what `_merge` returns for one batch."""
    parts: list[tf.Tensor] = []
    for spec, component in zip(specs, components, strict=True):
        if isinstance(spec, tf.RaggedTensorSpec):
            parts += _from_variant(component, spec, spec.ragged_rank)
        elif isinstance(spec, tf.SparseTensorSpec):
            indices, values, shape = _from_sparse(component, spec)
            count = tf.shape(values, tf.int64)
            parts += [tf.pad(count, [[1, 0]]), indices, values, shape[tf.newaxis]]
        else:
            parts.append(component)
    return parts


@functools.lru_cache(maxsize=64)
def _functions(specs: tuple[tf.TypeSpec, ...]) -> tuple[Any, Any]:
    """Return the functions that split and merge components. Tracing takes milliseconds."""
    split = trace(functools.partial(_split, specs), [_component(spec) for spec in specs])
    variants = [tf.TensorSpec([None, *part.shape], part.dtype) for part in split.outputs]
    return split, trace(functools.partial(_merge, specs), variants)


def trace(function: Callable[..., Any], signature: Sequence[tf.TensorSpec]) -> Any:
    traced = tf.function(function, input_signature=signature, autograph=False)
    return traced.get_concrete_function()


def _component(spec: tf.TypeSpec) -> tf.TensorSpec:
    """Return how a dataset keeps a component."""
    if isinstance(spec, tf.RaggedTensorSpec | tf.SparseTensorSpec):
        return tf.TensorSpec(None, tf.variant)  # a batch, or a vector of its rows
    return tf.TensorSpec(spec.shape, spec.dtype)


def _split(specs: Sequence[tf.TypeSpec], *components: tf.Tensor) -> list[tf.Tensor]:
    """Return a scalar variant for each component, and for a sparse one also its dense shape."""
    parts: list[tf.Tensor] = []
    for spec, component in zip(specs, components, strict=True):
        if isinstance(spec, tf.RaggedTensorSpec):
            *splits, values = _from_variant(component, spec, spec.ragged_rank)
            parts.append(_variant(values, splits))
        elif isinstance(spec, tf.SparseTensorSpec):
            indices, values, shape = _from_sparse(component, spec)
            parts += [_variant(indices), _variant(values), shape]
        else:
            parts.append(_variant(component))
    return parts


def _merge(specs: Sequence[tf.TypeSpec], *parts: tf.Tensor) -> list[tf.Tensor]:
    """Return dense tensors: the parts of consecutive batches, one after the other."""
    rest = iter(parts)
    merged: list[tf.Tensor] = []
    for spec in specs:
        if isinstance(spec, tf.RaggedTensorSpec):
            merged += _from_variant(next(rest), spec, spec.ragged_rank + 1)[1:]
        elif isinstance(spec, tf.SparseTensorSpec):
            indices = tf.TensorSpec([None, spec.shape.rank], tf.int64)
            merged += _from_variant(next(rest), indices, 1)
            merged.append(_from_variant(next(rest), tf.TensorSpec([None], spec.dtype), 1)[1])
            merged.append(next(rest))
        else:
            values = _from_variant(next(rest), spec, 1)[1]
            merged.append(values)
    return merged


def _from_sparse(component: tf.Tensor, spec: tf.SparseTensorSpec) -> tuple[tf.Tensor, ...]:
    """Return the indices, the values and the dense shape."""
    parts = tf.raw_ops.DeserializeSparse(serialized_sparse=component, dtype=spec.dtype)
    rank = spec.shape.rank
    shapes = [None, rank], [None], [rank]
    return tuple(tf.ensure_shape(part, shape) for part, shape in zip(parts, shapes, strict=True))


def _variant(values: tf.Tensor, splits: Sequence[tf.Tensor] = ()) -> tf.Tensor:
    """Return a ragged tensor as a scalar. A dense one has no ragged dimensions."""
    return tf.raw_ops.RaggedTensorToVariant(
        rt_nested_splits=list(splits), rt_dense_values=values, batched_input=False
    )


def _from_variant(
    variants: tf.Tensor, spec: tf.TensorSpec | tf.RaggedTensorSpec, ragged_rank: int
) -> list[tf.Tensor]:
    """Return the row splits of a ragged tensor, outermost first, and its values.

    `spec` is that of one ragged tensor, and `ragged_rank` that of the result.
    """
    is_ragged = isinstance(spec, tf.RaggedTensorSpec)
    splits, values = tf.raw_ops.RaggedTensorFromVariant(
        encoded_ragged=variants,
        input_ragged_rank=-1,  # the other dimensions of `variants`
        output_ragged_rank=ragged_rank,
        Tvalues=spec.dtype,
        Tsplits=spec.row_splits_dtype if is_ragged else tf.int64,
    )
    inner = spec.shape[spec.ragged_rank + 1 :] if is_ragged else spec.shape[1:]
    return [*splits, tf.ensure_shape(values, [None, *inner])]


def _leaves(specs: Sequence[tf.TypeSpec], parts: Sequence[tf.Tensor]) -> list[Any]:
    arrays: Iterator[Any] = (part.__array__() for part in parts)
    leaves: list[Any] = []
    for spec in specs:
        if isinstance(spec, tf.RaggedTensorSpec):
            splits = tuple(next(arrays) for _ in range(spec.ragged_rank))
            leaves.append(Ragged(next(arrays), splits))
        elif isinstance(spec, tf.SparseTensorSpec):
            leaves.append(_sparse(*(next(arrays) for _ in range(4))))
        else:
            leaves.append(next(arrays))
    return leaves


def _sparse(ends: Any, indices: Any, values: Any, shapes: Any) -> Sparse:
    """Return one sparse tensor of consecutive batches.

    `ends` has the end of each batch in the indices, after a zero. `shapes` has the dense shape of
    each batch.
    """
    if (shapes[:, 1:] != shapes[0, 1:]).any():
        raise SpecError(f"batches of a sparse component have the shapes {shapes[:, 1:].tolist()}")
    before = np.cumsum(shapes[:, 0]) - shapes[:, 0]
    if len(shapes) > 1:
        indices = indices.copy()
        indices[:, 0] += np.repeat(before, np.diff(ends))
    rows = shapes[:, 0].sum()
    return Sparse(indices, values, np.array([rows, *shapes[0, 1:]], np.int64))


def map_traced(dataset: tf.data.Dataset, function: Any, calls: int = 0) -> tf.data.Dataset:
    """Return a dataset mapped by a traced function, in `calls` parallel calls; 0: in its thread.

    `Dataset.map` would trace the function for each split. AUTOTUNE would begin with a call, and a
    buffer, for each thread of the dataset's pool: of each split, dozens of elements would wait.
    """
    parts = function.outputs
    parallel = {"num_parallel_calls": calls, "deterministic": "true"} if calls else {}
    return serialization.derive(
        dataset,
        tf.raw_ops.ParallelMapDatasetV2 if calls else tf.raw_ops.MapDataset,
        tuple(tf.TensorSpec(part.shape, part.dtype) for part in parts),
        **parallel,
        other_arguments=[],
        f=function,
        output_types=[part.dtype for part in parts],
        output_shapes=[part.shape for part in parts],
        use_inter_op_parallelism=False,
        preserve_cardinality=True,
    )
