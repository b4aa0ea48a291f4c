"""The graph cache is bounded in bytes and evicts the least recently used graph."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.tfdata.random.selections import OwnOps
from distributed_input.worker.datasets import graph_cache
from distributed_input.worker.datasets.graph_cache import GraphCache, SplitGraph


def graph() -> SplitGraph:
    return SplitGraph(tf.compat.v1.GraphDef(), None, (), OwnOps({}, frozenset()))


@pytest.fixture(autouse=True)
def _limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_cache, "_MAX_BYTES", 10)
    monkeypatch.setattr(graph_cache, "_MAX_GRAPH_BYTES", 6)


def test_the_least_recently_used_graph_is_evicted() -> None:
    cache = GraphCache()
    first, second, third = graph(), graph(), graph()
    cache.put(b"1", first, 4)
    cache.put(b"2", second, 5)
    assert cache.get(b"1") is first
    cache.put(b"3", third, 4)
    assert cache.get(b"2") is None
    assert cache.get(b"1") is first
    assert cache.get(b"3") is third


def test_a_large_graph_is_not_stored() -> None:
    cache = GraphCache()
    cache.put(b"1", graph(), 7)
    assert cache.get(b"1") is None


def test_a_replaced_graph_does_not_count_twice() -> None:
    cache = GraphCache()
    other, replacement = graph(), graph()
    cache.put(b"1", graph(), 5)
    cache.put(b"2", other, 5)
    cache.put(b"1", replacement, 5)
    assert cache.get(b"1") is replacement
    assert cache.get(b"2") is other


def test_the_key_depends_on_job_seed_and_split() -> None:
    jobs = [types_pb2.Job(name="a"), types_pb2.Job(name="b")]
    keys = {GraphCache.key(job, seed, split) for job in jobs for seed in (0, 1) for split in (0, 1)}
    assert len(keys) == 8
