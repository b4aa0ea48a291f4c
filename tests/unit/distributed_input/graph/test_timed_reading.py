"""A loop that only reads, on datasets that end and on those that do not."""

from __future__ import annotations

import io
import itertools
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph.timed_reading import TimedReader, serve


def served(opened: Callable[[], TimedReader], commands: int = 1) -> tuple[int, list[Any]]:
    lines = [json.dumps({"warmup": 0.0, "longest": 60.0, "seconds": 0.0})] * commands
    answers = io.StringIO()
    status = serve(opened, lines, answers)
    return status, [json.loads(line) for line in answers.getvalue().splitlines()]


def test_rows_of_batches_and_of_elements() -> None:
    dataset = tf.data.Dataset.range(10).batch(4)
    assert TimedReader(dataset, batched=True).read(0.0)["rows"] == 4
    assert TimedReader(dataset, batched=False).read(0.0)["rows"] == 1


@pytest.mark.parametrize(
    "part",
    [
        tf.ragged.constant([[1], [2, 3], []]),
        tf.sparse.from_dense([[1, 0], [0, 2], [0, 0]]),
        np.zeros([3, 5000], np.uint8),
        tf.constant(["a", "b", "c"]),
    ],
    ids=["ragged", "sparse", "numbers", "strings"],
)
def test_the_first_component_has_the_rows(part: Any) -> None:
    assert TimedReader([{"a": part, "b": np.int64(7)}], batched=True).read(0.0)["rows"] == 3


def test_a_dataset_that_ends_begins_again() -> None:
    reader = TimedReader(tf.data.Dataset.range(3), batched=False)
    read = [reader.read(0.0) for _ in range(8)]
    assert [one["rows"] for one in read] == [1] * 8
    assert sum(one["epochs"] for one in read) == 2


def test_a_dataset_without_rows_fails() -> None:
    status, answers = served(lambda: TimedReader([], batched=True))
    assert status == 1
    assert [one["event"] for one in answers] == ["failed"]
    assert "no rows" in answers[0]["text"]


def test_a_warm_up_lasts_until_the_first_epoch_has_ended() -> None:
    reader = TimedReader(tf.data.Dataset.range(100), batched=False)
    reader.warm_up(0.0, longest=60.0)
    assert reader.epochs == 1
    endless = TimedReader(tf.data.Dataset.range(1).repeat(), batched=False)
    endless.warm_up(0.0, longest=0.0)
    assert endless.epochs == 0


def test_the_rows_of_the_first_half(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    read = TimedReader(range(100), batched=False).read(10.0)
    assert (read["early_rows"], read["rows"], read["seconds"]) == (4, 9, 10.0)


def test_an_error_of_the_dataset_is_an_answer() -> None:
    def opened() -> TimedReader:
        raise FileNotFoundError("no such folder")

    assert served(opened) == (1, [{"event": "failed", "text": "no such folder"}])


def test_each_command_is_answered() -> None:
    status, answers = served(lambda: TimedReader([1, 2], batched=False), commands=2)
    assert status == 0
    assert [one["event"] for one in answers] == ["ready", *["begun", "measured"] * 2]
    assert answers[2].keys() >= {"rows", "early_rows", "seconds", "cpu", "epochs"}
