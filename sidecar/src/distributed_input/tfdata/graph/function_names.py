"""Canonical names inside functions, without the counters that differ between runs."""

from __future__ import annotations

import re

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import FunctionDef

_COUNTERS = re.compile(r"(_\d+)+(?=/|$)")
# A captured variable is called after its path, with "_" instead of "/".
_ARGUMENT_COUNTERS = re.compile(r"(_\d+)+(?=_|/|$)")
_COLOCATED = b"loc:@"


def readable_name(function: str) -> str:
    """Return the name of a function without TensorFlow's prefix and without counters."""
    return re.sub(r"^__inference_|(_keyed|_\d+)+$", "", function)


def rename_body(function: FunctionDef, outputs: bool) -> None:
    """Rename a function's arguments and nodes by their base names and order, in place.

    Args:
      function: any function of a graph.
      outputs: also rename the results; False for a function that is called as an op, because the
        op's outputs have these names.
    """
    names = _names(function)
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


def _names(function: FunctionDef) -> dict[str, str]:
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
