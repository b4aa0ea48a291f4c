"""Elements of every type arrive unchanged, from entry points and traced functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import distributed_input
from testing.integration import devices, readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.datasets import element_types

assert devices.CPUS  # configured before TensorFlow starts

# Entry points with single rows, which are batched by 8, and `varied`, which has batches of 3.
ROWWISE: dict[str, Callable[[Any], tf.data.Dataset]] = {
    "dense": element_types.dense,
    "four_bits": element_types.four_bits,
    "varied": element_types.varied,
    "single_varied": element_types.single_varied,
    "parsed_rows": element_types.parsed_rows,
}
WHOLE = {
    "padded": element_types.padded,
    "scalars": element_types.scalars,
    "parsed": element_types.parsed,
}
PYTHON = {"generated": 8, "called": 8, "iterated": 8, "iterated_varied": None}


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    """Start a sidecar with inputs NAME (entry point) and NAME-traced (the trainer's dataset)."""
    few: dict[str, Any] = {"partitions": 2, "numSplits": 3}
    batches = {**few, "globalBatchSize": 8}
    inputs = {
        "tables": spec(**few),
        "sized": spec("element_types:sized", **batches, remainder="Pad"),
    }
    for names, fields in ((ROWWISE, batches), (WHOLE, few)):
        for name in names:
            inputs[name] = spec(f"element_types:{name}", **fields)
            inputs[f"{name}-traced"] = spec(**fields)
    for name, rows in PYTHON.items():
        inputs[name] = spec(f"element_types:{name}", **(batches if rows else few))
    return shared.add_sidecars(inputs)[0]


def values(element: Any) -> Any:
    """Return an element as plain Python values."""
    if isinstance(element, (tf.RaggedTensor, tf.Tensor, tf.sparse.SparseTensor)):
        return _values_of_tensor(element)
    if isinstance(element, distributed_input.Ragged):
        return _values_of_tensor(
            tf.RaggedTensor.from_nested_row_splits(element.values, element.row_splits)
        )
    if isinstance(element, distributed_input.Sparse):
        return _values_of_tensor(
            tf.sparse.SparseTensor(element.indices, element.values, element.dense_shape)
        )
    if isinstance(element, dict):
        return {key: values(value) for key, value in element.items()}
    if isinstance(element, tuple):
        return tuple(values(value) for value in element)
    return np.asarray(element).tolist()


def _values_of_tensor(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tensor.to_list()
    if isinstance(tensor, tf.sparse.SparseTensor):
        return tensor.indices.numpy().tolist(), *map(
            _values_of_tensor, (tensor.values, tensor.dense_shape)
        )
    return np.asarray(tensor.numpy()).tolist()


def by_id(rows: Iterable[Any]) -> dict[Any, Any]:
    found = {}
    for row in rows:
        plain = values(row)
        key = plain["id"] if isinstance(plain, dict) else plain
        key = tuple(key) if isinstance(key, list) else key
        assert key not in found
        found[key] = plain
    return found


def rows_of(batches: Iterable[Any]) -> Iterator[Any]:
    """Yield the rows of batches as plain values.

    TensorFlow's unbatch fails for empty components.
    """
    for batch in batches:
        leaves = [_rows_of_leaf(leaf) for leaf in tf.nest.flatten(batch)]
        for row in zip(*leaves, strict=True):
            yield tf.nest.pack_sequence_as(batch, row)


def _rows_of_leaf(leaf: Any) -> list[Any]:
    if isinstance(leaf, tf.Tensor):
        return list(leaf.numpy())  # TensorFlow has no slices of some types
    if not isinstance(leaf, tf.sparse.SparseTensor):
        return list(leaf)
    rest = leaf.dense_shape[1:]
    return [
        tf.sparse.reshape(tf.sparse.slice(leaf, [row, 0, 0], [1, *rest]), rest)
        for row in range(leaf.dense_shape[0])
    ]


def local_datasets(
    dataset_fn: Callable[[Any], tf.data.Dataset], splits: int = 1
) -> list[tf.data.Dataset]:
    """Return the datasets of all splits, computed in this process."""
    return [dataset_fn(tf.distribute.InputContext(splits, split, 1)) for split in range(splits)]


@pytest.mark.parametrize("way", ["by entry point", "traced"])
@pytest.mark.parametrize("name", ROWWISE)
def test_rows_arrive_unchanged(cluster: Cluster, sidecar: Sidecar, name: str, way: str) -> None:
    traced = way == "traced"
    (expected,) = local_datasets(ROWWISE[name])
    with readers.connect(sidecar, f"{name}-traced" if traced else name) as data:
        dataset = data.dataset(ROWWISE[name]) if traced else data.dataset()
        assert dataset.element_spec == data.element_spec
        batches = list(dataset)
    assert [int(batch["id"].shape[0]) for batch in batches] == [8, 8, 6]
    for batch in batches:
        for spec_of_leaf, leaf in zip(
            *map(tf.nest.flatten, (dataset.element_spec, batch)), strict=True
        ):
            assert spec_of_leaf.is_compatible_with(leaf)
    assert by_id(rows_of(batches)) == by_id(rows_of(expected) if name == "varied" else expected)


@pytest.mark.parametrize("name", [*ROWWISE, *WHOLE])
def test_the_element_spec_is_available_before_the_first_batch(
    cluster: Cluster, sidecar: Sidecar, name: str
) -> None:
    with readers.connect(sidecar, name) as data:
        before = data.element_spec
        dataset = data.dataset()
        assert dataset.element_spec == before
        first = next(iter(dataset))
    for expected_spec, leaf in zip(*map(tf.nest.flatten, (before, first)), strict=True):
        assert expected_spec.is_compatible_with(leaf)
    (here,) = local_datasets({**ROWWISE, **WHOLE}[name])
    if name in WHOLE:
        assert before == here.element_spec
    elif name == "parsed_rows":
        assert before["numbers"] == tf.TensorSpec(None, tf.int64)
    elif name != "varied":
        assert before == here.ragged_batch(8).element_spec


@pytest.mark.parametrize("way", ["by entry point", "traced"])
@pytest.mark.parametrize("name", WHOLE)
def test_whole_elements_arrive_unchanged(
    cluster: Cluster, sidecar: Sidecar, name: str, way: str
) -> None:
    traced = way == "traced"
    with readers.connect(sidecar, f"{name}-traced" if traced else name) as data:
        dataset = data.dataset(WHOLE[name]) if traced else data.dataset()
        assert dataset.element_spec == data.element_spec
        found = by_id(dataset)
        splits = data._consumer.opened.job.num_splits
    assert found == by_id(itertools.chain(*local_datasets(WHOLE[name], splits)))


@pytest.mark.parametrize("name", PYTHON)
def test_python_datasets_run_in_the_worker(cluster: Cluster, sidecar: Sidecar, name: str) -> None:
    with readers.connect(sidecar, name) as data:
        elements = list(data.dataset())
    if PYTHON[name] is not None:
        assert [len(batch["id"]) for batch in elements] == [8, 8, 6]
        found = by_id(rows_of(elements))
        assert {row: one["word"] for row, one in found.items()} == {
            row: element_types.WORDS[row % 5].encode() for row in range(element_types.ROWS)
        }
    else:
        context = tf.distribute.InputContext(1, 0, 1)
        assert by_id(elements) == by_id(element_types.iterated_varied(context))


def test_rows_of_unknown_size_are_padded_with_zeros_of_their_size(
    cluster: Cluster, sidecar: Sidecar
) -> None:
    with readers.connect(sidecar, "sized") as data:
        batches = [batch.numpy() for batch in data.dataset()]
    assert [batch.shape for batch in batches] == [(8, 3)] * 3
    found = sorted(itertools.chain(*(batch[:, 0].tolist() for batch in batches)))
    assert found == sorted([*range(element_types.ROWS), 0, 0])


@pytest.mark.parametrize("name", [*ROWWISE, *WHOLE, *PYTHON])
def test_numpy_and_tensorflow_give_the_same_values(
    cluster: Cluster, sidecar: Sidecar, name: str
) -> None:
    with readers.connect(sidecar, name) as data:
        in_numpy = [values(batch) for batch in data.numpy()]
    with readers.connect(sidecar, name) as data:
        in_tensors = [values(batch) for batch in data.dataset()]
    assert in_numpy == in_tensors


def test_lookup_tables_and_variables_are_sent_to_the_workers(
    cluster: Cluster, sidecar: Sidecar, tmp_path: Path
) -> None:
    dataset_fn = element_types.with_tables(str(tmp_path))
    with readers.connect(sidecar, "tables") as data:
        dataset = data.dataset(dataset_fn)
        # The workers already have its content.
        (tmp_path / "words.txt").unlink()
        found = {int(row["id"]): row for row in rows_of(dataset)}
    assert set(found) == set(range(element_types.ROWS))
    for number, row in found.items():
        at = number % 6
        assert int(row["legs"]) == [6, 6, 4, 4, 0, -1][at]
        assert int(row["number"]) == at
        assert float(row["weight"]) == number / 2
