"""Datasets for the tests of graphs, and the elements of a graph."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import tensorflow as tf

from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed


def random_number() -> tf.Tensor:
    """Return an unseeded random number below 2**20."""
    return tf.random.uniform([], 0, 1 << 20, tf.int32)


def write_files(folder: Path, sizes: list[int]) -> list[str]:
    """Write TFRecord files with the records "file-record", and return their names."""
    names = []
    for i, size in enumerate(sizes):
        names.append(str(folder / f"part{i}.tfrecord"))
        with tf.io.TFRecordWriter(names[-1]) as writer:
            for j in range(size):
                writer.write(f"{i}-{j}".encode())
    return names


@contextlib.contextmanager
def module_of(folder: Path, name: str, code: str) -> Iterator[ModuleType]:
    """Write a module into a folder, and import it."""
    (folder / f"{name}.py").write_text(code)
    sys.path.insert(0, str(folder))
    yield importlib.import_module(name)
    sys.path.remove(str(folder))
    sys.modules.pop(name, None)


def with_policy(dataset: tf.data.Dataset, policy: str) -> tf.data.Dataset:
    """Return a dataset with an auto-shard policy."""
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[policy]
    return dataset.with_options(options)


def plain(value: Any) -> Any:
    """Convert tensors and structures to lists and numbers."""
    if isinstance(value, dict):
        return {key: plain(below) for key, below in value.items()}
    if isinstance(value, tuple):
        return tuple(plain(below) for below in value)
    return value.tolist() if hasattr(value, "tolist") else value


def elements(dataset: tf.data.Dataset) -> list[Any]:
    """Return all elements of a dataset."""
    return [plain(element) for element in dataset.as_numpy_iterator()]


def run(graph_def: Any, spec: Any) -> list[Any]:
    """Return all elements of a graph."""
    return elements(serialization.instantiate(graph_def, spec))


def epoch_of(dataset: tf.data.Dataset, seed: int = 1, epoch: int = 0, split: int = 0) -> list[Any]:
    """Return all elements of an epoch of a dataset."""
    return run(reseed(serialize(dataset), seed, epoch, split), dataset.element_spec)
