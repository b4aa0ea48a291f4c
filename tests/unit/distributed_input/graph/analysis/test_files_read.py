"""The files that a graph reads are found, or it is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2
from tensorflow.python.framework import op_def_registry

from distributed_input.graph.analysis import files_read
from distributed_input.graph.analysis.files_read import UnknownFilesError, find
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import kind
from tests.unit.distributed_input.graph.graphcases import write_files

Data = tf.data.Dataset
RECORDS = tf.data.TFRecordDataset


def listed(names: list[str], shuffle: bool = True) -> Data:
    return Data.list_files(names, shuffle=shuffle)


def loaded(name: Any, label: Any = 0) -> tuple[Any, Any]:
    return tf.io.read_file(name), label


FOUND: dict[str, Callable[[list[str]], Data]] = {
    "a reader": lambda names: RECORDS(names).map(lambda row: row),
    "a parallel reader": lambda names: RECORDS(names, num_parallel_reads=2),
    "lines": lambda names: tf.data.TextLineDataset(names).batch(2).prefetch(1),
    "interleave": lambda names: listed(names).interleave(RECORDS, cycle_length=2),
    "flat_map": lambda names: listed(names).repeat(2).flat_map(lambda one: RECORDS(one).take(3)),
    "read_file": lambda names: listed(names).map(loaded, num_parallel_calls=2),
    "a map before the reader": lambda names: listed(names).map(tf.identity).interleave(RECORDS),
    "a captured name": lambda names: Data.range(2).map(
        lambda row: loaded(tf.gather(tf.constant(names), row))
    ),
    "a call": lambda names: listed(names).map(tf.function(loaded)),
    "filters": lambda names: listed(names).filter(lambda one: True).flat_map(RECORDS),
    "batches of names": lambda names: listed(names).batch(2).flat_map(RECORDS),
}


@pytest.mark.parametrize("name", FOUND)
def test_names_that_are_constants_are_found(name: str, tmp_path: Path) -> None:
    names = write_files(tmp_path, [3, 2])
    assert find(serialize(FOUND[name](names))) == tuple(names)


def test_constants_beside_the_names_may_be_found_too(tmp_path: Path) -> None:
    names = write_files(tmp_path, [1, 1])
    labels = Data.from_tensor_slices(["cat", "dog"])
    found = find(serialize(Data.zip((Data.from_tensor_slices(names), labels)).map(loaded)))
    assert set(found) == {*names, "cat", "dog"}


def test_a_split_reads_the_files_of_its_shard(tmp_path: Path) -> None:
    names = write_files(tmp_path, [1] * 4)
    for split in range(2):
        files = Data.from_tensor_slices(names).shard(2, split).flat_map(RECORDS)
        assert find(serialize(files)) == tuple(names[split::2])
    shuffled = Data.from_tensor_slices(names).shuffle(4).shard(2, 0).flat_map(RECORDS)
    assert find(serialize(shuffled)) == tuple(names)


def test_a_dataset_without_files_reads_none() -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], [1, 2]), default_value=0
    )
    data = Data.range(9).shuffle(3).map(lambda row: (tf.random.uniform([]), tf.as_string(row)))
    assert find(serialize(data)) == ()
    assert find(serialize(data.map(lambda _, text: table.lookup(text)))) == ()


def mutable() -> tf.lookup.experimental.MutableHashTable:
    return tf.lookup.experimental.MutableHashTable(tf.int64, tf.int64, 0)


def counted(table: Any, row: Any, change: Callable[[Any, Any], Any]) -> Any:
    with tf.control_dependencies([change(table.resource_handle, row)]):
        return table.lookup(row)


def static() -> tf.lookup.StaticHashTable:
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant([1], tf.int64), tf.constant([2], tf.int64)),
        default_value=0,
    )


CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "LookupTableInsertV2": lambda table, row: tf.raw_ops.LookupTableInsertV2(
        table_handle=table, keys=row, values=row
    ),
    "LookupTableRemoveV2": lambda table, row: tf.raw_ops.LookupTableRemoveV2(
        table_handle=table, keys=row[None]
    ),
    "LookupTableImportV2": lambda table, row: tf.raw_ops.LookupTableImportV2(
        table_handle=table, keys=row[None], values=row[None]
    ),
}


@pytest.mark.parametrize("op", CHANGES)
def test_a_table_that_changes_is_refused(op: str) -> None:
    """Datasets of a process share a table with the same content."""
    table = static()
    data = Data.range(2).map(lambda row: counted(table, row, CHANGES[op]))
    with pytest.raises(UnknownFilesError, match=f"calls {op}, which has a state"):
        find(serialize(data))
    # Another dataset may change this one.
    read = Data.range(2).map(mutable().lookup)
    with pytest.raises(UnknownFilesError, match="calls MutableHashTableV2, which has a state"):
        find(serialize(read))


def sampled(file: str = "", counts: Sequence[float] = ()) -> Any:
    return tf.random.fixed_unigram_candidate_sampler(
        tf.constant([[1]], tf.int64), 1, 1, False, 3, vocab_file=file, unigrams=counts
    )[0]


def decoded(source: str) -> Any:
    return tf.io.decode_proto(b"", "Message", ["x"], [tf.int64], source)[0]


def encoded(source: str) -> Any:
    sizes, values = tf.constant([[1]]), [tf.constant([[1]], tf.int64)]
    return tf.io.encode_proto(sizes, values, ["x"], "Message", source)


def test_ops_that_can_read_a_file_do_not_always() -> None:
    data = Data.range(2).map(lambda _: (decoded("local://"), encoded("local://")))
    assert find(serialize(data)) == ()
    assert find(serialize(Data.range(2).map(lambda _: sampled(counts=[1.0] * 3)))) == ()


REFUSED: dict[str, tuple[Callable[[list[str]], Data], str]] = {
    "a computed name": (
        lambda names: Data.range(2).map(lambda row: loaded("part" + tf.as_string(row))),
        "computes the name of a file with Add",
    ),
    "a part of a name": (
        lambda names: (
            listed(names).map(lambda one: tf.strings.substr(one, 0, 99)).flat_map(RECORDS)
        ),
        "computes the name of a file with Substr",
    ),
    "names in a file": (
        lambda names: tf.data.TextLineDataset(names).flat_map(RECORDS),
        "computes the name of a file with TextLineDataset",
    ),
    "python": (
        lambda names: Data.range(2).map(
            lambda row: tf.numpy_function(lambda x: x, [row], tf.int64)
        ),
        "calls PyFunc",
    ),
    "a pattern": (
        lambda names: Data.range(2).map(lambda _: tf.io.matching_files(names[0])),
        "calls MatchingFiles",
    ),
    "a cache": (lambda names: Data.range(2).cache(names[0] + ".cache"), "dataset CacheDataset"),
    "time": (lambda names: Data.range(2).map(lambda _: tf.timestamp()), "calls Timestamp"),
    "a vocabulary": (
        lambda names: Data.range(2).map(lambda _: sampled(names[0])),
        "calls FixedUnigramCandidateSampler with a file",
    ),
    "a message": (
        lambda names: Data.range(2).map(lambda _: decoded(names[0])),
        "calls DecodeProtoV2 with a file",
    ),
    "a message of another type": (
        lambda names: Data.range(2).map(lambda _: encoded(names[0])),
        "calls EncodeProto with a file",
    ),
    "a loop": (
        lambda names: listed(names).map(
            lambda one: loaded(tf.while_loop(lambda _: False, lambda x: x, [one])[0])
        ),
        "computes the name of a file",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_graph_that_may_read_something_else_is_refused(name: str, tmp_path: Path) -> None:
    make, message = REFUSED[name]
    with pytest.raises(UnknownFilesError, match=message):
        find(serialize(make(write_files(tmp_path, [1, 1]))))


@pytest.mark.parametrize("op", ["OfAnotherLibrary", "TakeDatasetOfAnotherLibrary", "Another>Op"])
def test_ops_of_other_libraries_are_refused(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`tf.load_op_library` has added them, and they say that they have no state."""
    definition = op_def_pb2.OpDef(name=op)
    monkeypatch.setattr(node_defs, "op_def", lambda _: definition)
    with pytest.raises(UnknownFilesError, match="is not known"):
        files_read._reads({}, tf.compat.v1.NodeDef(name="node", op=op), {})


def test_all_ops_of_tensorflow_that_read_files_are_known() -> None:
    """TensorFlow says of some that they have no state."""
    words = "file path checkpoint directory address uri descriptor".split()
    found = set()
    for name in _op_names():
        definition = op_def_registry.get(name)
        arguments = [one.name for one in (*definition.input_arg, *definition.attr)]
        named = any(word in one for one in arguments for word in words)
        node = tf.compat.v1.NodeDef(name="node", op=name)
        with contextlib.suppress(UnknownFilesError):
            files_read._reads({}, node, {})
            if named and not kind(name):
                found.add(name)
    assert found - _WITH_ATTRIBUTES == {"ReadFile", "CTCBeamSearchDecoder"}


_WITH_ATTRIBUTES = {"FixedUnigramCandidateSampler", "DecodeProtoV2", "EncodeProto"}


def _op_names() -> list[str]:
    names = [name for name in dir(tf.raw_ops) if not name.startswith("_")]
    return [name for name in names if op_def_registry.get(name) is not None]
