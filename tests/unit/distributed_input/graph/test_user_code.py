"""A call of dataset_fn has the same result every time, and does not change the process."""

from __future__ import annotations

import random
import sys
import types
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.graph import user_code
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.user_code import SplitInputContext
from tests.unit.distributed_input.graph.graphcases import elements, random_number


def context(split: int = 0) -> SplitInputContext:
    return SplitInputContext(4, split, lambda rows: min(rows, 8))


def test_random_values_in_the_function_are_the_same_for_every_split() -> None:
    def dataset_fn(_: Any) -> tf.data.Dataset:
        drawn = [
            random.random(),
            np.random.random(),
            float(random_number()),
            float(random_number()),
        ]
        numbers = tf.data.Dataset.from_tensor_slices(tf.constant(drawn))
        others = tf.data.Dataset.range(50).map(lambda x: tf.cast(x, tf.float32)).shuffle(50)
        return numbers.concatenate(others)

    first, second = (user_code.call_dataset_fn(dataset_fn, context(split)) for split in (0, 1))
    assert elements(first) == elements(second)
    assert node_defs.to_bytes(serialize(first)) == node_defs.to_bytes(serialize(second))
    assert len(set(elements(first)[:4])) == 4


def test_the_random_state_of_the_process_is_restored() -> None:
    def draws(between: bool) -> list[Any]:
        random.seed(1)
        np.random.seed(1)
        tf.random.set_seed(5)
        out = [random.random(), np.random.rand(), float(tf.random.uniform([]))]
        if between:
            user_code.call_dataset_fn(lambda _: tf.data.Dataset.range(3).shuffle(3), context())
        return [*out, random.random(), np.random.rand(), float(tf.random.uniform([]))]

    with user_code.fixed_randomness(1):  # later tests need an unseeded process
        assert draws(True) == draws(False)


def test_pytorch_is_seeded_if_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    states: list[Any] = []
    torch = types.SimpleNamespace(
        get_rng_state=lambda: "before", set_rng_state=states.append, manual_seed=states.append
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    with user_code.fixed_randomness(7):
        assert states == [7]
    assert states == [7, "before"]


def test_only_seeded_random_ops_in_functions_have_seeds() -> None:
    def dataset_fn(_: Any) -> tf.data.Dataset:
        return tf.data.Dataset.range(3).map(
            lambda _: (random_number(), tf.random.uniform([], seed=5))
        )

    function = serialize(user_code.call_dataset_fn(dataset_fn, context())).library.function[0]
    seeds = [n.attr["seed2"].i for n in function.node_def if "seed2" in n.attr]
    assert sorted(seeds) == [0, 5]


def test_an_error_in_user_code_names_the_split_and_the_line() -> None:
    def dataset_fn(_: Any) -> tf.data.Dataset:
        raise ValueError("no such luck")

    with pytest.raises(DatasetFnError) as caught:
        user_code.call_dataset_fn(dataset_fn, context(2))
    message = str(caught.value)
    assert "dataset_fn for split 2 of 4 failed: ValueError: no such luck" in message
    assert "test_user_code.py" in message
    assert 'raise ValueError("no such luck")' in message
    assert "graph/user_code.py" not in message
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("error", "exits", "raised"),
    [
        (SystemExit(3), True, DatasetFnError),
        (SystemExit(3), False, SystemExit),  # for example of a signal handler of the trainer
        (KeyboardInterrupt(), True, KeyboardInterrupt),
        (GeneratorExit(), True, GeneratorExit),
    ],
)
def test_only_an_exit_may_become_an_error(
    error: BaseException, exits: bool, raised: type[BaseException]
) -> None:
    with pytest.raises(raised), user_code.user_errors("x", exits=exits):
        raise error


@pytest.mark.parametrize(
    ("text", "expected"), [("no", "no (split 1 of 2)"), ("no\nfile", "no (split 1 of 2)\nfile")]
)
def test_the_place_of_an_error_ends_its_first_line(text: str, expected: str) -> None:
    with pytest.raises(DatasetFnError) as caught, user_code.user_errors("x", "split 1 of 2"):
        raise ValueError(text)
    assert str(caught.value).startswith(f"x failed: ValueError: {expected}\n")


def test_an_error_in_tensorflow_shows_only_the_users_lines() -> None:
    def dataset_fn(_: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices((tf.zeros([2]), tf.zeros([3])))

    with pytest.raises(DatasetFnError) as caught:
        user_code.call_dataset_fn(dataset_fn, context())
    assert "test_user_code.py" in str(caught.value)
    assert "site-packages" not in str(caught.value)


def test_a_result_that_is_not_a_dataset_is_rejected() -> None:
    with pytest.raises(DatasetFnError, match="returned a list"):
        user_code.call_dataset_fn(lambda _: [1], context())


def test_an_error_of_a_row_names_the_transformation_and_not_the_op_around_it() -> None:
    def fail(number: Any) -> Any:
        raise ValueError("row 3 is damaged")

    rows = tf.data.Dataset.range(5).map(lambda n: tf.numpy_function(fail, [n], tf.int64))
    with pytest.raises(DatasetFnError, match="row 3 is damaged") as caught:
        with user_code.user_errors("the dataset"):
            next(iter(rows))
    assert "function_node" not in str(caught.value).splitlines()[0]


def test_the_context_divides_the_global_batch() -> None:
    ctx = SplitInputContext(4, 3, lambda rows: min(rows, 8))
    assert (ctx.num_input_pipelines, ctx.input_pipeline_id, ctx.num_replicas_in_sync) == (4, 3, 1)
    assert ctx.get_per_replica_batch_size(16) == 2
    assert ctx.get_per_replica_batch_size(16) == 2
    assert ctx.global_batch_size == 16
    assert (ctx.seed, ctx.epoch) == (0, 0)
    with pytest.raises(ConfigError, match="16 and 8"):
        ctx.get_per_replica_batch_size(8)
    with pytest.raises(ConfigError, match=r"10 is not divisible by the 4 .*\[1, 2, 5, 10\]"):
        SplitInputContext(1, 0, 4).get_per_replica_batch_size(10)
    with pytest.raises(ValueError, match="must be 1 or more"):
        SplitInputContext(1, 0, 4).get_per_replica_batch_size(0)


@pytest.mark.parametrize(("name", "value"), [("seed", 5), ("epoch", 3)])
def test_a_dataset_that_reads_the_seed_or_the_epoch_may_vary(name: str, value: int) -> None:
    context = SplitInputContext(4, 1, 2, seed=5, epoch=3)
    assert not context.varies
    assert getattr(context, name) == value
    assert context.varies
