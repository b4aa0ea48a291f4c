"""Quick rows come many at once; finding out how quick they are loses none."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.tfdata.type_specs import from_tf
from distributed_input.worker.datasets.sources import Source
from distributed_input.worker.streams.batch_sizer import Pace, tried
from distributed_input.worker.streams.stream import BLOCK_BYTES

ROW = from_tf(tf.TensorSpec([128], tf.float32))  # 512 bytes


def job(batched: bool = True, rows: int = 64) -> types_pb2.Job:
    return types_pb2.Job(
        dataset_id="d",
        batched=batched,
        global_batch_size=rows,
        partitions=8,
        row_spec=ROW.to_json(),
    )


def source_of(elements: Iterator[int]) -> Source:
    return Source(elements, ROW, True)


@pytest.mark.parametrize("batched", [True, False])
def test_as_many_rows_as_the_pace_allows(batched: bool) -> None:
    pace, one = Pace(), job(batched)
    assert pace.rows(one) == 8
    assert not pace.knows(one)
    pace.learn(one, 10.0)
    assert pace.rows(one) == 8
    assert pace.knows(one)
    pace.learn(one, 5000.0)
    assert pace.rows(one) == 100  # in 20 ms
    pace.learn(one, 1e9)
    assert pace.rows(one) == BLOCK_BYTES // 512


def test_elements_of_no_known_size_stay() -> None:
    assert Pace().rows(job(rows=0)) == 0


def test_trying_takes_nothing_away() -> None:
    again, rate = tried(source_of(iter(range(10))), rows=8)
    assert rate is not None
    assert rate > 8 / 0.01
    assert list(again.elements) == list(range(10))


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_elements_tell_no_pace(count: int) -> None:
    again, rate = tried(source_of(iter(range(count))), rows=8)
    assert rate is None
    assert list(again.elements) == list(range(count))


def test_slow_elements_are_not_made_again() -> None:
    made: list[int] = []

    def slow() -> Iterator[int]:
        for i in range(3):
            time.sleep(0.02)  # is what is slow
            made.append(i)
            yield i

    again, rate = tried(source_of(slow()), rows=8)
    assert rate is None
    assert made == [0]
    assert list(again.elements) == made == [0, 1, 2]


def test_an_error_comes_where_its_element_is_wanted() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad record")

    again, rate = tried(source_of(broken()), rows=8)
    assert rate is None
    assert next(again.elements) == 1
    with pytest.raises(ValueError, match="bad record"):
        next(again.elements)
