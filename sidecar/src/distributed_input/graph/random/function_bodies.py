"""Edits of the body of a function: new arguments, inputs, nodes and references."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef, NodeDef

_31_BITS = (1 << 31) - 1
_INT64 = tf.int64.as_datatype_enum


class FunctionBody:
    """A copy of a function that gets one more argument: the key of the element.

    `function` is the copy, and `key` the name of the argument, which has the given index: two int64
    numbers.
    """

    def __init__(self, function: FunctionDef, name: str, index: int) -> None:
        self.function: FunctionDef = copy.deepcopy(function)
        signature = self.function.signature
        signature.name = name
        self._names = {argument.name for argument in signature.input_arg}
        self._names |= {node.name for node in self.function.node_def}
        self.key = self._unique("element_key")
        arguments = list(signature.input_arg)
        arguments.insert(index, type(signature).ArgDef(name=self.key, type=_INT64))
        del signature.input_arg[:]
        signature.input_arg.extend(arguments)
        self.function.attr.pop("_input_shapes", None)
        for numbered in (self.function.arg_attr, self.function.resource_arg_unique_id):
            _shift(numbered, index)

    def add(self, op: str, name: str, inputs: Iterable[str], types: dict[str, int]) -> NodeDef:
        """Add a node with a unique name and type attributes, and return it."""
        node = self.function.node_def.add(op=op, name=self._unique(name), input=inputs)
        for attribute, value in types.items():
            node.attr[attribute].type = value
        return node

    def add_const(self, name: str, value: Any, dtype: tf.DType = tf.int64) -> str:
        """Add a constant, and return a reference to it."""
        const = node_defs.add_const(self.function.node_def, self._unique(name), value, dtype)
        return f"{const.name}:output:0"

    def mix(self, name: str, op: str, first: int, second: int) -> str:
        """Combine the key with two numbers by a binary op, and return a reference to the result."""
        const = self.add_const(f"{name}/mixed_with", [first, second])
        return f"{self.add(op, name, [self.key, const], {'T': _INT64}).name}:z:0"

    def add_result(self, name: str, reference: str) -> None:
        """Add a result after the others: two int64 numbers."""
        signature = self.function.signature
        taken = {argument.name for argument in signature.output_arg}
        while name in taken:
            name += "_"
        signature.output_arg.add(name=name, type=_INT64)
        self.function.ret[name] = reference

    def redirect(self, old: str, new: str, but: str) -> None:
        """Replace a reference in all nodes except one, and in the results."""
        for node in self.function.node_def:
            if node.name != but:
                node.input[:] = [new if name == old else name for name in node.input]
        for name, value in self.function.ret.items():
            if value == old:
                self.function.ret[name] = new

    def _unique(self, name: str) -> str:
        number, unique = 0, name
        while unique in self._names:
            number += 1
            unique = f"{name}_{number}"
        self._names.add(unique)
        return unique


def mix_read(body: FunctionBody, read: NodeDef, key: str) -> None:
    """Combine the values that a ReadVariableOp reads, two integers, with a key.

    The result has at most 31 bits: Keras supports no more.
    """
    old = f"{read.name}:value:0"
    mask = body.add_const(f"{read.name}/mask", [_31_BITS, _31_BITS])
    short = body.add("BitwiseAnd", f"{read.name}/short", [key, mask], {"T": _INT64})
    dtype = read.attr["dtype"].type
    cast = body.add("Cast", f"{read.name}/cast", [f"{short.name}:z:0"], {"SrcT": _INT64})
    cast.attr["DstT"].type = dtype
    mixed = body.add("BitwiseXor", f"{read.name}/state", [old, f"{cast.name}:y:0"], {"T": dtype})
    body.redirect(old, f"{mixed.name}:z:0", but=mixed.name)


def replace_draw(body: FunctionBody, draw: NodeDef, key: str) -> None:
    """Replace an RngReadAndSkip by its state, three numbers, combined with a key."""
    state = _read_state(body, draw)
    three = _gather(body, f"{draw.name}/three", key, [0, 1, 0])
    controls = node_defs.control_inputs(draw)
    draw.op = "BitwiseXor"
    draw.input[:] = [state, three, *controls]
    draw.attr.clear()
    draw.attr["T"].type = _INT64
    body.redirect(f"{draw.name}:value:0", f"{draw.name}:z:0", but="")


def mix_state(body: FunctionBody, draw: NodeDef, key: str) -> str:
    """Combine a key with the key of the generator that an op draws from."""
    own = _gather(body, f"{draw.name}/own_key", _read_state(body, draw), [2, 2])
    mixed = body.add("BitwiseXor", f"{draw.name}/mixed_key", [own, key], {"T": _INT64})
    return f"{mixed.name}:z:0"


def _read_state(body: FunctionBody, draw: NodeDef) -> str:
    """Read the state of a generator: two numbers of its counter, and its key."""
    resource = node_defs.data_inputs(draw)[0]
    read = body.add("ReadVariableOp", f"{draw.name}/state", [resource], {"dtype": _INT64})
    return f"{read.name}:value:0"


def _gather(body: FunctionBody, name: str, source: str, indexes: list[int]) -> str:
    int32 = tf.int32.as_datatype_enum
    constants = (("indexes", indexes), ("axis", 0))
    inputs = [source, *(body.add_const(f"{name}/{it}", value, tf.int32) for it, value in constants)]
    types = {"Tparams": _INT64, "Tindices": int32, "Taxis": int32}
    return f"{body.add('GatherV2', name, inputs, types).name}:output:0"


def append_input(node: NodeDef, reference: str) -> None:
    """Add a data input after the other data inputs of a node."""
    node.input[:] = [*node_defs.data_inputs(node), reference, *node_defs.control_inputs(node)]


def number_pair(*values: object) -> tuple[int, int]:
    """Return two positive numbers of 62 bits, a hash of the values."""
    digest = hashlib.blake2b(repr(values).encode(), digest_size=16).digest()
    first, second = (int.from_bytes(half, "little") >> 2 for half in (digest[:8], digest[8:]))
    return first, second


def _shift(numbered: Any, index: int) -> None:
    """Move the entries of the arguments from an index on by one, in a map of a protobuf message."""
    moved = {number: copy.deepcopy(numbered[number]) for number in numbered if number >= index}
    for number in moved:
        del numbered[number]
    for number, value in moved.items():
        if isinstance(value, int):
            numbered[number + 1] = value
        else:
            numbered[number + 1].CopyFrom(value)
