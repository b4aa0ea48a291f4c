"""Reuses the functions that TensorFlow traced for the pipelines of the reference.

Tracing takes most of the time of a case: the same function is traced for each split, and again to
know whether the pipeline is random. The product traces its own.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.data.ops import structured_function

_MOST = 2000
_Wrapper = structured_function.StructuredFunctionWrapper
_traced: dict[Any, Any] = {}
_here = threading.local()


@contextlib.contextmanager
def reused() -> Iterator[None]:
    """Let datasets that this thread makes in this context share traced functions."""
    _here.reused = True
    try:
        yield
    finally:
        _here.reused = False


def _wrapper(func: Any, name: str, dataset: Any = None, **arguments: Any) -> Any:
    """Return the wrapper of a function of these element types, or make a new one."""
    if not getattr(_here, "reused", False) or not tf.executing_eagerly():
        return _Wrapper(func, name, dataset, **arguments)
    spec = arguments.get("input_structure") or (dataset.element_spec if dataset else None)
    key = _identity(func)
    if key is None or spec is None:
        return _Wrapper(func, name, dataset, **arguments)
    key = (key, name, repr(spec), repr(arguments.get("defun_kwargs")))
    if key not in _traced:
        made = _Wrapper(func, name, dataset, **arguments)
        if made.function.graph._seed_used:  # it has the seeds of this dataset
            return made
        if len(_traced) >= _MOST:
            _traced.clear()
        _traced[key] = made
    return _traced[key]


def _identity(value: Any) -> Any:
    """Return what distinguishes a function from others; None if this is not known.

    Functions of modules are themselves. Closures are their code and what they capture.
    """
    if value is None or isinstance(value, str | int | float | bool | type | tf.DType):
        return (type(value), value)
    if isinstance(value, tuple | list):
        return _all(value)
    if isinstance(value, functools.partial):
        return _all([value.func, value.args, *value.keywords.items()])
    if not isinstance(value, types.FunctionType):
        return None
    captured = _all([cell.cell_contents for cell in value.__closure__ or ()])
    defaults = _all(value.__defaults__ or ())
    return None if captured is None or defaults is None else (value.__code__, captured, defaults)


def _all(values: Any) -> Any:
    found = [_identity(value) for value in values]
    return None if None in found else tuple(found)


structured_function.StructuredFunctionWrapper = _wrapper
