"""An entry point as the only pipeline of the only trainer."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.worker.datasets import in_process

OPTIONS: dict[str, Any] = {
    "target": "bench_code:dataset_fn",
    "args": {},
    "path": None,
    "seed": 0,
    "batch": None,
    "packing": None,
}


def reader(monkeypatch: pytest.MonkeyPatch, dataset_fn: Any, **options: object) -> Any:
    module = types.ModuleType("bench_code")
    module.dataset_fn = dataset_fn
    monkeypatch.setitem(sys.modules, "bench_code", module)
    return in_process.open_reader({**OPTIONS, **options})


def test_a_requested_batch_is_the_global_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    def dataset_fn(context: tf.distribute.InputContext, rows: int) -> tf.data.Dataset:
        assert (context.num_input_pipelines, context.input_pipeline_id) == (1, 0)
        return tf.data.Dataset.range(rows).batch(context.get_per_replica_batch_size(64))

    found = reader(monkeypatch, dataset_fn, args={"rows": 100})
    assert found.batched
    assert [len(one) for one in found.elements] == [64, 36]


@pytest.mark.parametrize("own", [None, 2], ids=["rows", "batches"])
def test_the_batch_of_the_resource(monkeypatch: pytest.MonkeyPatch, own: int | None) -> None:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        dataset = tf.data.Dataset.range(10)
        return dataset.batch(own) if own else dataset

    found = reader(monkeypatch, dataset_fn, batch=4)
    assert found.batched
    assert [len(one) for one in found.elements] == [4, 4, 2]


def test_elements_without_a_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reader(monkeypatch, lambda context: tf.data.Dataset.range(10).batch(5))
    assert not found.batched
    assert len(list(found.elements)) == 2


def test_rows_are_packed_as_workers_pack_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensor_slices({"x": [[1, 2]] * 6})

    packing = {"length": 4, "method": "best_fit", "open_sequences": 2}
    found = reader(monkeypatch, dataset_fn, batch=2, packing=packing)
    assert [one["x"].shape for one in found.elements] == [(2, 4), (1, 4)]


def test_an_iterable_is_called_again_for_each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    found = reader(monkeypatch, lambda context: iter([1, 2]))
    assert [list(found.elements) for _ in range(2)] == [[1, 2]] * 2


def test_a_generator_has_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        spec = tf.TensorSpec([], tf.int64)
        return tf.data.Dataset.from_generator(lambda: range(5), output_signature=spec)

    found = reader(monkeypatch, dataset_fn, batch=2)
    assert [len(one) for one in found.elements] == [2, 2, 1]
