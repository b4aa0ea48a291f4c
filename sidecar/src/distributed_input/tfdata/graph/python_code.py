"""The code of the Python functions that a graph calls, which the graph does not contain."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from tensorflow.python.ops import script_ops

from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef
from distributed_input.tfdata.user_code import is_library

_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...))


def describe(graph_def: GraphDef) -> list[str]:
    """Return the code of all Python functions of a graph, as text that is equal in every process.

    It has their instructions, names and constants, and those of the functions of the user that they
    call. It also has the numbers and texts that they read from closures and modules. It does not
    have other objects, for example arrays, and the code of packages.

    Args:
        graph_def: a graph of this process, whose functions exist.
    """
    scopes = [graph_def.node, *(function.node_def for function in graph_def.library.function)]
    tokens = [node.attr["token"].s for nodes in scopes for node in nodes if node.op in PYTHON_OPS]
    known = getattr(getattr(script_ops, "_py_funcs", None), "_funcs", {})
    return [text for token in tokens for text in _texts_of(known.get(token.decode()), seen=set())]


def _texts_of(value: Any, seen: set[int]) -> Iterator[str]:
    """Yield the texts of a function or of a value that it reads."""
    if isinstance(value, _PLAIN):
        yield repr(value)
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from _texts_of(part, seen)
    elif isinstance(value, frozenset):  # its order differs between processes
        yield from sorted(text for part in value for text in _texts_of(part, seen))
    elif isinstance(value, CodeType):
        yield value.co_code.hex()
        yield repr(value.co_names)
        yield from _texts_of(value.co_consts, seen)
    elif id(value) not in seen:
        seen.add(id(value))
        yield from _texts_of_callable(value, seen)


def _texts_of_callable(value: Any, seen: set[int]) -> Iterator[str]:
    if isinstance(value, MethodType):
        yield from _texts_of(value.__func__, seen)
    elif isinstance(value, FunctionType):
        yield from _texts_of(value.__code__, seen)
        yield from _texts_of((value.__defaults__, *(value.__kwdefaults__ or {}).values()), seen)
        for cell in value.__closure__ or ():
            yield from _texts_of(_content(cell), seen)
        if not is_library(value.__code__.co_filename):
            for name in _names(value.__code__):
                yield from _texts_of(value.__globals__.get(name), seen)
    elif isinstance(value, functools.partial):
        yield from _texts_of((value.func, value.args, *value.keywords.values()), seen)
    elif isinstance(value, script_ops.EagerFunc):
        yield from _texts_of(value._func, seen)  # noqa: SLF001 - there is no public attribute
    else:
        yield type(value).__qualname__


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
