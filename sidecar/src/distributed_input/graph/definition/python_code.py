"""The code of the Python functions that a graph calls, which the graph does not contain."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from tensorflow.python.ops import script_ops

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef
from distributed_input.graph.user_code import is_library

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))
_MOST_BYTES, _MOST_ITEMS = 1 << 16, 1000  # each open of a split reads them


def describe(graph_def: GraphDef) -> list[str]:
    """Return the code of all Python functions of a graph, as text that is equal in every process.

    It has their instructions, names and constants, and those of the functions of the user that they
    call. It also has the numbers and texts that they read from closures and modules, unless they
    are large. It does not have other objects, for example arrays and lists, which functions may
    change, and the code of packages. The graph is one of this process, so its functions exist.
    """
    nodes = node_defs.all_nodes(graph_def)
    tokens = [node.attr["token"].s for node in nodes if node.op in PYTHON_OPS]
    known = getattr(getattr(script_ops, "_py_funcs", None), "_funcs", {})
    return [text for token in tokens for text in _texts_of(known.get(token.decode()))]


def _texts_of(function: Any) -> Iterator[str]:
    """Yield the texts of a function and of what it reads."""
    queue: list[Any] = [function]
    seen: set[int] = set()
    for value in queue:  # it grows: recursion would be too deep for a large program
        if isinstance(value, (str, bytes)) and len(value) > _MOST_BYTES:
            yield f"{len(value)} characters"
        elif isinstance(value, _PLAIN):
            yield repr(value)
        elif isinstance(value, frozenset):  # its order differs between processes
            yield repr(sorted(map(repr, value)))
        elif isinstance(value, CodeType):
            yield f"{value.co_code.hex()} {value.co_names}"
            queue += value.co_consts
        elif isinstance(value, tuple) and len(value) > _MOST_ITEMS:
            yield f"{len(value)} items"
        elif isinstance(value, tuple):
            queue += value
        elif id(value) not in seen:
            seen.add(id(value))
            yield type(value).__qualname__
            queue += _parts_of(value)


def _parts_of(value: Any) -> Iterator[Any]:
    if isinstance(value, MethodType):
        yield value.__func__
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, *value.keywords.values())
    elif isinstance(value, script_ops.EagerFunc):
        yield value._func  # noqa: SLF001 - there is no public attribute
    elif isinstance(value, FunctionType):
        yield from (value.__code__, value.__defaults__, *(value.__kwdefaults__ or {}).values())
        yield from map(_content, value.__closure__ or ())
        if not is_library(value.__code__.co_filename):
            yield from map(value.__globals__.get, _names(value.__code__))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that a function and the functions in it may read from their module."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # a variable without a value
        return None
