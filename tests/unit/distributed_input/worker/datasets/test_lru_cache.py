"""The cache is bounded in bytes and evicts the least recently used value."""

from __future__ import annotations

from distributed_input.worker.datasets.lru_cache import LruCache


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
