"""Reading a dispatcher's status answer within bounds.

The image of a dispatcher is the choice of its user, so an answer may have any content. It must
neither fill the operator's memory nor put values into the status that the API server refuses. A
small answer can become large when it is parsed, so entries are parsed one at a time.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.message import DecodeError

from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    ConsumerInfo,
    StatusResponse,
    WorkerInfo,
)
from distributed_input.api.proto.types_pb2 import Job, SkippedRecord
from distributed_input.api.stalls import MAX_FAILURE_TEXT, failure_text, skipped_text
from distributed_input_operator.autoscaling.rates import (
    ConsumerCounters,
    DispatcherSample,
    SkippedRecords,
    WorkerCounters,
)
from distributed_input_operator.kube.json_text import shared

MAX_BYTES = 4 << 20
MAX_ENTRIES = 10_000
"""Maximum number of workers, consumers and jobs together. An input has at most 1,000 worker pods
and 4,096 trainers, each maybe with a worker of its own."""
MAX_ENTRY_BYTES = 16 << 10
"""Maximum size of one worker or consumer. A real one has less than 1 KiB."""
MAX_TEXT = 256
"""Maximum length of a text that is kept."""
_MAX_COUNT = 2**53
"""Larger numbers are not exact as a float, and the API server refuses them in a status."""
_LENGTH_DELIMITED = 2
_FIXED_BYTES = {1: 8, 5: 4}
_WORKERS, _CONSUMERS, _JOBS, _SKIPPED, _SKIPPED_RECORDS = (
    StatusResponse.DESCRIPTOR.fields_by_name[name].number
    for name in ("workers", "consumers", "jobs", "skipped", "skipped_records")
)


class UnusableAnswer(Exception):
    """The operator does not use an answer. The message says why, without values from it."""


def parse_answer(data: bytes, now: float) -> DispatcherSample:
    """Return the counters in a serialized StatusResponse, received at time `now`.

    Texts are kept once, because the next answer has the same ones.

    Raises:
        UnusableAnswer: the answer has too many or too large entries, or is malformed.
    """
    workers: dict[str, WorkerCounters] = {}
    consumers: dict[str, ConsumerCounters] = {}
    amplification = skipped_records = 0
    last_skipped = ""
    try:
        for count, (field, content) in enumerate(_fields(memoryview(data)), 1):
            # Other fields count too, because each costs time.
            if count > MAX_ENTRIES:
                raise UnusableAnswer(f"it has more than {MAX_ENTRIES} workers, consumers and jobs")
            if isinstance(content, int):
                skipped_records = content if field == _SKIPPED_RECORDS else skipped_records
            elif field == _JOBS:
                amplification = max(amplification, Job.FromString(content).read_amplification)
            elif field in (_WORKERS, _CONSUMERS, _SKIPPED) and len(content) > MAX_ENTRY_BYTES:
                raise UnusableAnswer(
                    f"one worker, consumer or record has more than {MAX_ENTRY_BYTES >> 10} KiB"
                )
            elif field == _SKIPPED:
                last_skipped = _skipped(SkippedRecord.FromString(content))
            elif field == _WORKERS:
                worker = WorkerInfo.FromString(content)
                workers[_cut(worker.worker_id)] = _worker(worker)
            elif field == _CONSUMERS:
                last = ConsumerInfo.FromString(content).last
                key = f"{_cut(last.job)}/{last.index}/{_cut(last.incarnation)}"
                consumers[shared(key)] = _consumer(last)
    except (DecodeError, IndexError, UnicodeDecodeError):
        raise UnusableAnswer("it is not a StatusResponse") from None
    skipped = SkippedRecords(_count(skipped_records), shared(last_skipped))
    return DispatcherSample(now, consumers, workers, amplification, skipped)


def _fields(data: memoryview) -> Iterator[tuple[int, bytes | int]]:
    """Yield number and content of each field of a message. A number of a fixed size has none.

    Raises IndexError or DecodeError if the message is malformed.
    """
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        wire = tag & 7
        if wire == 0:
            value, place = _varint(data, place)
            yield tag >> 3, value
        elif wire in _FIXED_BYTES:
            place += _FIXED_BYTES[wire]
            yield 0, b""
        elif wire == _LENGTH_DELIMITED:
            length, place = _varint(data, place)
            if length > len(data) - place:
                raise DecodeError("a field is longer than its message")
            yield tag >> 3, bytes(data[place : place + length])
            place += length
        else:
            raise DecodeError(f"wire type {wire}")


def _varint(data: memoryview, place: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
    raise DecodeError("a number has more than 10 bytes")


def _consumer(one: ConsumerHeartbeatRequest) -> ConsumerCounters:
    return ConsumerCounters(
        rows=_count(one.rows),
        wait=_seconds(one.wait_seconds),
        wall=_seconds(one.wall_seconds),
        useful_workers=one.useful_workers,
        useful_limit=_cut(one.useful_limit),
        finished=one.finished,
        batches=_count(one.batches),
        mismatches=_count(one.replay_mismatches),
        pod=_cut(one.pod),
    )


def _worker(one: WorkerInfo) -> WorkerCounters:
    longest = max(one.stalled, key=lambda split: split.seconds, default=None)
    stalled = f"split {longest.split} of dataset {_cut(longest.dataset)}" if longest else ""
    return WorkerCounters(
        address=_cut(one.worker_id if one.pod else one.address),
        rows=_count(one.rows),
        busy=_seconds(one.busy_seconds),
        streams=one.open_streams,
        stalled=shared(stalled),
        stalled_seconds=_seconds(longest.seconds) if longest else 0.0,
        pod=_cut(one.pod),
        permits=_seconds(one.permit_seconds),
        failure=shared(failure_text(one.failure)[:MAX_FAILURE_TEXT])
        if one.HasField("failure")
        else "",
    )


def _skipped(one: SkippedRecord) -> str:
    """Return one line without the record's own text, which not all readers of the input may see."""
    one.ClearField("record")
    return f"dataset {one.dataset}: {skipped_text(one)}"[:MAX_FAILURE_TEXT]


def _cut(value: str) -> str:
    return shared(value[:MAX_TEXT])


def _count(value: int) -> int:
    if value > _MAX_COUNT:
        raise UnusableAnswer("a counter is not a number of rows, batches, replays or records")
    return value


def _seconds(value: float) -> float:
    if not 0 <= value <= _MAX_COUNT:  # Also refuses NaN.
        raise UnusableAnswer("a time is not a number of seconds")
    return value
