"""An entry point's splits: built once where that is enough, and the same rows as built anew."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import graph_cache as definitions
from distributed_input.worker.datasets.sources import Sources, describe

# What a split is made of, by function; CALLS counts them.
_CODE = """
import random
import numpy as np
import tensorflow as tf

CALLS = []

def rows(context, size=1):
    CALLS.append(context.input_pipeline_id)
    data = tf.data.Dataset.range(40).shuffle(40)
    data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    padding = np.zeros(size, np.uint8)
    return data.map(lambda row: (row, tf.random.uniform([]), tf.reduce_sum(padding)))

def by_epoch(context):
    return rows(context).map(lambda *row: (*row, context.epoch))

def by_seed(context):
    return rows(context).map(lambda *row: (*row, context.seed))

def by_python(context):
    drawn = random.random()
    return rows(context).map(lambda *row: (*row, drawn))

def by_numpy(context):
    drawn = np.random.random()
    return rows(context).map(lambda *row: (*row, drawn))
"""


@pytest.fixture
def calls(tmp_path: Path) -> Iterator[list[int]]:
    """The splits for which the entry point was called."""
    (tmp_path / "splits_of_test.py").write_text(_CODE)
    sys.path.insert(0, str(tmp_path))
    import splits_of_test  # type: ignore[import-not-found]

    yield splits_of_test.CALLS
    sys.path.remove(str(tmp_path))
    del sys.modules["splits_of_test"]


def job(function: str, args: str = "") -> types_pb2.Job:
    entry = types_pb2.EntryPoint(target=f"splits_of_test:{function}", args_json=args)
    return describe(types_pb2.Job(name="any", entry_point=entry, num_splits=2, partitions=1))


def read(sources: Sources, of: types_pb2.Job, epoch: int, split: int) -> list[Any]:
    return [
        tuple(np.asarray(part).tolist() for part in row)
        for row in sources.open(of, 0, epoch, split, 0).elements
    ]


def new() -> Sources:
    return Sources(lambda _: b"")


def test_a_split_is_built_once_and_each_epoch_has_the_rows_that_it_would_have_anyway(calls):
    of, kept = job("rows"), new()
    calls.clear()
    first = {(epoch, split): read(kept, of, epoch, split) for epoch in range(3) for split in (0, 1)}
    assert calls == [0, 1]
    assert first == {key: read(new(), of, *key) for key in first}
    # Epochs differ in order and in augmentation, and both splits make up the whole.
    assert first[0, 0] != first[1, 0]
    assert sorted(row for row, *_ in first[2, 0] + first[2, 1]) == list(range(40))


@pytest.mark.parametrize("function", ["by_epoch", "by_seed", "by_python", "by_numpy"])
def test_what_depends_on_the_epoch_is_built_for_each(calls, function):
    of, kept = job(function), new()
    calls.clear()
    told = [{row[3] for row in read(kept, of, epoch, 0)} for epoch in (0, 1, 0)]
    assert calls == [0, 0, 0]
    assert told[0] == told[2] != told[1]


def test_what_is_kept_is_bounded(calls, monkeypatch):
    of, large, kept = job("rows"), job("rows", '{"size": 5000000}'), new()
    calls.clear()
    read(kept, large, 0, 0)
    read(kept, large, 1, 0)
    assert calls == [0, 0]  # holds data
    monkeypatch.setattr(definitions, "_BYTES", 1)
    read(kept, of, 0, 0)
    read(kept, of, 1, 0)
    assert calls == [0, 0, 0, 0]


def test_seeds_and_jobs_do_not_share(calls):
    of, kept = job("rows"), new()
    read(kept, of, 0, 0)
    calls.clear()
    list(kept.open(of, 1, 0, 0, 0).elements)
    read(kept, job("rows", '{"size": 2}'), 0, 0)
    assert calls.count(0) >= 2
