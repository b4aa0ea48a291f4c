"""Datasets that trainers sent as graphs, fetched from the dispatcher and kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

import tensorflow as tf
from google.protobuf.message import DecodeError

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2

_Value = TypeVar("_Value")


class LruCache(Generic[_Value]):
    """Keeps the last value, and others while all have at most a number of bytes. Thread-safe."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._values: OrderedDict[Hashable, tuple[_Value, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> _Value | None:
        """Return the value of a key; None if it is not in the cache."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: _Value, size: int) -> None:
        """Store a value of `size` bytes. Evict those that were not used for the longest time."""
        with self._lock:
            _, replaced = self._values.pop(key, (None, 0))
            self._values[key] = value, size
            self._bytes += size - replaced
            while self._bytes > self._max_bytes and len(self._values) > 1:
                _, (_, evicted) = self._values.popitem(last=False)
                self._bytes -= evicted


_MAX_BYTES = 1 << 30
_DAMAGED = "the trainer sent something else than a dataset"


class DatasetCache:
    """The most recently used datasets, up to a number of bytes. Thread-safe.

    `fetch` returns the serialized GraphDataset of a dataset id.
    """

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch
        self._datasets: LruCache[types_pb2.GraphDataset] = LruCache(_MAX_BYTES)

    def get(self, dataset_id: str) -> types_pb2.GraphDataset:
        """Return a dataset. Fetch it if it is not in the cache.

        Raises:
            ConfigError: the trainer has a newer TensorFlow than this worker, or sent something else
                than a dataset.
        """
        cached = self._datasets.get(dataset_id)
        if cached is not None:
            return cached
        try:
            fetched = types_pb2.GraphDataset.FromString(self._fetch(dataset_id))
        except DecodeError as error:
            raise ConfigError(f"{_DAMAGED}: {error}") from error
        _check_version(fetched)
        self._datasets.put(dataset_id, fetched, fetched.ByteSize())
        return fetched


def _check_version(dataset: types_pb2.GraphDataset) -> None:
    """Raise ConfigError if the graph may have ops that this worker's TensorFlow does not have."""
    try:
        trainer, worker = (
            tuple(map(int, version.split(".")[:2]))
            for version in (dataset.tf_version, tf.__version__)
        )
    except ValueError as error:
        raise ConfigError(f"{_DAMAGED}: {error}") from error
    if trainer > worker:
        raise ConfigError(
            f"the trainer has TensorFlow {dataset.tf_version}, this worker has {tf.__version__}. "
            "Use a worker image with at least the trainer's version."
        )
