"""The code of Python functions is equal in every process, and differs if it changes."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.graph.definition import python_code
from distributed_input.graph.definition.canonical import serialize

_CODE = """
import functools
import tensorflow as tf

SCALE = 3

def helper(value):
    return value + 1 if value in {"a", "b", 1} else value

def load(value, scale=2):
    parts = [helper(each) for each in (1, 2)]
    return value * SCALE + sum(parts)

def recursive(value):
    return recursive(value - 1) if value else value

def dataset():
    data = tf.data.Dataset.range(9)
    data = data.map(lambda x: tf.numpy_function(load, [x], tf.int64))
    data = data.map(lambda x: tf.py_function(recursive, [x], tf.int64))
    return data.map(lambda x: tf.numpy_function(functools.partial(load, scale=4), [x], tf.int64))
"""
_PRINT = """
from distributed_input.graph.definition import python_code
from distributed_input.graph.definition.canonical import serialize
print("".join(python_code.describe(serialize(dataset()))))
"""


def described(code: str) -> list[str]:
    names: dict[str, Any] = {}
    exec(compile(code, "/home/user/data.py", "exec"), names)
    data = names["dataset"]()
    return python_code.describe(serialize(data))


@pytest.mark.slow
def test_the_code_is_equal_in_other_processes() -> None:
    texts = described(_CODE)
    assert len(texts) > 10
    assert described(_CODE) == texts
    code = f'exec(compile({_CODE!r}, "/home/user/data.py", "exec"))\n{_PRINT}'
    env = {**os.environ, "PYTHONHASHSEED": "7"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "".join(texts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SCALE = 3", "SCALE = 4"),
        ("value + 1", "value + 2"),
        ("value + 1", "value - 1"),
        ("sum(parts)", "max(parts)"),
        ("scale=2", "scale=5"),
        ("scale=4", "scale=5"),
        ('"a", "b"', '"a", "c"'),
        ("recursive(value - 1)", "recursive(value - 2)"),
    ],
)
def test_changed_code_differs(before: str, after: str) -> None:
    assert before in _CODE
    assert described(_CODE.replace(before, after)) != described(_CODE)


def test_values_of_closures_differ() -> None:
    def of(value: Any) -> list[str]:
        function: Callable[[Any], Any] = lambda x: x + value  # noqa: E731
        data = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(function, [x], tf.int64))
        return python_code.describe(serialize(data))

    assert of(1) == of(1)
    assert of(1) != of(2)
    assert of(object()) == of(object())
    assert of((1, (2, 3))) != of((1, (2, 4)))
    assert of([1]) == of([2])
    assert len("".join(of((*range(100_000),)))) < 20_000
    assert len("".join(of("x" * 100_000))) < 20_000
    assert of(functools.partial(print, 1)) != of(functools.partial(print, 2))


def test_a_graph_without_python_functions_has_no_code() -> None:
    assert python_code.describe(serialize(tf.data.Dataset.range(3).map(lambda x: x + 1))) == []
