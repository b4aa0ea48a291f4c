"""Packed rows are those of a packing that is written in plain Python, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import distributed_input
from distributed_input.api.errors import ConfigError, SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.graph import balanced_order, sequence_packing
from distributed_input.graph.analysis.graph_analysis import analyze
from distributed_input.graph.definition import canonical
from distributed_input.graph.determinism import serial_ops
from distributed_input.graph.export import export_job
from distributed_input.graph.sequence_packing import pack
from testing import packing
from tests.unit.distributed_input.graph.packcases import METHODS, dataset_of, lists, rows_of

VECTOR = tf.TensorSpec([None], tf.int32)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("count", "most"), [(1, 3), (63, 1), (64, 4), (65, 7), (500, 16)])
def test_packed_rows_are_those_of_the_reference(method: str, count: int, most: int) -> None:
    rows = rows_of(count, 70 if method == "concatenate_and_cut" else 32)
    expected = [packing.columns(parts, 32) for parts in packing.pack(rows, 32, method, most)]
    packed = pack(dataset_of(rows), 32, method, most)
    assert packed.element_spec["tokens"] == tf.TensorSpec([32], tf.int32)
    assert lists(packed) == expected


@pytest.mark.parametrize("method", METHODS)
def test_a_dataset_without_values_has_no_packed_rows(method: str) -> None:
    assert lists(pack(dataset_of([[], []]), 8, method)) == []
    assert lists(pack(dataset_of([[1]]).skip(1), 8, method)) == []


def test_all_components_are_packed_alike() -> None:
    def with_others(row: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        tokens = tf.ensure_shape(row["tokens"], [None])
        return {"text": tf.strings.as_string(tokens), "mask": tokens % 2 > 0, "x": tokens / 2}

    rows = rows_of(200, 20)
    found = lists(pack(dataset_of(rows).map(with_others), 20, open_sequences=3))
    for row, parts in zip(found, packing.pack(rows, 20, "best_fit", 3), strict=True):
        expected = packing.columns(parts, 20)
        tokens = expected.pop("tokens")
        expected["text"] = [b"%d" % one if one else b"" for one in tokens]
        expected["mask"] = [one % 2 > 0 for one in tokens]
        expected["x"] = [one / 2 for one in tokens]
        assert row == expected


def test_rows_of_one_length_are_packed() -> None:
    dataset = tf.data.Dataset.from_tensor_slices({"tokens": [[1, 2, 3], [4, 5, 6], [7, 8, 9]]})
    found = lists(pack(dataset, 7))
    assert [row["tokens"] for row in found] == [[1, 2, 3, 4, 5, 6, 0], [7, 8, 9, 0, 0, 0, 0]]


def test_best_fit_wastes_at_most_three_percent() -> None:
    sizes = np.random.default_rng(0).lognormal(np.log(400), 1.0, 4000).clip(1, 2048).astype(int)
    rows = tf.data.Dataset.from_tensor_slices(sizes).map(
        lambda size: {"tokens": tf.ones([size], tf.int8)}
    )
    packed = sum(1 for _ in pack(rows, 2048).batch(1))
    assert sizes.sum() > 0.97 * 2048 * packed


def test_rows_arrive_before_a_dataset_without_end_ends() -> None:
    endless = pack(dataset_of([[1, 2], [3]]).repeat(), 4, open_sequences=2)
    assert len(lists(endless.take(50))) == 50
    assert analyze(canonical.serialize(endless)).infinite


def test_the_graph_is_equal_in_each_process_and_keeps_its_calls_parallel() -> None:
    def graph() -> Any:
        rows = dataset_of([[1], [2, 3]]).map(lambda row: row, num_parallel_calls=2)
        return canonical.serialize(pack(rows, 4, balance_window=8))

    first = graph()
    sequence_packing._step.cache_clear()
    balanced_order._traced.cache_clear()
    assert canonical.fingerprint(graph()) == canonical.fingerprint(first)
    assert not serial_ops(first)
    found = analyze(first)
    assert not found.batches.batched
    assert not found.batches.hidden_by
    assert not found.drop_remainder


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (VECTOR, "needs rows that are dictionaries"),
        ((VECTOR, VECTOR), "needs rows that are dictionaries"),
        ({"a": tf.TensorSpec([None, None], tf.int32)}, r"'a' is TensorSpec.*Remove batch\(\)"),
        ({"a": tf.TensorSpec([], tf.int32)}, "components are vectors"),
        ({"a": tf.TensorSpec(None, tf.int32)}, r"tf\.ensure_shape"),
        ({"a": tf.RaggedTensorSpec([None, None], tf.int32)}, "components are vectors"),
        ({"a": tf.SparseTensorSpec([None], tf.int32)}, "components are vectors"),
        ({"a": {"b": VECTOR}}, "components are vectors"),
        ({"a": VECTOR, "positions": VECTOR}, "'positions', which the rows have: rename it"),
    ],
)
def test_other_elements_are_refused(spec: Any, message: str) -> None:
    dataset = tf.data.Dataset.from_generator(list, output_signature=spec)
    with pytest.raises(SpecError, match=message):
        pack(dataset, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "packing length 0"),
        ({"length": 4, "method": "BestFit"}, "use one of best_fit, first_fit"),
        ({"length": 4, "open_sequences": 0}, "0 open sequences"),
        ({"length": 4, "balance_window": -1}, "a balance window of -1 rows"),
        ({"length": 4, "balance_window": 4, "rows_per_step": 0}, "and 0 rows of a step"),
    ],
)
def test_invalid_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        distributed_input.pack(dataset_of([[1]]), **arguments)


def test_a_row_that_is_too_long_is_an_error_with_the_remedy() -> None:
    rows = [[1], [2, 3, 4]]
    message = r"more than 2 values \(spec\.packing\.length\)\. Cut it before.*tokens\[:2\]"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        lists(pack(dataset_of(rows), 2))
    assert len(lists(pack(dataset_of(rows), 2, "concatenate_and_cut"))) == 2


def test_components_of_different_lengths_are_an_error() -> None:
    rows = dataset_of([[1, 2]]).map(lambda row: {**row, "mask": row["tokens"][:1]})
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="components mask and tokens of a row differ"
    ):
        lists(pack(rows, 4))


def test_a_dataset_of_the_trainer_may_be_packed_before_its_batch() -> None:
    def dataset_fn(context: Any) -> tf.data.Dataset:
        packed = pack(dataset_of([[1], [2, 3]] * 30).shard(4, context.input_pipeline_id), 4)
        return packed.batch(context.get_per_replica_batch_size(16))

    job, _ = export_job(types_pb2.Job(name="a", partitions=4, num_splits=4), dataset_fn)
    assert (job.batched, job.global_batch_size, list(job.warnings)) == (True, 16, [])
