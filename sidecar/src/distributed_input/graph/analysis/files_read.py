"""The files that a dataset's graph reads, if the graph shows all of them.

It shows a name that is a constant, alone or in a list that the dataset shards, shuffles or repeats.
It does not show a name that is computed from others. Ops that may read something else, such as
Python functions, have to be known.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.graph import determinism
from distributed_input.graph.definition import caches, node_defs, packing, pushdown
from distributed_input.graph.definition.datasets import (
    BATCHES,
    FILTERS,
    FLATTENS,
    KNOWN,
    MAPS,
    PASSES,
    REORDERS,
    kind,
)
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef, NodeDef
from distributed_input.graph.definition.random_ops import has_seed_attrs

_READERS = frozenset("TFRecord TextLine FixedLengthRecord".split())
_READ_FILE = "ReadFile"
_OUTSIDE = frozenset(
    "MatchingFiles FileExists LoadAndRemapMatrix GenerateVocabRemapping ImmutableConst"
    " InitializeTableFromTextFile InitializeTableFromTextFileV2 Restore RestoreSlice RestoreV2"
    " CheckpointHasKey".split()
)
"""Ops that read files in other ways, or the time. Some of them claim to have no state."""
_FILE_ATTRIBUTES, _NO_FILE = ("vocab_file", "descriptor_source"), (b"", b"local://")
"""Attributes that name a file, and their values that name none."""
_KEEP_STATE = ("HashTable", "VarHandleOp", "Assign", "Rng")
"""A variable that changes belongs to one split. Datasets of a process share mutable tables."""
_FILL_TABLE = ("InitializeTable", "InitializeTableV2")
_FILL_TABLE_ONCE = "LookupTableImportV2"
_RETURNS = ("_Retval", "_Arg")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_ELEMENTS = frozenset("Tensor TensorSlice Take Skip Shard Concatenate Zip Unbatch Window".split())
_FUNCTIONS = KNOWN | PASSES | FILTERS | FLATTENS
_COMPUTED = MAPS | FLATTENS | {"MapAndBatch"}
_SELECTED = (_ELEMENTS | REORDERS | frozenset(BATCHES)) - _COMPUTED
"""Datasets whose elements are, or consist of, their inputs."""
_SAME = frozenset(
    "Identity IdentityN Reshape ExpandDims Squeeze Pack Unpack Concat ConcatV2 Gather GatherV2"
    " GatherNd Slice StridedSlice Split SplitV RandomShuffle Tile Transpose BroadcastTo Select"
    " SelectV2 Where EnsureShape StopGradient TensorArrayV3".split()
)
"""Ops that return values of their inputs."""
_STRING, _VARIANT = tf.string.as_datatype_enum, tf.variant.as_datatype_enum
_TEXTS = frozenset([_STRING, _VARIANT])


class UnknownFilesError(Exception):
    """The graph does not show what it reads."""


def find(graph_def: GraphDef) -> tuple[str, ...]:
    """Return the names of all files that a graph reads, sorted, and perhaps other constants.

    Args:
        graph_def: the graph of a split, with its constants.

    Raises:
        UnknownFilesError: it may read other things.
    """
    walk = _NameSearch(pushdown.push(graph_def))
    for scope, nodes in walk.scopes.items():
        for node in nodes.values():
            if not scope and node.op == _FILL_TABLE_ONCE:
                continue
            if _reads(nodes, node, walk.library):
                walk.trace(scope, node_defs.data_inputs(node)[0])
    return tuple(sorted(map(os.fsdecode, walk.names)))


def _reads(nodes: dict[str, NodeDef], node: NodeDef, library: Any) -> bool:
    """Return whether a node reads the files that its first input names.

    Raises:
        UnknownFilesError: it may read something else.
    """
    op = node.op
    if op in library or op in _RETURNS or op == _READ_FILE:
        return bool(op == _READ_FILE)
    if not hasattr(tf.raw_ops, op):
        raise UnknownFilesError(f"it calls {op}, which is not known")
    if kind(op):
        if kind(op) not in _FUNCTIONS or (op in caches.OPS and caches.file_name(nodes, node) != ""):
            raise UnknownFilesError(f"it has the dataset {op}")
        return kind(op) in _READERS
    if op == "ImmutableConst" and packing.is_stored(node):
        return False
    if op in PYTHON_OPS or op in _OUTSIDE:
        raise UnknownFilesError(f"it calls {op}, whose result may change")
    if any(node.attr[one].s not in _NO_FILE for one in _FILE_ATTRIBUTES if one in node.attr):
        raise UnknownFilesError(f"it calls {op} with a file")
    is_known = has_seed_attrs(op) or op in _FILL_TABLE or op.startswith(_KEEP_STATE)
    if determinism.depends_on_order(op) and not is_known and not op.startswith("Stateful"):
        raise UnknownFilesError(f"it calls {op}, which has a state")
    return False


class _NameSearch:
    """Walks from the inputs of readers to the constants that they may be."""

    def __init__(self, graph_def: GraphDef) -> None:
        self.scopes = {
            name: node_defs.by_name(nodes) for name, nodes in node_defs.scopes(graph_def).items()
        }
        self.library = node_defs.library(graph_def)
        self.names: set[bytes] = set()
        self._seen: set[tuple[str, str]] = set()
        self._callers: dict[str, list[tuple[str, NodeDef]]] = {}
        for scope, nodes in self.scopes.items():
            for node in nodes.values():
                for name in node_defs.called(node):
                    self._callers.setdefault(name, []).append((scope, node))

    def trace(self, scope: str, name: str) -> None:
        """Add the names that a value of a function, or of the graph, may be.

        Raises:
            UnknownFilesError: they are computed.
        """
        queue = [(scope, node_defs.source_of(name))]
        for place in queue:  # it grows
            if place not in self._seen:
                self._seen.add(place)
                queue += [(one, node_defs.source_of(ref)) for one, ref in self._sources(*place)]

    def _sources(self, scope: str, name: str) -> Iterator[tuple[str, str]]:
        node = self.scopes[scope].get(name)
        if node is None:
            yield from self._arguments(scope, name)
        elif node.op == "Const":
            self.names |= _texts(node)
        elif (part := self._slice(scope, node)) is not None:
            self.names |= part
        elif kind(node.op) in FILTERS:
            yield scope, node_defs.data_inputs(node)[0]
        elif kind(node.op) in _COMPUTED or node.op in (*_CALLS, *self.library):
            for called in node_defs.called(node):
                if called in self.library:
                    yield from ((called, ref) for ref in self.library[called].ret.values())
        elif kind(node.op) in _SELECTED or node.op in _SAME:
            yield from ((scope, ref) for ref in node_defs.data_inputs(node))
        elif _may_be_text(node):
            raise UnknownFilesError(f"it computes the name of a file with {node.op}")

    def _arguments(self, function: str, name: str) -> Iterator[tuple[str, str]]:
        """Yield what a function may get as an argument."""
        arguments = self.library[function].signature.input_arg
        index = next(at for at, one in enumerate(arguments) if one.name == name)
        if arguments[index].type not in _TEXTS:
            return
        for scope, node in self._callers.get(function, ()):
            inputs = node_defs.data_inputs(node)
            if node.op in (*_CALLS, function):
                yield scope, inputs[index]
            elif kind(node.op) in _COMPUTED | FILTERS:
                captured = len(node.attr["Targuments"].list.type)
                at = index - (len(arguments) - captured)
                yield scope, inputs[0] if at < 0 else inputs[1 + at]
            else:
                raise UnknownFilesError(f"{node.op} computes the name of a file")

    def _slice(self, scope: str, node: NodeDef) -> set[bytes] | None:
        """Return the part of a list that a split takes, if both are constant."""
        if node.op != "StridedSlice" or scope:
            return None
        values, *bounds = (self.scopes[scope].get(node_defs.source_of(one)) for one in node.input)
        begin, end, step = (node_defs.const_value(one) for one in bounds)
        is_plain = not any(node.attr[one].i for one in node.attr if one.endswith("_mask"))
        if (
            values is None
            or values.op != "Const"
            or not is_plain
            or begin is None
            or begin.size > 1
        ):
            return None
        return _texts(values, slice(int(begin[0]), int(end[0]), int(step[0])))


def _texts(const: NodeDef, part: slice = slice(None)) -> set[bytes]:
    """Return the texts of a constant; nothing for numbers."""
    if const.attr["dtype"].type != _STRING:
        return set()
    if "value" not in const.attr:
        raise UnknownFilesError("a list of names is not in the graph")
    tensor = const.attr["value"].tensor
    value = np.atleast_1d(tf.io.parse_tensor(tensor.SerializeToString(), tf.string).numpy())
    return set(np.ravel(value[part]).tolist())


def _may_be_text(node: NodeDef) -> bool:
    """Return whether an output of an op may be a text or a dataset."""
    definition = node_defs.op_def(node.op)
    if definition is None:
        return True
    for output in definition.output_arg:
        types = [output.type] if output.type else [node.attr[output.type_attr].type]
        if output.type_list_attr:
            types = list(node.attr[output.type_list_attr].list.type)
        if not _TEXTS.isdisjoint(types):
            return True
    return False
