"""Element specs are inferred from iterables and compared between splits."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import SpecError
from distributed_input.rows.decode import decode
from distributed_input.rows.elements import Leaf
from distributed_input.rows.encode import make_encoder
from distributed_input.tfdata.type_specs import from_tf
from distributed_input.worker.datasets.element_specs import check_spec, spec_of_iterable


def test_the_spec_of_an_iterable_is_that_of_its_first_element() -> None:
    inferred = spec_of_iterable({"x": np.zeros((i + 2, 3), np.int16)} for i in range(2))
    assert inferred.leaves == (Leaf("x", "dense", "int16", (2, 3)),)


def test_an_iterable_without_elements_has_no_spec() -> None:
    with pytest.raises(SpecError, match="no elements"):
        spec_of_iterable([])


def test_a_declared_spec_needs_no_elements() -> None:
    class Declared(list[int]):
        element_spec = tf.TensorSpec([None], tf.float32)

    expected = (Leaf("", "dense", "float32", (None,)),)
    assert spec_of_iterable(Declared()).leaves == expected
    assert spec_of_iterable([], function=Declared).leaves == expected


def test_splits_with_the_same_spec_are_accepted() -> None:
    dataset = tf.data.Dataset.range(3)
    check_spec(dataset, from_tf(dataset.element_spec), 1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": tf.TensorSpec([], tf.int32)}, "split 3 .* component 'x' is dense int64 .* int32"),
        ({"y": tf.TensorSpec([], tf.int64)}, "structure {'x': 0} instead of {'y': 0}"),
    ],
)
def test_a_split_with_another_spec_is_refused(other: object, message: str) -> None:
    dataset = tf.data.Dataset.range(3).map(lambda row: {"x": row})
    with pytest.raises(SpecError, match=message):
        check_spec(dataset, from_tf(other), 3)


def test_a_declared_vector_may_have_another_length_in_each_row() -> None:
    spec = from_tf(tf.RaggedTensorSpec([None], tf.float32, ragged_rank=0))
    encode = make_encoder(spec, batched=False)
    rows = [encode(value)[1] for value in ([], [1.0, 2.5], np.array([3], np.float32))]
    decoded = decode(spec, 3, [np.concatenate(parts) for parts in zip(*rows, strict=True)])
    assert decoded.values.tolist() == [1.0, 2.5, 3.0]
    assert decoded.row_splits[0].tolist() == [0, 0, 2, 3]
