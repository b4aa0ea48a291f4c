"""Specs convert from and to TensorFlow's, and describe plain values."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import SpecError
from distributed_input.graph.type_specs import (
    check_spec,
    from_tf,
    from_values,
    spec_of_iterable,
    to_tf,
)
from distributed_input.rows.decode import Ragged, Sparse, decode
from distributed_input.rows.elements import Leaf
from distributed_input.rows.encode import make_encoder

Pair = collections.namedtuple("Pair", "x y")
SPECS = [
    tf.TensorSpec([], tf.float32),
    tf.TensorSpec([None, 3], tf.bfloat16),
    tf.TensorSpec([2], tf.string),
    tf.RaggedTensorSpec([None, None, 2], tf.int32, 1, tf.int32),
    tf.RaggedTensorSpec([4, None], tf.string, 1),
    tf.RaggedTensorSpec([None, 3, None], tf.int64, 2),
    tf.SparseTensorSpec([None, 5], tf.bool),
    tf.TensorSpec(None, tf.int32),
]


@pytest.mark.parametrize("spec", SPECS, ids=str)
def test_a_spec_converts_both_ways(spec: tf.TypeSpec) -> None:
    assert to_tf(from_tf(spec)) == spec


def test_a_structure_converts_both_ways() -> None:
    spec = tf.data.Dataset.from_tensors(
        {"b": (1, None), "a": Pair(tf.zeros([2]), [tf.zeros([3])])}
    ).element_spec
    ours = from_tf(spec)
    assert [leaf.path for leaf in ours.leaves] == ["a/x", "a/y", "b/0"]
    assert to_tf(ours) == spec
    assert isinstance(to_tf(ours)["a"], Pair)


def test_the_spec_of_batched_rows_is_the_batchs_spec() -> None:
    for spec in SPECS[1:]:
        batch = tf.nest.map_structure(lambda s: s, spec)
        row = from_tf(batch).unbatched()
        size = None if batch.shape.rank is None else batch.shape[0]
        assert to_tf(row, batched=True, static_batch=size) == batch


def test_a_ragged_row_of_rank_0_is_a_dense_vector() -> None:
    row = from_tf(tf.RaggedTensorSpec([None, None], tf.int32, 1)).unbatched()
    assert to_tf(row) == tf.TensorSpec([None], tf.int32)
    assert to_tf(row, batched=True) == tf.RaggedTensorSpec([None, None], tf.int32, 1)


UNBATCHED = tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1]])).unbatch().element_spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            tf.SparseTensorSpec(None, tf.int32),
            "component 'a' is a SparseTensorSpec of unknown rank.*ensure_shape",
        ),
        (tf.TensorSpec([], tf.variant), "component 'a' has type variant"),
        (tf.TensorSpec([], tf.qint8), "component 'a' has type qint8"),
        (tf.data.DatasetSpec(tf.TensorSpec([])), "component 'a' is a DatasetSpec"),
        (tf.OptionalSpec(tf.TensorSpec([])), "component 'a' is a OptionalSpec"),
        (tf.RaggedTensorSpec([None, None, None], tf.int32, 1), "component 'a': the dimensions"),
        (UNBATCHED, r"component 'a' is a scalar that .* add a map"),
    ],
)
def test_an_unsupported_component_is_named(spec: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        from_tf({"a": spec})


def test_keys_of_different_types_are_rejected() -> None:
    with pytest.raises(SpecError, match=r"keys of a dict .*\['int', 'str'\]"):
        from_tf({"a": SPECS[0], 1: SPECS[0]})


@pytest.mark.parametrize(
    ("value", "leaf"),
    [
        (1, ("dense", "int64", ())),
        (1.5, ("dense", "float32", ())),
        ([1.5, 2], ("dense", "float32", (2,))),
        (True, ("dense", "bool", ())),
        ("text", ("dense", "string", ())),
        ([b"a", b"bc"], ("dense", "string", (2,))),
        (np.zeros((2, 3)), ("dense", "float64", (2, 3))),
        (np.float64(1), ("dense", "float64", ())),
        (tf.zeros([2], tf.bfloat16), ("dense", "bfloat16", (2,))),
        (np.array(["a", None, 1], object)[:1], ("dense", "string", (1,))),
        (
            Ragged(np.zeros(3, np.int32), (np.array([0, 1, 3]),)),
            ("ragged", "int32", (None,) * 2, 1),
        ),
        (
            Sparse(np.zeros((1, 2), np.int64), np.zeros(1), np.array([4, 5])),
            ("sparse", "float64", (None, None)),
        ),
    ],
)
def test_the_spec_of_a_plain_value(value: Any, leaf: tuple) -> None:
    assert from_values({"a": (value,)}).leaves == (Leaf("a/0", *leaf),)


@pytest.mark.parametrize("value", [object(), np.array([1, "a"], object), np.zeros(2, "M8[s]")])
def test_an_unsupported_value_is_named(value: Any) -> None:
    with pytest.raises(SpecError, match="component 'a'"):
        from_values({"a": value})


def test_the_spec_of_an_iterable_is_declared_or_that_of_its_first_element() -> None:
    class Declared(list[int]):
        element_spec = tf.TensorSpec([None], tf.float32)

    inferred = spec_of_iterable({"x": np.zeros((i + 2, 3), np.int16)} for i in range(2))
    assert inferred.leaves == (Leaf("x", "dense", "int16", (2, 3)),)
    expected = (Leaf("", "dense", "float32", (None,)),)
    assert spec_of_iterable(Declared()).leaves == expected
    assert spec_of_iterable([], function=Declared).leaves == expected
    with pytest.raises(SpecError, match="no elements"):
        spec_of_iterable([])


def test_splits_with_the_same_spec_are_accepted() -> None:
    dataset = tf.data.Dataset.range(3)
    check_spec(dataset.element_spec, from_tf(dataset.element_spec), 1)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"x": tf.TensorSpec([], tf.int32)}, "split 3 .* component 'x' is dense int64 .* int32"),
        ({"y": tf.TensorSpec([], tf.int64)}, "elements {'x': .*} instead of {'y': "),
    ],
)
def test_a_split_with_another_spec_is_refused(other: object, message: str) -> None:
    dataset = tf.data.Dataset.range(3).map(lambda row: {"x": row})
    with pytest.raises(SpecError, match=message):
        check_spec(dataset.element_spec, from_tf(other), 3)


def test_a_declared_vector_may_have_another_length_in_each_row() -> None:
    spec = from_tf(tf.RaggedTensorSpec([None], tf.float32, ragged_rank=0))
    encode = make_encoder(spec, batched=False)
    rows = [encode(value)[1] for value in ([], [1.0, 2.5], np.array([3], np.float32))]
    decoded = decode(spec, 3, [np.concatenate(parts) for parts in zip(*rows, strict=True)])
    assert decoded.values.tolist() == [1.0, 2.5, 3.0]
    assert decoded.row_splits[0].tolist() == [0, 0, 2, 3]
