"""An optional TensorFlow op that encodes elements in TensorFlow's threads, without Python objects.

Its source is in `sidecar/native`. Without the library, `rows.encode` encodes the elements. Both
give the same bytes and the same hashes. The op returns nothing for an element that needs a sort, or
that does not match the spec. Then `rows.encode` encodes the element, or raises its error.

The op's attribute `plan` has for each leaf: kind, bytes of a number (0: strings), ragged rank,
whether all sizes are known, rank, and the sizes of a row (-1: unknown). For a ragged leaf, these
are the sizes of one flat value. The op's result begins with int64 values: number of rows, number of
buffers, begin of the hashes, and the begin and the end of each buffer. These are -1 for a buffer
that is the component itself, which is not copied.
"""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distributed_input.api.environment import NATIVE_OPS_ENV
from distributed_input.graph import batching
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.encode import Encoder, make_encoder
from distributed_input.rows.runs import Bytes, as_bytes
from distributed_input.runtime import logs

_log = logs.get("graph.native_ops")
_LIBRARY = Path(__file__).with_name("_native_ops.so")
_DENSE, _RAGGED, _SPARSE, _RAGGED_BATCH = range(4)
_HEADER_BYTES = 24


class EncodedRows(NamedTuple):
    """The rows of an element: their number, their buffers, and their hashes, if they are known."""

    rows: int
    buffers: list[Bytes]
    hashes: NDArray[np.uint64] | None = None


@functools.cache
def library() -> Any:
    """Return the module of the ops. None if there is no library for this machine, or it is off."""
    if os.environ.get(NATIVE_OPS_ENV) == "0":
        cause = f"{NATIVE_OPS_ENV} is 0"
    elif not _LIBRARY.exists():
        cause = "this installation has no library of native ops"
    else:
        try:
            return tf.load_op_library(str(_LIBRARY))
        except (tf.errors.OpError, OSError, RuntimeError) as error:
            cause = str(error)
    _log.info("rows are encoded in Python, which takes more CPU", cause=cause)
    return None


def pack(
    dataset: tf.data.Dataset,
    row: ElementSpec,
    specs: Sequence[tf.TypeSpec],
    leaves_of: batching.Leaves | None = None,
    calls: int = 0,
) -> tuple[tf.data.Dataset, Callable[[Any], EncodedRows]] | None:
    """Return a dataset of lists of tensors, and the encoder of its elements.

    None if there is no library, or if it does not support the rows.

    Args:
        dataset: batches of rows.
        row: spec of a row.
        specs: specs of the components of a batch.
        leaves_of: from an element to its leaves, if `batching.join` returned the dataset.
        calls: see `batching.map_traced`.
    """
    plan = plan_of(row, specs)
    is_flat = leaves_of is not None or all(isinstance(spec, tf.TensorSpec) for spec in specs)
    if plan is None or not is_flat or library() is None:
        return None
    parts = tuple(tf.TensorSpec(s.shape, s.dtype) for s in batching.component_specs(dataset))
    packed = batching.map_traced(dataset, _function(parts, plan), calls)
    in_python = make_encoder(row, True, leaves_of or list)
    return packed, functools.partial(unpack, in_python, passed_of(row, specs))


def plan_of(row: ElementSpec, specs: Sequence[tf.TypeSpec]) -> tuple[int, ...] | None:
    """Return the plan of the op for batches; None if it does not support the rows."""
    if len(row.leaves) != len(specs):
        return None
    plan: list[int] = []
    for leaf, spec in zip(row.leaves, specs, strict=True):
        kind = _kind(leaf, spec)
        if kind is None or spec.dtype.name != leaf.dtype:
            return None
        sizes = leaf.inner_shape if kind == _RAGGED else leaf.shape[kind == _RAGGED_BATCH :]
        item_bytes = 0 if leaf.is_string else leaf.itemsize
        plan += [kind, item_bytes, leaf.ragged_rank, leaf.is_static, len(sizes)]
        plan += [-1 if size is None else size for size in sizes]
    return tuple(plan)


def _kind(leaf: Leaf, spec: tf.TypeSpec) -> int | None:
    if isinstance(spec, tf.TensorSpec):
        return _DENSE if leaf.kind == "dense" else None
    if isinstance(spec, tf.SparseTensorSpec):
        return _SPARSE if leaf.kind == "sparse" else None
    if not isinstance(spec, tf.RaggedTensorSpec):
        return None
    if leaf.kind == "ragged":
        return _RAGGED if spec.ragged_rank == leaf.ragged_rank + 1 else None
    is_batch = leaf.kind == "dense" and leaf.shape[:1] == (None,) and None not in leaf.shape[1:]
    return _RAGGED_BATCH if is_batch and spec.ragged_rank == 1 else None


def passed_of(row: ElementSpec, specs: Sequence[tf.TypeSpec]) -> list[int]:
    """Return the indices in an element of the components that are buffers themselves."""
    passed: list[int] = []
    at = 1
    for leaf, spec in zip(row.leaves, specs, strict=True):
        if leaf.is_static and not leaf.is_string:
            passed.append(at)
        # What `batching.join` returns for a component.
        is_ragged = isinstance(spec, tf.RaggedTensorSpec)
        at += spec.ragged_rank + 1 if is_ragged else 4 if leaf.kind == "sparse" else 1
    return passed


@functools.lru_cache(maxsize=64)
def _function(parts: tuple[tf.TensorSpec, ...], plan: tuple[int, ...]) -> Any:
    """Return the function from components to the packed rows and the same components."""

    def run(*components: tf.Tensor) -> list[tf.Tensor]:
        packed = library().distributed_input_pack(components=list(components), plan=list(plan))
        return [tf.ensure_shape(packed, [None]), *components]

    return batching.trace(run, parts)


def unpack(in_python: Encoder, passed: Sequence[int], element: Sequence[tf.Tensor]) -> EncodedRows:
    """Return the rows of an element: the result of the op, and the components.

    Args:
        in_python: encodes the components, if the op did not.
        passed: see `passed_of`.
        element: the tensors.

    Raises:
        SpecError: the element does not match the spec.
    """
    packed: Bytes = element[0].__array__()
    if not packed.size:
        return EncodedRows(*in_python(element[1:]))
    rows, count, begin = packed[:_HEADER_BYTES].view(np.int64).tolist()
    bounds = iter(packed[_HEADER_BYTES:begin].view(np.int64).tolist())
    components = iter(passed)
    buffers = [
        packed[start:end] if start >= 0 else as_bytes(element[next(components)].__array__())
        for start, end in itertools.islice(zip(bounds, bounds, strict=True), count)
    ]
    return EncodedRows(rows, buffers, packed[begin : begin + 8 * rows].view(np.uint64))
