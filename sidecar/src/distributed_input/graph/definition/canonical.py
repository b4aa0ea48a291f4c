"""The canonical form of a graph: equal in all runs of a program, so its hash names the dataset.

TensorFlow's graphs differ between runs in counters and in the names of resources. The canonical
form names nodes, functions and resources in the order in which they are reached from the dataset.
It does not refer to objects of the exporting process. Seed generators and caches get unused names,
so every instance creates its own. Tables and variables are named by a hash of their content.
"""

from __future__ import annotations

import copy
import hashlib
import re

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.lookup_tables import inline_tables
from distributed_input.graph.definition.node_defs import PYTHON_OPS, FunctionDef, GraphDef, NodeDef
from distributed_input.graph.definition.random_ops import is_unseeded

FINGERPRINT_VERSION = f"{tf.__version__}/3"
"""Fingerprints are comparable if this is equal: TensorFlow's graphs, and their canonical form."""
_COUNTER = re.compile(r"(_\d+)+$")
_COUNTERS = re.compile(r"(_\d+)+(?=/|$)")
# A captured variable is called after its path, with "_" instead of "/".
_ARGUMENT_COUNTERS = re.compile(r"(_\d+)+(?=_|/|$)")
_COLOCATED = b"loc:@"
_PLACE = re.compile(r"^.*?(/device:)")
_FUNCTION_NOISE = ("forward_function_name", "backward_function_name")
_HOLDERS = frozenset(
    "HashTable HashTableV2 MutableHashTable MutableHashTableV2 MutableHashTableOfTensors"
    " MutableHashTableOfTensorsV2 MutableDenseHashTable MutableDenseHashTableV2"
    " VarHandleOp".split()
)
_MAX_FUNCTIONS = 20_000
_HANDLE = "distributed-input/none/"


def serialize(dataset: tf.data.Dataset) -> GraphDef:
    """Return a dataset's graph in canonical form, with lookup tables and variables by value.

    Raises:
      DatasetFnError: TensorFlow cannot serialize it; the message explains what to do.
    """
    graph_def = serialization.serialize_raw(dataset)
    inline_tables(graph_def)
    return canonicalize(graph_def)


def canonicalize(graph_def: GraphDef) -> GraphDef:
    """Return the graph in canonical form; a canonical graph does not change.

    A function with unseeded random ops is copied for each call. In TensorFlow its calls are
    independent of each other, which they would not be when the ops get seeds.

    Raises:
      DatasetFnError: the dataset uses an object of this process.
    """
    source = node_defs.copy_of(graph_def)
    nodes = node_defs.by_name(source.node)
    order = node_defs.ancestors(nodes, node_defs.retval(source))
    _reject_resources(nodes, order)
    _name_resources(nodes, order)
    _rename_nodes(order)
    functions = _Functions(source)
    functions.visit(order)
    out = tf.compat.v1.GraphDef(versions=source.versions)
    numbers: _Numbers = {}
    for node in order:
        _tidy(node, numbers)
        out.node.append(node)
    for function in functions.out:
        for key in _FUNCTION_NOISE:
            function.attr.pop(key, None)
        for node in function.node_def:
            _tidy(node, numbers)
        out.library.function.append(function)
    return out


def _reject_resources(nodes: dict[str, NodeDef], order: list[NodeDef]) -> None:
    """Reject objects of this process, except those that tf.data creates if they are missing."""
    for node in order:
        definition = node_defs.op_def(node.op)
        for i, name in enumerate(node_defs.data_inputs(node)):
            handle = nodes[node_defs.source_of(name)]
            if not _is_resource(handle):
                continue
            arguments = definition.input_arg if definition is not None else ()
            if i < len(arguments) and arguments[i].name in ("seed_generator", "cache"):
                continue
            kinds = handle.attr["value"].tensor.resource_handle_val
            kind = re.sub(r"^N?[\dE]+|\d+", " ", kinds[0].maybe_type_name).strip("E ")
            raise DatasetFnError(
                f"the dataset uses an object of this process ({kind or 'a resource'}, in a"
                f" {node.op}), which cannot be sent to workers: make it inside the dataset, or move"
                " the dataset to an entry point (package.module:function) in the workers' image"
            )


def _is_resource(node: NodeDef) -> bool:
    return node.op == "Const" and node.attr["dtype"].type == tf.resource.as_datatype_enum


def _name_resources(nodes: dict[str, NodeDef], order: list[NodeDef]) -> None:
    """Name tables and variables by their content: equal ones may be shared."""
    for table in order:
        if table.op not in _HOLDERS:
            continue
        digest = hashlib.blake2b(digest_size=16)
        users = [n for n in order if any(node_defs.source_of(i) == table.name for i in n.input)]
        table.attr["shared_name"].s = b""
        if "use_node_name_sharing" in table.attr:
            table.attr["use_node_name_sharing"].b = False
        for node in (table, *users):
            if node is table or node.op.startswith(("LookupTable", "InitializeTable", "Assign")):
                inputs = [nodes[node_defs.source_of(name)] for name in node.input]
                for part in (node, *(n for n in inputs if n.op == "Const")):
                    bare = tf.compat.v1.NodeDef()
                    bare.CopyFrom(part)
                    bare.ClearField("name")
                    bare.ClearField("input")
                    bare.ClearField("device")
                    digest.update(node_defs.to_bytes(bare))
        table.attr["shared_name"].s = b"distributed-input/" + digest.hexdigest().encode()


def _rename_nodes(order: list[NodeDef]) -> None:
    names = {node.name: f"{node.op}_{i}" for i, node in enumerate(order) if node.op != "_Retval"}
    for node in order:
        node.name = names.get(node.name, "dataset")
        for i, name in enumerate(node.input):
            old = node_defs.source_of(name)
            node.input[i] = name.replace(old, names[old], 1)


class _Functions:
    """The functions of a graph, renamed in the order of their calls."""

    def __init__(self, source: GraphDef) -> None:
        self._library = node_defs.library(source)
        self._called = {node.op for node in node_defs.all_nodes(source)}
        self._names: dict[str, str] = {}
        named = {name: node_defs.by_name(f.node_def) for name, f in self._library.items()}
        self._unseeded = node_defs.functions_with(
            self._library, lambda function, node: is_unseeded(named[function.signature.name], node)
        )
        self.out: list[FunctionDef] = []

    def visit(self, nodes: list[NodeDef]) -> None:
        """Rename the functions that these nodes call, in place."""
        for node in nodes:
            if node.op in self._library:
                node.op = self._resolve(node.op)
            for ref in node_defs.function_refs(node):
                ref.name = self._resolve(ref.name)

    def _resolve(self, name: str) -> str:
        if name not in self._library:
            return name
        own_copy = name in self._unseeded and len(self.out) < _MAX_FUNCTIONS
        if name in self._names and not own_copy:
            return self._names[name]
        function = copy.deepcopy(self._library[name])
        function.signature.name = f"{_COUNTER.sub('', name)}_{len(self.out)}"
        self._names[name] = function.signature.name
        self.out.append(function)
        rename_body(function, name not in self._called)
        self.visit(function.node_def)
        return str(function.signature.name)


_Numbers = dict[tuple[str, str | bytes], int]
"""Numbers for names of each kind, in the order in which the names appear."""


def _tidy(node: NodeDef, numbers: _Numbers) -> None:
    node.ClearField("experimental_debug_info")
    node.device = _PLACE.sub(r"\1", node.device)  # no job, no task of the exporting process
    # TensorFlow leaves "/device::0" for a py_function, which it cannot parse.
    if node.device.startswith(("/device:CPU", "/device::")):
        node.device = ""
    metadata = node.attr["metadata"].s if "metadata" in node.attr else b""
    if metadata:  # a Metadata message: nodes of the same dataset object have the same name
        name = f"{node.op}:{numbers.setdefault(('dataset', metadata), len(numbers))}".encode()
        node.attr["metadata"].s = b"\n" + bytes((len(name),)) + name
    if _is_resource(node):
        for handle in node.attr["value"].tensor.resource_handle_val:
            number = numbers.setdefault(("handle", handle.name), len(numbers))
            handle.name = f"{_HANDLE}{number}"
            handle.ClearField("device")
            handle.ClearField("hash_code")
            handle.ClearField("maybe_type_name")


def rename_body(function: FunctionDef, outputs: bool) -> None:
    """Rename a function's arguments and nodes by their base names and order, in place.

    Its results keep their names without `outputs`: the function is called as an op, whose outputs
    have these names.
    """
    names = _body_names(function)
    signature = function.signature
    for argument in signature.input_arg:
        argument.name = names[argument.name]
    for attributes in function.arg_attr.values():
        attributes.attr.pop("_user_specified_name", None)
    for node in function.node_def:
        node.name = names[node.name]
        for i, name in enumerate(node.input):
            node.input[i] = _renamed(name, names)
        if "_class" in node.attr:
            node.attr["_class"].list.s[:] = [
                _COLOCATED + names.get(place[5:].decode(), place[5:].decode()).encode()
                for place in node.attr["_class"].list.s
            ]
    results = [(argument, function.ret[argument.name]) for argument in signature.output_arg]
    function.ret.clear()
    for i, (argument, value) in enumerate(results):
        argument.name = f"result{i}" if outputs else argument.name
        function.ret[argument.name] = _renamed(value, names)
    controls = [_renamed(function.control_ret[key], names) for key in signature.control_output]
    function.control_ret.clear()
    signature.control_output[:] = controls
    for name in controls:
        function.control_ret[name] = name


def _body_names(function: FunctionDef) -> dict[str, str]:
    """Return the new name of each argument and node."""
    out: dict[str, str] = {}
    taken: set[str] = set()
    counts: dict[str, int] = {}
    old = [(argument.name, _ARGUMENT_COUNTERS) for argument in function.signature.input_arg]
    old += [(node.name, _COUNTERS) for node in function.node_def]
    for name, counters in old:
        base = new = counters.sub("", name)
        while new in taken:
            counts[base] = counts.get(base, 0) + 1
            new = f"{base}_{counts[base]}"
        taken.add(new)
        out[name] = new
    return out


def _renamed(reference: str, names: dict[str, str]) -> str:
    source = node_defs.source_of(reference)
    return reference.replace(source, names[source], 1) if source in names else reference


def fingerprint(graph_def: GraphDef, *, without_shard: tuple[int, int] | None = None) -> int:
    """Return the fingerprint of a canonical graph: 64 bits.

    It covers everything in the graph, for example lists of files and other constants. It does not
    cover the content of files, and the code of Python functions. `without_shard` is the number of
    splits, and a split: the arguments of `dataset.shard` that are equal to them do not count, so
    that the splits of `files.shard(n, i)` have equal fingerprints.
    """
    copied = node_defs.copy_of(graph_def)
    if without_shard is not None:
        nodes, selecting = node_defs.by_name(copied.node), []
        for node in copied.node:
            if node.op == "ShardDataset":
                found = [nodes[node_defs.source_of(name)] for name in node_defs.data_inputs(node)]
                if tuple(map(node_defs.const_value, found[1:])) == without_shard:
                    selecting += found[1:]
        for argument in selecting:
            argument.attr["value"].Clear()
    data = stable_bytes(copied)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def stable_bytes(graph_def: GraphDef) -> bytes:
    """Return a canonical graph as bytes that are equal in every process.

    The tokens of its Python functions are replaced, and TensorFlow's hashes of what a snapshot has
    are removed, in place: they differ between equal graphs.
    """
    tokens = 0  # of Python functions: counters of the process
    for node in node_defs.all_nodes(graph_def):
        if node.op in PYTHON_OPS:
            node.attr["token"].s = b"%d" % tokens
            tokens += 1
        elif node.op.startswith("SnapshotDataset"):
            node.attr.pop("hash", None)
    return node_defs.to_bytes(graph_def)
