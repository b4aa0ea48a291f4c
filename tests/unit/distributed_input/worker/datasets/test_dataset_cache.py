"""Datasets are fetched once, and evicted when the cache is full."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import dataset_cache
from distributed_input.worker.datasets.dataset_cache import DatasetCache, LruCache


class CountingFetch:
    """Returns datasets that contain their id, and records the ids."""

    def __init__(self, tf_version: str = tf.__version__) -> None:
        self.ids: list[str] = []
        self._tf_version = tf_version

    def __call__(self, dataset_id: str) -> bytes:
        self.ids.append(dataset_id)
        dataset = types_pb2.GraphDataset(tf_version=self._tf_version, graphs=[dataset_id.encode()])
        return dataset.SerializeToString()


def test_a_dataset_is_fetched_once() -> None:
    fetch = CountingFetch()
    cache = DatasetCache(fetch)
    assert [cache.get(name).graphs[0] for name in "aba"] == [b"a", b"b", b"a"]
    assert fetch.ids == ["a", "b"]


def test_a_full_cache_evicts_the_least_recently_used_dataset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = DatasetCache(CountingFetch()).get("a").ByteSize()
    monkeypatch.setattr(dataset_cache, "_MAX_BYTES", 2 * size)
    fetch = CountingFetch()
    cache = DatasetCache(fetch)
    for name in "abacab":
        cache.get(name)
    assert fetch.ids == ["a", "b", "c", "b"]


def test_only_a_dataset_of_a_newer_tensorflow_is_refused() -> None:
    assert DatasetCache(CountingFetch(tf_version="2.1.0")).get("a").graphs[0] == b"a"
    with pytest.raises(ConfigError, match=r"TensorFlow 99\.0\.0"):
        DatasetCache(CountingFetch(tf_version="99.0.0")).get("a")


@pytest.mark.parametrize(
    "data", [b"\xff" * 20, types_pb2.GraphDataset(tf_version="x").SerializeToString()]
)
def test_bytes_that_are_not_a_dataset_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="something else than a dataset"):
        DatasetCache(lambda _: data).get("a")


def test_the_least_recently_used_value_is_evicted() -> None:
    cache: LruCache[str] = LruCache(10)
    cache.put(1, "first", 4)
    cache.put(2, "second", 5)
    assert cache.get(1) == "first"
    cache.put(3, "third", 4)
    assert [cache.get(key) for key in (1, 2, 3)] == ["first", None, "third"]


def test_one_value_larger_than_the_cache_is_kept_until_the_next_one() -> None:
    cache: LruCache[str] = LruCache(10)
    cache.put(1, "large", 11)
    assert cache.get(1) == "large"
    cache.put(2, "small", 1)
    assert [cache.get(key) for key in (1, 2)] == [None, "small"]


def test_a_replaced_value_does_not_count_twice() -> None:
    cache: LruCache[str] = LruCache(10)
    cache.put(1, "first", 5)
    cache.put(2, "second", 5)
    cache.put(1, "replacement", 5)
    assert [cache.get(key) for key in (1, 2)] == ["replacement", "second"]
