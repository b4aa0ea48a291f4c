"""The functions of a dataset in the process that built it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tensorflow as tf

from distributed_input.tfdata import dataset_functions

Data = tf.data.Dataset
_CODE = """
import tensorflow as tf

def plain(row):
    return row + 1

def branch(row):
    return tf.cond(
        row > 1,
        lambda: tf.random.uniform([]),
        lambda: 0.0,
    )

def sample(row):
    return tf.random.uniform_candidate_sampler([[1]], 1, 1, True, 5)[0]
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "functions_of_test.py").write_text(_CODE)
    monkeypatch.syspath_prepend(str(tmp_path))
    import functions_of_test  # type: ignore[import-not-found]

    yield functions_of_test
    monkeypatch.delitem(__import__("sys").modules, "functions_of_test")


def test_an_op_has_the_line_of_the_user(functions: ModuleType) -> None:
    dataset = Data.range(3).map(functions.sample).map(lambda _: 1).batch(2)
    number = 1 + _CODE.split("\n").index(next(it for it in _CODE.split("\n") if "candidate" in it))
    line = dataset_functions.lines_of(dataset)["UniformCandidateSampler"]
    assert line == f"{functions.__file__}:{number}"


def test_random_ops_are_found_in_branches_and_inputs(functions: ModuleType) -> None:
    assert not dataset_functions.depend_on_order(Data.range(3).map(functions.plain))
    for function in (functions.branch, functions.sample):
        dataset = Data.range(3).map(function).map(lambda _: 1)
        assert dataset_functions.depend_on_order(dataset)


def test_a_generator_alone_does_not_depend_on_the_order() -> None:
    signature = tf.TensorSpec([], tf.int64)
    dataset = Data.from_generator(lambda: iter(range(3)), output_signature=signature)
    assert not dataset_functions.depend_on_order(dataset.map(lambda row: row + 1))
