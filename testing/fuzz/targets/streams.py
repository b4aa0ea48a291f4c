"""Requests and answers that change which streams are open between sidecars and workers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from google.protobuf.message import DecodeError

from distributed_input.api.errors import ProtocolError
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.api.protocol import PROTOCOL, heartbeat_interval
from distributed_input.link.blocks.open_streams import OpenStreams
from distributed_input.link.blocks.sender import Connection
from distributed_input.link.credentials import Credentials
from distributed_input.rows.prefix import DIGEST_VERSION
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from distributed_input.worker.states.split_states import SplitStates
from testing.fuzz.target import Subject, Target


def _answers() -> Subject:
    """The answer to a heartbeat. gRPC itself handles messages that it cannot parse."""

    def parse(data: bytes) -> None:
        answer = dispatcher_pb2.ConsumerHeartbeatResponse.FromString(data)
        pool, facts = WorkerPool(Credentials()), PartitionFacts()
        try:
            pool.update(answer.workers)
            facts.merge(answer.facts)
            for fact in answer.facts:
                facts.of(fact.epoch, fact.partition).last_border(2**64)
            assert 0.1 <= heartbeat_interval(answer.interval_seconds) <= 60
        finally:
            pool.close()

    worker = dispatcher_pb2.WorkerInfo(
        worker_id="w", address="127.0.0.1:7071", capacity=2, buffer_bytes=1 << 20
    )
    fact = dispatcher_pb2.PartitionFact(epoch=1, partition=2, split_rows=[3, 4], rows_seen=7)
    answer = dispatcher_pb2.ConsumerHeartbeatResponse(
        dispatcher_id="d", workers=[worker], facts=[fact], interval_seconds=1.0
    )
    return Subject(parse, [answer.SerializeToString()], (DecodeError,))


def _connects() -> Subject:
    """Requests of one connection to a worker, whose splits produce nothing."""
    stage: Any = SimpleNamespace(close=lambda: None)
    streams, states = OpenStreams(100), SplitStates()

    def parse(data: bytes) -> None:
        connection = Connection(lambda *_: stage, streams)
        try:
            request = worker_pb2.ConnectRequest.FromString(data)
            connection.handle(request)
            for one in request.open:
                states.find(one.request)
        finally:
            connection.close()

    job = types_pb2.Job(name="train", num_splits=8, partitions=4, row_spec="{}")
    request = worker_pb2.StreamRequest(
        job=job, epoch=1, split=3, start_row=100, protocol=PROTOCOL, resume_token=b"DIS2",
        digest_version=DIGEST_VERSION,
    )  # fmt: skip
    opened = worker_pb2.OpenStream(stream=1, request=request, credit=1 << 20)
    credit = worker_pb2.StreamCredit(stream=1, credit=1 << 21)
    seeds = [
        worker_pb2.ConnectRequest(open=[opened], credits=[credit]).SerializeToString(),
        worker_pb2.ConnectRequest(close=[1, 1]).SerializeToString(),
    ]
    return Subject(parse, seeds, (DecodeError, ProtocolError))


TARGETS = (
    Target("streams/answers", "dispatcher → sidecar: answer to a heartbeat", _answers, 0.2),
    Target("streams/connects", "sidecar → worker: requests of a connection", _connects),
)
