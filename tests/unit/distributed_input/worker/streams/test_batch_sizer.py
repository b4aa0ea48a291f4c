"""Quick rows get large batches, and measuring the rate loses no element."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.graph.type_specs import from_tf
from distributed_input.rows.blocks import BLOCK_BYTES
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams import batch_sizer
from distributed_input.worker.streams.batch_sizer import BatchSizer, measure_rate

ROW = from_tf(tf.TensorSpec([128], tf.float32))  # 512 bytes


def job_of(batched: bool = True, rows: int = 64) -> types_pb2.Job:
    return types_pb2.Job(
        dataset_id="d",
        batched=batched,
        global_batch_size=rows,
        partitions=8,
        row_spec=ROW.to_json(),
    )


def split_of(elements: Iterator[int]) -> SplitIterator:
    return SplitIterator(elements, ROW, True)


@pytest.mark.parametrize("batched", [True, False])
def test_the_batch_size_follows_the_rate(batched: bool) -> None:
    sizer, job = BatchSizer(), job_of(batched)
    assert sizer.rows(job) == 8
    assert not sizer.has_rate(job)
    sizer.record_rate(job, 10.0)
    assert sizer.rows(job) == 8
    assert sizer.has_rate(job)
    sizer.record_rate(job, 5000.0)
    assert sizer.rows(job) == 100  # in 20 ms
    sizer.record_rate(job, 1e9)
    assert sizer.rows(job) == BLOCK_BYTES // 512


def test_an_element_has_the_rows_that_are_made_in_parallel() -> None:
    sizer, job = BatchSizer(), job_of()
    sizer.record_calls(job, 4)
    assert sizer.rows(job) == 8, "not less than a step needs"
    sizer.record_calls(job, 64)
    assert sizer.rows(job) == 64
    sizer.record_rate(job, 100.0)
    assert sizer.rows(job) == 20, "in 0.2 s"
    sizer.record_rate(job, 1e9)
    assert sizer.rows(job) == BLOCK_BYTES // 512
    sizer.record_calls(job, 10_000)
    sizer.record_rate(job, 5000.0)
    assert sizer.rows(job) == 256, "memory is bounded"


def test_an_element_is_as_large_as_the_block_that_is_requested() -> None:
    sizer, job = BatchSizer(), job_of()
    sizer.record_rate(job, 1e9)
    assert sizer.rows(job, 3 * BLOCK_BYTES) == 3 * BLOCK_BYTES // 512


def test_an_element_of_rows_of_unknown_size_is_small_until_their_size_is_measured() -> None:
    sizer, job = BatchSizer(), job_of()
    batches = tf.RaggedTensorSpec([None, None], tf.int32)
    job.row_spec = from_tf(batches).unbatched().to_json()
    sizer.record_rate(job, 1e9)
    assert sizer.rows(job) == 8 * 8, "eight steps"
    sizer.record_row_bytes(job, BLOCK_BYTES / 100)
    assert sizer.rows(job) == 100
    job.batched = False
    job.row_spec = from_tf(tf.TensorSpec(None, tf.int32)).to_json()
    assert sizer.rows(job) == 0, "they can be neither batched nor joined"


def test_elements_stay_as_they_are_without_a_global_batch_size() -> None:
    assert BatchSizer().rows(job_of(rows=0)) == 0


def test_measuring_loses_no_element() -> None:
    split, rate, _ = measure_rate(split_of(iter(range(10))), rows=8)
    assert rate is not None
    assert rate > 8 / 0.01
    assert list(split.elements) == list(range(10))


@pytest.mark.parametrize("count", [0, 1])
def test_one_element_is_not_enough_for_a_rate(count: int) -> None:
    split, rate, _ = measure_rate(split_of(iter(range(count))), rows=8)
    assert rate is None
    assert list(split.elements) == list(range(count))


class SlowElements:
    """Elements that take the given seconds. It is also their clock."""

    def __init__(self, *seconds: float) -> None:
        self.now = 0.0
        self.elements = self._produce(seconds)

    def perf_counter(self) -> float:
        return self.now

    def _produce(self, seconds: tuple[float, ...]) -> Iterator[int]:
        for number, one in enumerate(seconds):
            self.now += one
            yield number


@pytest.mark.parametrize(
    ("seconds", "rate"),
    [
        ((0.9, 0.001, 0.002, 0.003), 500.0),  # it fills a buffer first
        ((1.1, 0.001, 0.002, 0.003), None),  # to fill it again would take too long
        ((0.001, 0.02, 0.001, 0.001, 0.002), 750.0),  # a pause
        ((0.001, 0.02, 0.02, 0.001, 0.001, 0.002), 750.0),
        ((0.001, 0.02, 0.02, 0.02, 0.001), None),
        ((0.001, 0.06, 0.001, 0.001), None),  # too slow for another attempt
        ((0.001, 0.02), None),
    ],
)
def test_an_endless_split_is_measured_again_after_a_pause(
    seconds: tuple[float, ...], rate: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = SlowElements(*seconds)
    monkeypatch.setattr(batch_sizer, "time", slow)
    split, found, _ = measure_rate(split_of(slow.elements), rows=1, endless=True)
    assert found == (rate and pytest.approx(rate))
    assert list(split.elements) == list(range(len(seconds)))


def test_slow_elements_have_an_estimate_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowElements(0.5, 0.02, 0.02, 0.02, 0.02)
    monkeypatch.setattr(batch_sizer, "time", slow)
    _, rate, estimate = measure_rate(split_of(slow.elements), rows=40, endless=True)
    assert rate is None
    assert estimate == pytest.approx(2000.0)


@pytest.mark.parametrize(("rate", "is_quick"), [(900.0, False), (1100.0, True)])
def test_a_dataset_is_quick_by_its_rate_or_else_by_an_estimate(rate: float, is_quick: bool) -> None:
    sizer = BatchSizer()
    assert not sizer.is_quick(job_of())
    sizer.record_estimate(job_of(), rate)
    assert sizer.is_quick(job_of()) is is_quick
    sizer.record_rate(job_of(), 2000.0 - rate)
    assert sizer.is_quick(job_of()) is not is_quick


def test_slow_elements_are_not_produced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0.0, 0.02)  # each element takes 20 ms
    monkeypatch.setattr(batch_sizer.time, "perf_counter", lambda: next(ticks))
    produced: list[int] = []

    def slow() -> Iterator[int]:
        for i in range(3):
            produced.append(i)
            yield i

    split, rate, estimate = measure_rate(split_of(slow()), rows=8)
    assert rate is None
    assert estimate == pytest.approx(400.0)
    assert produced == [0]
    assert list(split.elements) == produced == [0, 1, 2]


def test_an_error_is_raised_after_the_elements_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad record")

    split, rate, _ = measure_rate(split_of(broken()), rows=8)
    assert rate is None
    assert next(split.elements) == 1
    with pytest.raises(ValueError, match="bad record"):
        next(split.elements)
