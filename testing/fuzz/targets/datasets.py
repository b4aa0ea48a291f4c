"""Datasets that trainers send as graphs, and other input of processes with TensorFlow."""

from __future__ import annotations

import json
import tempfile
import zlib
from pathlib import Path

from google.protobuf.message import DecodeError

from distributed_input.api.errors import DistributedInputError, PositionError
from testing.fuzz.target import Subject, Target

_MAX_DIMS = 5


def _graphs() -> Subject:
    import numpy as np
    import tensorflow as tf

    from distributed_input.api.proto import types_pb2
    from distributed_input.graph.definition import packing
    from distributed_input.graph.definition.canonical import serialize
    from distributed_input.worker.datasets.dataset_cache import DatasetCache

    folder = Path(tempfile.mkdtemp())
    numbers = np.arange(9_000, dtype=np.int64)  # larger than the limit for inline constants
    text = np.array([f"{number:08d}" for number in range(9_000)])
    packed = [
        packing.pack([serialize(tf.data.Dataset.from_tensor_slices(one))])
        for one in (numbers, text, numbers[:3])
    ]

    def parse(data: bytes) -> None:
        dataset = DatasetCache(lambda _: data).get("0" * 64)
        graph = packing.load_bare(dataset, 0)
        packing.restore(graph, dataset, folder)
        for path in folder.iterdir():
            path.unlink()

    def seal(data: bytes) -> bytes:
        """Compress the last graph again, after a change of its content."""
        try:
            dataset = types_pb2.GraphDataset.FromString(data)
        except DecodeError:
            dataset = types_pb2.GraphDataset()
            dataset.CopyFrom(packed[0])
        if not dataset.graphs:
            return data
        plain = bytearray(zlib.decompress(packed[len(data) % 3].graphs[0]))
        plain[len(data) * 7919 % len(plain)] ^= 1 + data[-1] % 255
        dataset.graphs[0] = zlib.compress(bytes(plain), 1)
        return dataset.SerializeToString()

    seeds = [one.SerializeToString() for one in packed]
    return Subject(parse, seeds, (DistributedInputError,), seal=seal)


def _state_parts() -> Subject:
    from distributed_input.worker.datasets import iterator_state
    from distributed_input.worker.states.saved_state import StateError

    def parse(data: bytes) -> None:
        iterator_state._call(5.0, "restore", lambda: list(iterator_state._split(data)))

    length = iterator_state._LENGTH
    seeds = [length.pack(4) + b"part" + length.pack(0), length.pack(1) + b"x"]
    return Subject(parse, seeds, (StateError,))


def _iterators() -> Subject:
    """TensorFlow's own parser. Our checksum does not stop a process that writes a wrong state."""
    import tensorflow as tf

    from distributed_input.worker.datasets import iterator_state
    from distributed_input.worker.states.saved_state import StateError

    dataset = tf.data.Dataset.range(100).shuffle(10, seed=1).batch(3).prefetch(1)

    def parse(data: bytes) -> None:
        elements = iter(dataset)
        iterator_state._call(5.0, "restore", lambda: iterator_state._restore(elements, data))

    running = iter(dataset)
    next(running)
    return Subject(parse, [iterator_state._save(running, 1 << 20)], (StateError,))


def _native_ops() -> Subject:
    """The op gets its plan from the graph, and row splits and indexes from users' ops."""
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.eager import context

    from distributed_input.graph import native_ops

    ops = native_ops.library()
    ragged = [["int64", [0, 2, 2, 3]], ["int64", [0, 1, 4, 4]], ["string", ["a", "", "bc", "d"]]]
    sparse = [["int64", [0, 2]], ["int64", [[0, 1], [1, 0]]], ["float32", [1, 2]]]
    dense = [["int32", [[1, 2, 3], [4, 5, 6]]], ["string", ["left", "right"]]]
    seeds = [
        {"plan": [1, 0, 1, 0, 0], "parts": ragged},
        {"plan": [2, 4, 0, 0, 1, 3], "parts": [*sparse, ["int64", [[2, 3]]]]},
        {"plan": [0, 4, 0, 1, 1, 3, 0, 0, 0, 1, 0], "parts": dense},
    ]

    def parse(data: bytes) -> None:
        given = json.loads(data)
        arrays = [(dtype, np.array(values)) for dtype, values in given["parts"]]
        if any(array.ndim > _MAX_DIMS for _, array in arrays):
            raise ValueError("tf.constant itself ends the process for arrays of many dimensions")
        parts = [tf.constant(array, dtype) for dtype, array in arrays]
        if ops is not None:
            ops.distributed_input_pack(components=parts, plan=given["plan"])
            context.context().clear_kernel_cache()  # TensorFlow keeps a kernel for each plan

    errors = (ValueError, TypeError, KeyError, ArithmeticError, RecursionError, tf.errors.OpError)
    return Subject(parse, [json.dumps(seed).encode() for seed in seeds], errors, is_json=True)


def _keras() -> Subject:
    from distributed_input import keras

    folder = Path(tempfile.mkdtemp())
    weights = folder / "weights"
    weights.write_bytes(b"weights")
    path = Path(str(weights) + keras._SUFFIX)
    keras.write_position(str(weights), b"position")
    keras.announce_position(str(weights), b"next")
    seed = path.read_bytes()

    def parse(data: bytes) -> None:
        path.write_bytes(data)
        try:
            keras.read_position(str(weights))
        finally:
            keras.announce_position(str(weights), b"next")

    return Subject(parse, [seed], (PositionError,), is_json=True)


TARGETS = (
    Target("datasets/graphs", "trainer → dispatcher → worker", _graphs),
    Target("datasets/states", "folder of saved states → worker", _state_parts, 0.5),
    Target(
        "datasets/iterators",
        "folder of saved states → TensorFlow",
        _iterators,
        known="TensorFlow's parser of an iterator's state ends the process",
    ),
    Target("datasets/native-ops", "dataset → native ops", _native_ops, 0.5),
    Target("datasets/keras", "folder of checkpoints → trainer", _keras, 0.5),
)
