"""Guards around the ops that may fail for a record, so that a split continues without the record.

TensorFlow's `ignore_errors` also hides errors of storage, and does not return what it hides. An
error that passes a `batch` loses the whole batch, and a `TFRecordDataset` loses the rest of a file.
So a guard is behind each op that fails, before any other op gets the error:

- A map becomes a dataset of at most one element for each element of its input. If the function
  fails, a check in Python runs it again, and decides: to leave the record out, or to raise the
  error. If the function succeeds now, the record stays.
- A reader of TFRecords becomes a reader of the parts of each file between corrupt records.
- The check also decides about excluded records. Their functions do not run before.

The order of elements stays the same, and which records are left out depends on their content alone.
The guards cost time for each element, so they are only in splits that had an error.

This module is long because TensorFlow's functions have to be written node by node.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import (
    BATCHES,
    FLATTENS,
    MAPS,
    Scope,
    kind,
    main_scope,
)
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef
from distributed_input.graph.random import element_keys

_BOOL, _INT64, _STRING = (t.as_datatype_enum for t in (tf.bool, tf.int64, tf.string))
_VARIANT = tf.variant.as_datatype_enum
_LAST = 1 << 62
_BLOCK_CALLS = 4  # of a parallel map without a number of calls

CheckMap = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Sequence[tf.Tensor]], bool]
"""Gets a dataset of the one element for which a function failed, the name of the guard, the index
of the element in the input of the map, and strings: the file if it is known, and the element's.
Returns whether the element can be produced now. Raises an error that is not of the record."""
CheckFile = Callable[[tf.Tensor, tf.Tensor], tuple[Any, Any]]
"""Gets the name and the compression of a file. Returns the offsets of the parts of the file between
corrupt records, and the number of records in each."""


@dataclass(frozen=True)
class GuardedMap:
    """The map of a guard.

    Attributes:
        function: readable name of its function.
        types: types of the components of an element.
        shapes: shapes of the components.
        is_shared: whether all splits compute these elements, and select from them later.
        sources: number of strings that may name the file: the arguments of the function around it.
        has_random_order: whether the order of its input depends on the epoch.
        is_in_function: whether several datasets have it, for example one for each file.
    """

    function: str
    types: tuple[tf.DType, ...]
    shapes: tuple[tf.TensorShape, ...]
    is_shared: bool
    sources: int
    has_random_order: bool
    is_in_function: bool


@dataclass
class Guards:
    """What the guards of a graph are.

    Attributes:
        maps: the guarded maps by the names of their guards.
        readers: number of guarded readers.
        kept: objects that must live as long as the dataset.
    """

    maps: dict[str, GuardedMap] = field(default_factory=dict)
    readers: int = 0
    kept: list[Any] = field(default_factory=list)


def guard(
    graph_def: GraphDef,
    check_map: Callable[[Guards], CheckMap],
    check_file: CheckFile | None = None,
    excluded: Mapping[str, Collection[int]] = MappingProxyType({}),
) -> tuple[GraphDef, Guards]:
    """Return a graph with guards, and what they are.

    Args:
        graph_def: the graph of a split.
        check_map: returns the check of the guarded maps.
        check_file: finds corrupt records; None: readers have no guards.
        excluded: by the name of a function, the indexes of elements that may be excluded. The check
            gets them.
    """
    out = node_defs.copy_of(graph_def)
    guards = Guards()
    checks = _Checks(guards, check_map(guards), check_file)
    _Guarding(out, guards, checks, excluded).guard_main()
    return out, guards


class _Checks:
    """The Python functions that guards call, as TensorFlow's tokens."""

    def __init__(self, guards: Guards, check_map: CheckMap, check_file: CheckFile | None) -> None:
        def run_map(dataset: Any, name: Any, index: Any, *strings: Any) -> bool:
            return check_map(dataset, name, index, strings)

        self.map = _token(guards, run_map, tf.bool)
        self.file = None
        if check_file is not None:
            self.file = _token(guards, check_file, [tf.int64, tf.int64])


def _token(guards: Guards, function: Callable[..., Any], types: Any) -> bytes:
    """Return TensorFlow's name of a Python function, which exists as long as `guards`."""

    def call(value: tf.Tensor) -> Any:
        return tf.py_function(function, [value], types)

    traced = tf.function(call, autograph=False).get_concrete_function(tf.TensorSpec([], tf.string))
    guards.kept.append(traced)
    nodes = traced.graph.as_graph_def().node
    return bytes(next(node for node in nodes if node.op == "EagerPyFunc").attr["token"].s)


class _Guarding:
    """Guards the ops of a graph, and of the functions that create datasets, in place."""

    def __init__(
        self,
        graph_def: GraphDef,
        guards: Guards,
        checks: _Checks,
        excluded: Mapping[str, Collection[int]],
    ) -> None:
        self._graph_def, self._guards, self._checks = graph_def, guards, checks
        self._excluded = excluded
        self._library = node_defs.library(graph_def)
        self._done: set[str] = set()
        # Before anything changes: guards are other ops.
        self._rows = {"": _maps_of_rows(main_scope(graph_def))}
        for name, function in self._library.items():
            if function.signature.output_arg:
                self._rows[name] = _maps_of_rows(self._scope(function))

    def _scope(self, function: FunctionDef) -> Scope:
        output = function.ret[function.signature.output_arg[0].name]
        arguments = [argument.name for argument in function.signature.input_arg]
        return Scope(function.node_def, output, self._library, arguments)

    def guard_main(self) -> None:
        scope = main_scope(self._graph_def)
        selected: set[str] = set()
        for node in list(self._graph_def.node):
            if node.op == "ShardDataset":
                selected |= {one.name for one in node_defs.ancestors(scope.nodes, node)}
        nodes = _Nodes(self._graph_def.node, "")
        for node in list(self._graph_def.node):
            self._guard_node(nodes, node, node.name in selected, ())

    def _guard_function(self, name: str, is_shared: bool) -> None:
        function = self._library.get(name)
        if function is None or name in self._done or not function.signature.output_arg:
            return
        self._done.add(name)
        nodes = _Nodes(function.node_def, name)
        sources = [arg.name for arg in function.signature.input_arg if arg.type == _STRING]
        for node in list(function.node_def):
            self._guard_node(nodes, node, is_shared, sources)

    def _guard_node(
        self, nodes: _Nodes, node: NodeDef, is_shared: bool, sources: Sequence[str]
    ) -> None:
        if node.name in self._rows.get(nodes.function, ()):
            self._guard_map(nodes, node, is_shared, sources)
        elif node.op == "TFRecordDataset" and self._checks.file is not None:
            self._guard_reader(nodes, node)
        elif kind(node.op) in FLATTENS or "PartitionedCall" in node.op:
            for ref in node_defs.function_refs(node):
                self._guard_function(ref.name, is_shared)

    def _guard_map(
        self, nodes: _Nodes, node: NodeDef, is_shared: bool, sources: Sequence[str]
    ) -> None:
        called = self._library.get(node.attr["f"].func.name)
        inputs = node_defs.data_inputs(node)
        captured = list(node.attr["Targuments"].list.type)
        captures = inputs[1 : 1 + len(captured)]
        if called is None or len(called.signature.input_arg) == len(captured):
            return
        types = [argument.type for argument in called.signature.input_arg]
        types = types[: len(types) - len(captured)]
        name = nodes.path(node)
        self._guards.maps[name] = GuardedMap(
            node_defs.readable_name(node.attr["f"].func.name),
            tuple(map(tf.as_dtype, node.attr["output_types"].list.type)),
            tuple(map(tf.TensorShape, node.attr["output_shapes"].list.shape)),
            is_shared,
            len(sources),
            self._has_random_order(nodes, node),
            bool(nodes.function),
        )
        counted = nodes.counted(node, inputs[0], types)
        captured += [_STRING] * len(sources)
        function = self._element_function(name, node, types, captured, len(sources))
        calls = _parallel_calls(nodes, node, inputs)
        old, controls = tf.compat.v1.NodeDef(), node_defs.control_inputs(node)
        old.CopyFrom(node)
        node.op = "FlatMapDataset" if calls is None else "ParallelInterleaveDatasetV4"
        node.input[:] = [counted, *captures, *sources]
        node.attr.clear()
        _set_function(node, function, captured)
        _set_outputs(node, old)
        if calls is not None:
            # A dataset has at most one element, so they come in the order of the input.
            cycle = nodes.const(node, "cycle", calls)
            one, zero = nodes.const(node, "one", 1), nodes.const(node, "zero", 0)
            node.input.extend([cycle, one, one, zero, cycle])
            node.attr["deterministic"].s = b"true"
        node.input.extend(controls)

    def _has_random_order(self, nodes: _Nodes, node: NodeDef) -> bool:
        before = node_defs.ancestors(nodes.by_name(), node)[:-1]
        return any(map(element_keys.reorders, node_defs.with_called(self._library, before)))

    def _element_function(
        self, name: str, node: NodeDef, types: Sequence[int], captured: Sequence[int], sources: int
    ) -> str:
        """Return the function from an element and its index to a dataset without errors."""
        again = self._check_function(name, node, types, captured, sources)
        body = _Body(f"{_identifier(name)}_guarded", [*types, _INT64], captured)
        elements, index = body.arguments[: len(types)], body.arguments[len(types)]
        mapped = _mapped(body, node, elements, body.captures[: len(captured) - sources])
        if excluded := self._excluded.get(self._guards.maps[name].function):
            mapped = _unless(body, node, mapped, index, excluded)
        kept = body.add("IgnoreErrorsDataset", "kept", [mapped])
        _set_outputs(kept, node)
        failed = _tensors(body, "failed", [*elements, index], [*types, _INT64])
        checked = body.add("FlatMapDataset", "checked", [failed, *body.captures])
        _set_function(checked, again, captured)
        _set_outputs(checked, node)
        both = body.add("ConcatenateDataset", "both", ["kept:handle:0", "checked:handle:0"])
        _set_outputs(both, node)
        first = body.add("TakeDataset", "first", ["both:handle:0", body.const("one", 1)])
        _set_outputs(first, node)
        return self._add(body, "first:handle:0")

    def _check_function(
        self, name: str, node: NodeDef, types: Sequence[int], captured: Sequence[int], sources: int
    ) -> str:
        """Return the function from an element that failed to a dataset of it, or an empty one."""
        body = _Body(f"{_identifier(name)}_checked", [*types, _INT64], captured)
        elements, index = body.arguments[: len(types)], body.arguments[len(types)]
        own = body.captures[: len(captured) - sources]
        mapped = _mapped(body, node, elements, own)
        strings = [one for one, dtype in zip(elements, types, strict=True) if dtype == _STRING]
        inputs = [mapped, body.const("name", name, tf.string), index]
        inputs += [*body.captures[len(own) :], *strings]
        check = body.add("EagerPyFunc", "check", inputs)
        check.attr["token"].s = self._checks.map
        given = len(inputs) - 3
        check.attr["Tin"].list.type.extend([_VARIANT, _STRING, _INT64, *[_STRING] * given])
        check.attr["Tout"].list.type.append(_BOOL)
        check.attr["is_async"].b = False
        count = body.add("Cast", "count", ["check:output:0"])
        count.attr["SrcT"].type, count.attr["DstT"].type = _BOOL, _INT64
        taken = body.add("TakeDataset", "taken", [mapped, "count:y:0"])
        _set_outputs(taken, node)
        return self._add(body, "taken:handle:0")

    def _guard_reader(self, nodes: _Nodes, node: NodeDef) -> None:
        self._guards.readers += 1
        files, *options = node_defs.data_inputs(node)[:3]
        controls, name = node_defs.control_inputs(node), nodes.path(node)
        flat = nodes.add("Reshape", node, "files", [files, nodes.const(node, "all", [-1])])
        flat.attr["T"].type, flat.attr["Tshape"].type = _STRING, _INT64
        each = nodes.add("TensorSliceDataset", node, "each", [nodes.output(flat, "output")])
        each.attr["Toutput_types"].list.type.append(_STRING)
        each.attr["output_shapes"].list.shape.add()
        function = self._file_function(name)
        node.op = "FlatMapDataset"
        node.input[:] = [nodes.output(each, "handle"), *options, *controls]
        node.attr.clear()
        _set_function(node, function, [_STRING, _INT64])
        _set_record(node)

    def _file_function(self, name: str) -> str:
        part = self._part_function(name)
        body = _Body(f"{_identifier(name)}_file", [_STRING], [_STRING, _INT64])
        (file,), (compression, _) = body.arguments, body.captures
        check = body.add("EagerPyFunc", "check", [file, compression])
        check.attr["token"].s = self._checks.file
        check.attr["Tin"].list.type.extend([_STRING, _STRING])
        check.attr["Tout"].list.type.extend([_INT64, _INT64])
        check.attr["is_async"].b = False
        parts = body.add("TensorSliceDataset", "parts", ["check:output:0", "check:output:1"])
        parts.attr["Toutput_types"].list.type.extend([_INT64, _INT64])
        for _ in range(2):
            parts.attr["output_shapes"].list.shape.add()
        read = body.add("FlatMapDataset", "read", ["parts:handle:0", file, *body.captures])
        _set_function(read, part, [_STRING, _STRING, _INT64])
        _set_record(read)
        return self._add(body, "read:handle:0")

    def _part_function(self, name: str) -> str:
        # TensorFlow cannot write a TFRecordDatasetV2 to a graph, so it is in a function.
        body = _Body(f"{_identifier(name)}_part", [_INT64, _INT64], [_STRING, _STRING, _INT64])
        (offset, count), (file, compression, buffer) = body.arguments, body.captures
        offsets = body.add("Reshape", "offsets", [offset, body.const("all", [-1])])
        offsets.attr["T"].type, offsets.attr["Tshape"].type = _INT64, _INT64
        files = body.add("Reshape", "files", [file, "all:output:0"])
        files.attr["T"].type, files.attr["Tshape"].type = _STRING, _INT64
        inputs = ["files:output:0", compression, buffer, "offsets:output:0"]
        body.add("TFRecordDatasetV2", "records", inputs)
        taken = body.add("TakeDataset", "taken", ["records:handle:0", count])
        _set_record(taken)
        return self._add(body, "taken:handle:0")

    def _add(self, body: _Body, result: str) -> str:
        function = body.finish(result)
        self._graph_def.library.function.append(function)
        return str(function.signature.name)


class _Nodes:
    """The nodes of the graph, whose `function` is "", or of a function."""

    def __init__(self, nodes: Any, function: str) -> None:
        self._nodes, self.function = nodes, function

    def path(self, node: NodeDef) -> str:
        """Return a name of a node that no other node in the graph or its functions has."""
        return f"{self.function}/{node.name}" if self.function else str(node.name)

    def output(self, node: NodeDef, name: str) -> str:
        """Return the reference to the output of a node."""
        return f"{node.name}:{name}:0" if self.function else str(node.name)

    def add(self, op: str, of: NodeDef, part: str, inputs: Sequence[str]) -> NodeDef:
        """Add a node for the guard of a node."""
        return self._nodes.add(op=op, name=f"{of.name}/guard/{part}", input=inputs)

    def const(self, of: NodeDef, part: str, value: Any) -> str:
        """Add a constant for the guard of a node. Return the reference to its output."""
        name = f"{of.name}/guard/{part}"
        return self.output(node_defs.add_const(self._nodes, name, value, tf.int64), "output")

    def by_name(self) -> dict[str, NodeDef]:
        return node_defs.by_name(self._nodes)

    def value(self, name: str) -> Any:
        """Return the value of an input that is a constant of numbers, or None."""
        return node_defs.const_value(self.by_name().get(node_defs.source_of(name)))

    def counted(self, of: NodeDef, source: str, types: Sequence[int]) -> str:
        """Zip a dataset with the indexes of its elements. Return the reference to the result."""
        bounds = [self.const(of, part, at) for part, at in (("from", 0), ("to", _LAST))]
        numbers = self.add("RangeDataset", of, "numbers", [*bounds, self.const(of, "step", 1)])
        numbers.attr["output_types"].list.type.append(_INT64)
        numbers.attr["output_shapes"].list.shape.add()
        zipped = self.add("ZipDataset", of, "zip", [source, self.output(numbers, "handle")])
        zipped.attr["N"].i = 2
        zipped.attr["output_types"].list.type.extend([*types, _INT64])
        for _ in types:
            zipped.attr["output_shapes"].list.shape.add(unknown_rank=True)
        zipped.attr["output_shapes"].list.shape.add()
        return self.output(zipped, "handle")


class _Body:
    """A function from the components of an element, and captured values, to a dataset."""

    def __init__(self, name: str, types: Sequence[int], captured: Sequence[int]) -> None:
        self._function: FunctionDef = function_pb2.FunctionDef()
        signature = self._function.signature
        signature.name = name
        self.arguments = [f"component{number}" for number in range(len(types))]
        self.captures = [f"captured{number}" for number in range(len(captured))]
        for argument, dtype in zip(
            [*self.arguments, *self.captures], [*types, *captured], strict=True
        ):
            signature.input_arg.add(name=argument, type=dtype)
        signature.output_arg.add(name="dataset", type=_VARIANT)
        signature.is_stateful = True

    def add(self, op: str, name: str, inputs: Sequence[str]) -> NodeDef:
        return self._function.node_def.add(op=op, name=name, input=inputs)

    def const(self, name: str, value: Any, dtype: tf.DType = tf.int64) -> str:
        node_defs.add_const(self._function.node_def, name, value, dtype)
        return f"{name}:output:0"

    def finish(self, result: str) -> FunctionDef:
        self._function.ret["dataset"] = result
        return self._function


def _mapped(body: _Body, node: NodeDef, elements: Sequence[str], captures: Sequence[str]) -> str:
    """Add a map of one element to a function. Return the reference to it."""
    types = [
        argument.type
        for argument in body._function.signature.input_arg  # noqa: SLF001
        if argument.name in elements
    ]
    one = _tensors(body, "element", elements, types)
    mapped = body.add("MapDataset", "mapped", [one, *captures])
    for key in ("f", "Targuments", "output_types", "output_shapes"):
        mapped.attr[key].CopyFrom(node.attr[key])
    serial = "use_inter_op_parallelism"
    mapped.attr[serial].b = serial not in node.attr or node.attr[serial].b
    # Otherwise, an OutOfRangeError of the function would end the dataset.
    mapped.attr["preserve_cardinality"].b = True
    return "mapped:handle:0"


def _unless(body: _Body, node: NodeDef, mapped: str, index: str, excluded: Collection[int]) -> str:
    """Return the reference to a dataset, or to an empty one if the index is excluded."""
    body.const("excluded", sorted(excluded))
    equal = body.add("Equal", "equal", [index, "excluded:output:0"])
    equal.attr["T"].type = _INT64
    found = body.add("Any", "found", ["equal:z:0", body.const("axis", 0)])
    found.attr["Tidx"].type, found.attr["keep_dims"].b = _INT64, False
    body.add("LogicalNot", "included", ["found:output:0"])
    count = body.add("Cast", "number", ["included:y:0"])
    count.attr["SrcT"].type, count.attr["DstT"].type = _BOOL, _INT64
    taken = body.add("TakeDataset", "allowed", [mapped, "number:y:0"])
    _set_outputs(taken, node)
    return "allowed:handle:0"


def _tensors(body: _Body, name: str, inputs: Sequence[str], types: Sequence[int]) -> str:
    """Add a dataset of one element to a function. Return the reference to it."""
    node = body.add("TensorDataset", name, inputs)
    node.attr["Toutput_types"].list.type.extend(types)
    for _ in types:
        node.attr["output_shapes"].list.shape.add(unknown_rank=True)
    return f"{name}:handle:0"


def _set_function(node: NodeDef, function: str, captured: Sequence[int]) -> None:
    node.attr["f"].func.name = function
    node.attr["Targuments"].list.SetInParent()
    node.attr["Targuments"].list.type.extend(captured)


def _set_outputs(node: NodeDef, like: NodeDef) -> None:
    for key in ("output_types", "output_shapes"):
        node.attr[key].CopyFrom(like.attr[key])


def _set_record(node: NodeDef) -> None:
    node.attr["output_types"].list.type.append(_STRING)
    node.attr["output_shapes"].list.shape.add()


def _parallel_calls(nodes: _Nodes, node: NodeDef, inputs: Sequence[str]) -> int | None:
    """Return the number of parallel calls of a map; None if it calls its function serially."""
    if kind(node.op) != "ParallelMap":
        return None
    calls = nodes.value(inputs[-1])
    return int(calls) if calls is not None and calls > 0 else _BLOCK_CALLS


def _maps_of_rows(scope: Scope) -> frozenset[str]:
    """Return the names of the maps whose elements are no batches.

    An element of another map has rows that do not fail. They would be lost with those that do.
    """
    maps = (node for node in scope.nodes.values() if kind(node.op) in MAPS)
    return frozenset(node.name for node in maps if not _is_batched(scope, scope.input(node)))


def _is_batched(scope: Scope, node: NodeDef | None) -> bool:
    """Return whether the elements of a dataset are batches, or whether that is not known."""
    while node is not None:
        what = kind(node.op)
        if what in BATCHES or what == "Window":
            return True
        if what == "Unbatch":
            return False
        if what in FLATTENS:
            inner = scope.inner(node)
            return inner is None or _is_batched(inner, inner.output)
        below = scope.datasets(node)
        if node.op == "Identity" or element_keys.has_keys(node):  # a key is a batch of two numbers
            node = scope.input(node)
            continue
        if len(below) > 1:
            return any(_is_batched(scope, one) for one in below)
        node = below[0] if below else None
    return False


def _identifier(name: str) -> str:
    return "".join(char if char.isalnum() else "_" for char in name)
