"""Shards that are pushed to their sources.

`dataset.shard(n, i)` reads all elements of its input and drops all but one of n. If each of these
elements comes from one element of `range` or `from_tensor_slices`, the source can begin at element
i and continue in steps of n. It makes no other element then. The elements and their order are the
same.
"""

from __future__ import annotations

from typing import NamedTuple

import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import PASSES, Scope, kind, main_scope
from distributed_input.graph.definition.node_defs import GraphDef, NodeDef

_FAR = 2**60
"""No dataset is read as far as the element with this index."""
_MAX_INT64 = 2**63 - 1
_MAX_RANK = 7  # of what StridedSlice takes
_SLICED = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64"
    " complex64 complex128 string".split()
)


class _Picked(NamedTuple):
    """The elements begin, begin + step, … of a dataset, those before `end`."""

    begin: int = 0
    end: int = _FAR
    step: int = 1


class _NotPushedError(Exception):
    """The elements of a dataset do not come from single elements of known sources."""


def push(graph_def: GraphDef) -> GraphDef:
    """Return a graph whose shards and skips are pushed to their sources, where that is possible.

    This is the last change before a dataset is made: the fingerprint, the seeds and the selections
    of a split need the shards. Returns the same graph if nothing is pushed.
    """
    out = node_defs.copy_of(graph_def)
    main = main_scope(out)
    is_pushed = False
    for root in list(out.node):
        if kind(root.op) in ("Shard", "Skip") and (made := _try(main, root)):
            *below, top = made
            top.name = root.name
            root.CopyFrom(top)
            out.node.extend(below)
            main = main_scope(out)
            is_pushed = True
    if not is_pushed:
        return graph_def
    used = {node.name for node in node_defs.ancestors(main.nodes, node_defs.retval(out))}
    for index in reversed(range(len(out.node))):
        if out.node[index].name not in used:
            del out.node[index]
    return out


def can_push(main: Scope, shard: NodeDef) -> bool:
    """Return whether `push` pushes a shard of the graph to its source."""
    return bool(_try(main, shard))


def _try(main: Scope, root: NodeDef) -> list[NodeDef]:
    """Return the nodes that replace a root, its own one last; [] if it cannot be pushed."""
    walk = _Walk(main, root.name)
    try:
        walk.pick(root, _Picked())
    except _NotPushedError:
        return []
    return walk.made


class _Walk:
    """Makes nodes that return some of the elements of existing ones.

    `made` has the new nodes, in an order in which inputs come first.
    """

    def __init__(self, main: Scope, name: str) -> None:
        self.made: list[NodeDef] = []
        self._main, self._name = main, name

    def pick(self, node: NodeDef | None, picked: _Picked) -> str:
        """Return the name of a new dataset with the picked elements of a node.

        Raises:
            _NotPushedError: that is not possible.
        """
        if node is None or max(picked.begin, picked.step) >= _FAR:
            raise _NotPushedError
        one = kind(node.op)
        if one == "Range":
            return self._range(node, picked)
        if one == "TensorSlice":
            return self._slices(node, picked)
        if one in ("Shard", "Skip", "Take"):
            return self.pick(self._main.input(node), self._through(node, picked))
        if node.op == "Identity":
            return self.pick(self._main.input(node), picked)
        if one == "Zip":
            names = map(node_defs.source_of, node_defs.data_inputs(node))
            return self._copy(node, [self.pick(self._main.nodes.get(one), picked) for one in names])
        if one in PASSES:
            return self._copy(node, [self.pick(self._main.input(node), picked)])
        raise _NotPushedError

    def _through(self, node: NodeDef, picked: _Picked) -> _Picked:
        """Return the elements of a node's input for those of the node."""
        begin, end, step = picked
        first, second = self._main.value(node, 1), self._main.value(node, 2)
        if first is None:
            raise _NotPushedError
        count = int(first)
        if kind(node.op) == "Take":
            return _Picked(begin, end if count < 0 else min(end, count), step)
        if kind(node.op) == "Skip":
            if count < 0:  # all
                raise _NotPushedError
            return _Picked(begin + count, end + count, step)
        is_valid = second is not None and 0 <= int(second) < count
        if not is_valid or node.attr["require_non_empty"].b:  # an error for some splits
            raise _NotPushedError
        index = int(second)
        return _Picked(index + begin * count, index + end * count, step * count)

    def _range(self, node: NodeDef, picked: _Picked) -> str:
        values = [self._main.value(node, index) for index in range(3)]
        if any(value is None for value in values) or not values[2]:
            raise _NotPushedError
        start, stop, by = map(int, values)
        count = max(0, -((start - stop) // by))
        taken = max(0, -((picked.begin - min(picked.end, count, _FAR)) // picked.step))
        sign = 1 if by > 0 else -1
        first, step = start + picked.begin * by, by * picked.step
        if taken <= 1:  # the numbers could be too large
            first, step = (first if taken == 1 else 0), sign
        last = first + (taken - 1) * step
        if abs(last + step) > _MAX_INT64:  # TensorFlow adds the step before it compares
            raise _NotPushedError
        bounds = first, last + sign, step
        return self._copy(node, [self._const(value) for value in bounds])

    def _slices(self, node: NodeDef, picked: _Picked) -> str:
        if picked.step == 1 and picked.begin:
            raise _NotPushedError  # it may copy almost all of a large array
        types = node.attr["Toutput_types"].list.type
        shapes = node.attr["output_shapes"].list.shape
        bounds = [self._const([one]) for one in (picked.begin, min(picked.end, _FAR), picked.step)]
        inputs = []
        for name, dtype, shape in zip(node.input, types, shapes, strict=True):
            is_known = not shape.unknown_rank and len(shape.dim) < _MAX_RANK
            if not is_known or not can_slice(tf.dtypes.as_dtype(dtype)):
                raise _NotPushedError
            part = tf.compat.v1.NodeDef(op="StridedSlice", input=[name, *bounds])
            part.attr["T"].type = dtype
            part.attr["Index"].type = tf.int64.as_datatype_enum
            inputs.append(self._add(part))
        return self._copy(node, inputs)

    def _copy(self, node: NodeDef, inputs: list[str]) -> str:
        """Add a copy of a node whose first inputs are others."""
        made = tf.compat.v1.NodeDef()
        made.CopyFrom(node)
        made.input[: len(inputs)] = inputs
        return self._add(made)

    def _const(self, value: object) -> str:
        return str(node_defs.add_const(self.made, self._next(), value).name)

    def _add(self, made: NodeDef) -> str:
        made.name = self._next()
        self.made.append(made)
        return str(made.name)

    def _next(self) -> str:
        return f"{self._name}/pushed_{len(self.made)}"


def can_slice(dtype: tf.DType) -> bool:
    """Return whether TensorFlow can slice tensors of a type: not int4, for example."""
    return dtype.name in _SLICED
