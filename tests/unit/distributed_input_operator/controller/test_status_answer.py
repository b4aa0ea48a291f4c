"""The counters in a status answer, and answers that are refused."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as some

from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    ConsumerInfo,
    StatusResponse,
    WorkerInfo,
)
from distributed_input.api.proto.types_pb2 import DatasetFailure, Job, SkippedRecord, StalledSplit
from distributed_input.api.stalls import MAX_FAILURE_TEXT
from distributed_input_operator.autoscaling.rates import DispatcherSample, measure
from distributed_input_operator.controller.status_answer import (
    MAX_ENTRIES,
    MAX_TEXT,
    UnusableAnswer,
    parse_answer,
)


def parsed(response: StatusResponse) -> DispatcherSample:
    return parse_answer(response.SerializeToString(), 0.0)


def test_the_split_that_stalls_for_the_longest_time_is_measured():
    def stalled(split: int, seconds: float) -> StalledSplit:
        return StalledSplit(dataset="data:rows", split=split, seconds=seconds)

    workers = [
        WorkerInfo(worker_id="a", address="h:1", stalled=[stalled(3, 20), stalled(4, 12)]),
        WorkerInfo(worker_id="b", address="h:2", stalled=[stalled(5, 40)]),
        WorkerInfo(worker_id="c", address="h:3"),
    ]
    sample = parsed(StatusResponse(workers=workers))
    assert measure(None, sample).stalled == "split 5 of dataset data:rows, worker h:2"


def test_an_error_of_the_dataset_is_measured():
    failures = [DatasetFailure(dataset="data:rows", message=name) for name in ("no b", "no a")]
    workers = [
        WorkerInfo(worker_id=str(at), address=f"h:{at}", failure=one)
        for at, one in enumerate(failures)
    ]
    found = measure(None, parsed(StatusResponse(workers=[*workers, WorkerInfo(worker_id="w")])))
    assert found.failing == "dataset data:rows: no a, worker h:1"
    # Another worker's error does not change it.
    workers[0].failure.message = "no c"
    assert measure(None, parsed(StatusResponse(workers=workers))).failing == found.failing
    assert measure(None, parsed(StatusResponse(workers=[WorkerInfo()]))).failing == ""


SKIPPED = SkippedRecord(
    dataset="data:rows",
    epoch=1,
    split=2,
    step="parse",
    index=33,
    file="a.jsonl",
    record="secret",
    error="ValueError: no id",
)


def test_the_last_skipped_record_is_measured_without_its_own_text():
    response = StatusResponse(skipped=[SkippedRecord(index=1), SKIPPED], skipped_records=7)
    found = measure(None, parsed(response)).skipped
    assert (found.count, found.last) == (
        7,
        "dataset data:rows: record 33 of a.jsonl in parse, epoch 1, split 2: ValueError: no id",
    )
    found = measure(None, parsed(StatusResponse())).skipped
    assert (found.count, found.last) == (0, "")


def test_a_number_in_place_of_an_entry_is_ignored():
    """Any program may be the dispatcher."""
    fields = StatusResponse.DESCRIPTOR.fields_by_name
    for name in ("workers", "consumers", "jobs"):
        assert parse_answer(bytes([fields[name].number << 3, 5]), 0.0).size == 0


def test_the_pods_of_workers_and_consumers_are_measured():
    beat = ConsumerHeartbeatRequest(job="train", pod="p")
    workers = [
        WorkerInfo(worker_id="own", address="127.0.0.1:1", pod="p", permit_seconds=2.5),
        WorkerInfo(worker_id="w", address="h:1"),
    ]
    sample = parsed(StatusResponse(workers=workers, consumers=[ConsumerInfo(last=beat)]))
    assert [one.pod for one in sample.consumers.values()] == ["p"]
    own = sample.workers["own"]
    # An address within a pod is of no use to people.
    assert (own.pod, own.permits, own.address) == ("p", 2.5, "own")
    assert (sample.workers["w"].pod, sample.workers["w"].address) == ("", "h:1")


def test_the_largest_read_amplification_of_the_jobs_is_measured():
    jobs = [Job(read_amplification=4), Job(read_amplification=8), Job()]
    assert measure(None, parsed(StatusResponse(jobs=jobs))).amplification == 8
    assert measure(None, parsed(StatusResponse())).amplification == 0


def test_the_largest_real_answer_is_used():
    """1,000 workers, 4,096 trainers with a worker each, and a job of 100,000 splits."""
    name = "an-input-with-a-long-name-worker-7c9d8b6f5-abcde"
    beat = ConsumerHeartbeatRequest(
        job="train", incarnation="x" * 40, pod="x" * 36, waiting_for="y" * 80, rows=10**12
    )
    response = StatusResponse(
        workers=[WorkerInfo(worker_id=f"{name}{i}", node="n" * 50, rows=i) for i in range(5096)],
        jobs=[Job(name="train", definitions=[2**63] * 100_000)],
    )
    for i in range(4096):
        beat.index = i
        response.consumers.add(last=beat)
    sample = parsed(response)
    assert (len(sample.workers), len(sample.consumers)) == (5096, 4096)


def test_texts_are_cut():
    beat = ConsumerHeartbeatRequest(useful_limit="x" * 5000, pod="y" * 5000, job="z" * 5000)
    (one,) = parsed(StatusResponse(consumers=[ConsumerInfo(last=beat)])).consumers.items()
    assert (len(one[1].useful_limit), len(one[1].pod)) == (MAX_TEXT, MAX_TEXT)
    assert len(one[0]) < 2 * MAX_TEXT
    worker = WorkerInfo(failure=DatasetFailure(dataset="x" * 2000, message="y" * 2000))
    (found,) = parsed(StatusResponse(workers=[worker])).workers.values()
    assert len(found.failure) == MAX_FAILURE_TEXT
    skipped = SkippedRecord(dataset="x" * 2000, error="y" * 2000)
    assert len(parsed(StatusResponse(skipped=[skipped])).skipped.last) == MAX_FAILURE_TEXT


@pytest.mark.parametrize(
    ("response", "message"),
    [
        (StatusResponse(workers=[WorkerInfo()] * (MAX_ENTRIES + 1)), "more than 10000 workers"),
        (StatusResponse(jobs=[Job()] * (MAX_ENTRIES + 1)), "more than 10000 workers"),
        (StatusResponse(workers=[WorkerInfo(node="x" * 20_000)]), "more than 16 KiB"),
        (StatusResponse(workers=[WorkerInfo(stalled=[StalledSplit()] * 9_000)]), "16 KiB"),
        (StatusResponse(skipped=[SkippedRecord(error="x" * 20_000)]), "more than 16 KiB"),
        (StatusResponse(skipped_records=2**60), "a counter"),
        (StatusResponse(workers=[WorkerInfo(busy_seconds=math.nan)]), "number of seconds"),
        (StatusResponse(workers=[WorkerInfo(permit_seconds=math.inf)]), "number of seconds"),
        (StatusResponse(workers=[WorkerInfo(busy_seconds=-1)]), "number of seconds"),
        (StatusResponse(workers=[WorkerInfo(rows=2**63)]), "a counter"),
        (
            StatusResponse(consumers=[ConsumerInfo(last=ConsumerHeartbeatRequest(batches=2**60))]),
            "a counter",
        ),
    ],
)
def test_an_answer_beyond_the_bounds_is_refused(response, message):
    with pytest.raises(UnusableAnswer, match=message):
        parsed(response)


@pytest.mark.parametrize("field", [b"\x10\x00", b"\x12\x00", b"\x15\x00\x00\x00\x00"])
def test_an_answer_with_too_many_other_fields_is_refused(field):
    """A million small fields would occupy the operator for a second."""
    with pytest.raises(UnusableAnswer, match="more than 10000"):
        parse_answer(field * (MAX_ENTRIES + 1), 0.0)


@given(some.binary(max_size=200))
def test_any_bytes_are_parsed_or_refused(data):
    try:
        parse_answer(data, 0.0)
    except UnusableAnswer:
        pass


@given(some.integers(0, 5), some.integers(0, 5), some.binary(max_size=20))
def test_a_truncated_answer_is_refused_or_has_the_first_entries(workers, consumers, name):
    response = StatusResponse(
        workers=[WorkerInfo(worker_id=str(i), node=name.hex()) for i in range(workers)],
        consumers=[ConsumerInfo(last=ConsumerHeartbeatRequest(index=i)) for i in range(consumers)],
    )
    data = response.SerializeToString()
    assert len(parse_answer(data, 0.0).workers) == workers
    for end in range(len(data)):
        try:
            found = parse_answer(data[:end], 0.0)
        except UnusableAnswer:
            continue
        assert found.size < workers + consumers
