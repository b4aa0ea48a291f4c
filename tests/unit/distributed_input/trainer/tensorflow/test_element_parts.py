"""Elements are divided among replicas as TensorFlow divides them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute

from distributed_input.api.errors import ConfigError
from distributed_input.trainer.tensorflow.element_parts import divide

Data: TypeAlias = tf.data.Dataset


class Pair(NamedTuple):
    x: Any
    y: Any


def dicts(rows: int) -> Data:
    return Data.range(rows).batch(6).map(lambda x: {"a": x, "b": (x, x + 1)})


def ragged(rows: int) -> Data:
    return Data.range(rows).map(tf.range).ragged_batch(3)


SHAPES: dict[str, Callable[[], Data]] = {
    "unknown": lambda: Data.choose_from_datasets(
        [Data.range(20).batch(16), Data.range(7).batch(16)], Data.range(2).repeat(2), False
    ),
    "known": lambda: Data.from_tensor_slices(tf.reshape(tf.range(32), [2, 16])),
    "known and odd": lambda: Data.from_tensor_slices(tf.reshape(tf.range(30), [2, 15])),
    "one row": lambda: Data.from_tensors([3]),
    "dicts": lambda: dicts(8).concatenate(dicts(3)),
    "ragged": lambda: ragged(5).concatenate(ragged(4)),
    "namedtuple": lambda: Data.range(5).batch(3).map(lambda x: Pair(x, x + 1)),
    "tuple": lambda: Data.range(5).batch(3).map(lambda x: (x,)),
}


def values(part: Any) -> list[Any]:
    return [
        one.to_list() if isinstance(one, tf.RaggedTensor) else one.numpy().tolist()
        for one in tf.nest.flatten(part)
    ]


@pytest.mark.parametrize("name", SHAPES)
def test_replicas_get_what_tensorflow_gives_them(name: str) -> None:
    # experimental_distribute_dataset uses this, if it does not know the batch size.
    expected = distribute._LegacyRebatchDataset(SHAPES[name](), 2)
    parts = divide(SHAPES[name](), 2)
    assert [values(part) for part in parts] == [values(part) for part in expected]


def test_the_rows_of_a_part_are_known_if_those_of_an_element_are() -> None:
    assert divide(SHAPES["known"](), 2).element_spec.shape == [8]
    assert divide(SHAPES["known and odd"](), 2).element_spec.shape == [None]


def test_elements_without_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"cannot be divided among 2 replicas.*batch the dataset"):
        divide(Data.range(3), 2)


def test_a_namedtuple_stays_one() -> None:
    part = next(iter(divide(SHAPES["namedtuple"](), 2)))
    assert isinstance(part, Pair)


def test_none_is_in_each_part() -> None:
    parts = list(divide(Data.range(4).batch(4).map(lambda x: (None, x, None)), 2))
    assert [(a, x.numpy().tolist(), b) for a, x, b in parts] == [
        (None, [0, 1], None),
        (None, [2, 3], None),
    ]


def test_components_with_different_numbers_of_rows_are_refused() -> None:
    element = (tf.range(16), tf.range(3))
    with pytest.raises(ConfigError, match="have 16 and 3 rows"):
        divide(Data.from_tensors(element), 2)
    unknown = Data.from_tensors(0).map(lambda i: (tf.range(i + 16), tf.range(i + 3)))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"(?s)different.*16.*3"):
        list(divide(unknown, 2))
