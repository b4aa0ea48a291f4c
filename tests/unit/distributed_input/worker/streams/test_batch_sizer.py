"""Quick rows get large batches, and measuring the rate loses no element."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.tfdata.type_specs import from_tf
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams import batch_sizer
from distributed_input.worker.streams.batch_sizer import BatchSizer, measure_rate
from distributed_input.worker.streams.element_rows import BLOCK_BYTES

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


def test_elements_stay_as_they_are_without_a_global_batch_size() -> None:
    assert BatchSizer().rows(job_of(rows=0)) == 0


def test_measuring_loses_no_element() -> None:
    split, rate = measure_rate(split_of(iter(range(10))), rows=8)
    assert rate is not None
    assert rate > 8 / 0.01
    assert list(split.elements) == list(range(10))


@pytest.mark.parametrize("count", [0, 1])
def test_one_element_is_not_enough_for_a_rate(count: int) -> None:
    split, rate = measure_rate(split_of(iter(range(count))), rows=8)
    assert rate is None
    assert list(split.elements) == list(range(count))


class Clock:
    """Seconds that pass while a split produces elements."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(batch_sizer.time, "perf_counter", lambda: self.now)

    def elements(self, *seconds: float) -> Iterator[int]:
        for index, taken in enumerate(seconds):
            self.now += taken
            yield index


def test_a_quick_dataset_is_measured_without_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    split, rate = measure_rate(split_of(clock.elements(0.005, *[0.001] * 9)), rows=8)
    assert rate == pytest.approx(8 / 0.001)
    assert clock.now == pytest.approx(0.008)
    assert list(split.elements) == list(range(10))


def test_rows_that_come_together_count_from_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    burst = [0.04, *[0.0] * 7]
    split, rate = measure_rate(split_of(clock.elements(*burst * 4)), rows=8)
    assert rate == pytest.approx(17 * 8 / 0.12)  # it ends with the first element after 0.1 s
    assert list(split.elements) == list(range(32))


def test_the_measured_elements_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    split, rate = measure_rate(split_of(clock.elements(0.02, *[0.0] * 99)), rows=8)
    assert rate == pytest.approx(32 * 8 / 0.02)
    assert list(split.elements) == list(range(100))


def test_slow_elements_are_not_produced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    split, rate = measure_rate(split_of(clock.elements(0.11, 0.11, 0.11)), rows=8)
    assert rate is None
    assert clock.now == 0.11
    assert list(split.elements) == [0, 1, 2]


def test_an_element_does_not_wait_for_the_next_one() -> None:
    goes_on = threading.Event()

    def hanging() -> Iterator[int]:
        yield 0
        goes_on.wait()
        yield from (1, 2)

    split, rate = measure_rate(split_of(hanging()), rows=8)
    assert rate is None
    assert next(split.elements) == 0
    goes_on.set()
    assert list(split.elements) == [1, 2]


def test_an_error_is_raised_after_the_elements_before_it() -> None:
    def broken() -> Iterator[int]:
        yield 1
        raise ValueError("bad record")

    split, rate = measure_rate(split_of(broken()), rows=8)
    assert rate is None
    assert next(split.elements) == 1
    with pytest.raises(ValueError, match="bad record"):
        next(split.elements)
