"""A packed graph opens as it was, with each large constant stored once."""

from __future__ import annotations

import hashlib
import zlib
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.graph.definition import packing, serialization
from distributed_input.graph.definition.canonical import serialize
from tests.unit.distributed_input.graph.graphcases import elements, run

NUMBERS = np.arange(20_000, dtype=np.int64)  # larger than the limit for inline constants
STRINGS = np.array([f"row {number:05d} of many" for number in range(8_000)])


def always(_: str) -> bool:
    return True


def test_functions_keep_their_large_arrays(tmp_path: Path) -> None:
    """A function has a large array, and returns it too."""
    dataset = tf.data.Dataset.range(2).map(
        lambda row: (row + tf.reduce_sum(NUMBERS), tf.constant(NUMBERS))
    )
    packed = packing.pack([serialize(dataset)])
    sent = packing.load_bare(packed, 0)
    packing.restore(sent, packed, tmp_path)
    stored = packing.store_arrays(serialize(dataset), always, tmp_path)
    packing.restore(stored, folder=tmp_path)
    expected = [(int(row), numbers.tolist()) for row, numbers in elements_of(dataset)]
    for graph_def in (sent, stored):
        opened = serialization.instantiate(graph_def, dataset.element_spec)
        assert [(int(row), numbers.tolist()) for row, numbers in elements_of(opened)] == expected


def elements_of(dataset: tf.data.Dataset) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(dataset.as_numpy_iterator())


def test_equal_constants_of_all_splits_are_stored_once() -> None:
    graphs = [serialize(tf.data.Dataset.from_tensor_slices(NUMBERS).shard(2, i)) for i in range(2)]
    packed = packing.pack(graphs)
    assert len(packed.graphs) == 2
    assert len(packed.constants) == 1
    assert packing.load_bare(packed, 0).ByteSize() < NUMBERS.nbytes / 4


def test_a_missing_split_is_an_error() -> None:
    graphs = [serialize(tf.data.Dataset.range(3).shard(2, index)) for index in range(2)]
    with pytest.raises(SpecError, match="none for split 2"):
        packing.load_bare(packing.pack(graphs), 2)


@pytest.mark.slow
@pytest.mark.parametrize("values", [NUMBERS, STRINGS, NUMBERS[:3]], ids=["numbers", "text", "few"])
def test_a_graph_runs_after_it_was_restored(tmp_path: Path, values: np.ndarray) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(values)
    whole = serialize(dataset)
    size = whole.ByteSize()
    packed = packing.pack([whole])
    sent = packing.load_bare(packed, 5)  # one graph serves all splits
    stored = packing.store_arrays(whole, always, tmp_path)
    is_stored = values is NUMBERS
    assert len(list(tmp_path.iterdir())) == is_stored
    assert (stored.ByteSize() < size / 4) == is_stored
    for graph_def, arrays in ((sent, packed), (stored, None)):
        packing.restore(graph_def, arrays, tmp_path)
        assert run(graph_def, dataset.element_spec) == elements(dataset)


def test_equal_arrays_have_one_file_and_equal_graphs(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(NUMBERS)
    first, second = (packing.store_arrays(serialize(dataset), always, tmp_path) for _ in range(2))
    assert len(list(tmp_path.iterdir())) == 1
    assert first == second


def test_an_array_of_one_split_has_no_file(tmp_path: Path) -> None:
    whole = serialize(tf.data.Dataset.from_tensor_slices(NUMBERS))
    assert packing.store_arrays(whole, lambda _: False, tmp_path) == whole
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_array_stays_in_the_graph_if_it_cannot_be_written(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(NUMBERS)
    graph_def = packing.store_arrays(serialize(dataset), always, tmp_path / "missing")
    packing.restore(graph_def, folder=tmp_path)
    assert run(graph_def, dataset.element_spec) == elements(dataset)


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(path: Path, target: Path) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", fail)
    packing.store_arrays(serialize(tf.data.Dataset.from_tensor_slices(NUMBERS)), always, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_removed_file_is_noticed(tmp_path: Path) -> None:
    dataset = tf.data.Dataset.from_tensor_slices(NUMBERS)
    stored = packing.store_arrays(serialize(dataset), always, tmp_path)
    assert packing.has_files(stored, tmp_path)
    next(tmp_path.iterdir()).unlink()
    assert not packing.has_files(stored, tmp_path)


def packed_numbers() -> types_pb2.GraphDataset:
    return packing.pack([serialize(tf.data.Dataset.from_tensor_slices(NUMBERS))])


def changed(packed: types_pb2.GraphDataset, before: bytes, after: bytes) -> types_pb2.GraphDataset:
    content = zlib.decompress(packed.graphs[0])
    assert before in content
    packed.graphs[0] = zlib.compress(content.replace(before, after))
    return packed


def name_of(packed: types_pb2.GraphDataset) -> bytes:
    return hashlib.sha256(zlib.decompress(packed.constants[0])).hexdigest().encode()


@pytest.mark.parametrize(
    ("name", "message"), [("../{}", "not its hash"), (64 * "0", "does not have the hash")]
)
def test_an_array_has_no_other_name(tmp_path: Path, name: str, message: str) -> None:
    """No name outside of the folder, and not that of another array."""
    packed = packed_numbers()
    before = name_of(packed)
    name = name.format(before[3:].decode())
    graph_def = packing.load_bare(changed(packed, before, name.encode()), 0)
    with pytest.raises(SpecError, match=message):
        packing.restore(graph_def, packed, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path / name).exists()


def test_a_damaged_graph_is_refused(tmp_path: Path) -> None:
    packed = packed_numbers()
    graph_def = packing.load_bare(packed, 0)
    for graph in (b"x", packed.graphs[0][:-9], zlib.compress(b"\xff" * 20)):
        with pytest.raises(SpecError, match="graph is damaged"):
            packing.load_bare(types_pb2.GraphDataset(graphs=[graph]), 0)
    del packed.constants[:]
    with pytest.raises(SpecError, match="graph is damaged"):
        packing.restore(graph_def, packed, tmp_path)


def test_a_graph_that_is_too_large_when_decompressed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "_MAX_BYTES", 1000)
    with pytest.raises(SpecError, match="more than 1000 bytes"):
        packing.load_bare(types_pb2.GraphDataset(graphs=[zlib.compress(bytes(1001))]), 0)
