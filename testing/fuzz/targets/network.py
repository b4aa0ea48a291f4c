"""What arrives on sockets and gRPC: direct connections, heartbeats, answers and identities."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import time
from hashlib import sha256
from typing import Any

from google.protobuf.message import DecodeError

from distributed_input.api import identity
from distributed_input.api.errors import DistributedInputError
from distributed_input.api.identity import ROLES, Identity
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.dispatcher.datasets import DatasetUpload
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.blocks import direct_sender, shared_region
from distributed_input.link.blocks.message_socket import MessageSocket
from distributed_input.link.blocks.shared_region import RegionReader, RegionWriter
from distributed_input_operator.controller.status_answer import UnusableAnswer, parse_answer
from testing.fuzz.target import Subject, Target

_REGION = 1 << 18
_LENGTH = struct.Struct("<Q")


def _sent(data: bytes) -> tuple[socket.socket, socket.socket]:
    """Return a socket that has received the data and then the end, and its peer."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    theirs.setblocking(False)
    try:
        theirs.send(data)  # what does not fit is lost
        theirs.shutdown(socket.SHUT_WR)
    except OSError:
        theirs.close()
    return ours, theirs


def _messages(reader: RegionReader | None) -> Subject:
    def parse(data: bytes) -> None:
        ours, theirs = _sent(data)
        receiving = MessageSocket(ours, reader)
        try:
            while (message := receiving.receive()) is not None:
                message.tobytes()
        finally:
            receiving.close()
            theirs.close()

    plain = b"".join(_LENGTH.pack(len(one)) + one for one in (b"rows", b"", b"more rows" * 50))
    seeds = [plain, _LENGTH.pack(0)]
    if reader is not None:
        shared = 1 << 63
        seeds += [
            _LENGTH.pack(shared | 40_000) + _LENGTH.pack(0),
            _LENGTH.pack(shared | 70_000) + _LENGTH.pack(65536) + plain,
        ]
    return Subject(parse, seeds, (OSError, ValueError))


def _region_messages() -> Subject:
    with shared_region.created(_REGION) as descriptor:
        return _messages(RegionReader(descriptor))


def _regions() -> Subject:
    """The descriptor that a sidecar sends: a file of any size and content."""

    def parse(data: bytes) -> None:
        with shared_region.created(_REGION) as descriptor:
            os.pwrite(descriptor, data[:_REGION], 0)  # the flags of chunks, and messages
            writer = RegionWriter(descriptor)
            for size in (1, 70_000, _REGION, len(data)):
                writer.place([memoryview(bytes(size))], size)
        plain = os.memfd_create("fuzz", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(plain, int.from_bytes(data[:4], "little"))
            with contextlib.suppress(OSError, ValueError):
                RegionWriter(plain)
        finally:
            os.close(plain)

    return Subject(parse, [bytes(range(64)), bytes(4096)], (OSError, ValueError))


def _tickets() -> Subject:
    def parse(data: bytes) -> None:
        ours, theirs = _sent(data)
        try:
            direct_sender._read_ticket(ours, [])
        finally:
            ours.close()
            theirs.close()

    return Subject(parse, [bytes(32), bytes(range(40))], (OSError,))


def _heartbeats() -> Subject:
    """The dispatcher's state keeps what all inputs before have left."""
    state = DispatcherState("d-1", 0.0, DispatcherLimits(workers=100, consumers=100, jobs=50))
    kinds = (
        dispatcher_pb2.WorkerHeartbeatRequest,
        dispatcher_pb2.ConsumerHeartbeatRequest,
        dispatcher_pb2.RegisterJobRequest,
        dispatcher_pb2.GetJobRequest,
        dispatcher_pb2.DatasetChunk,
    )

    def parse(data: bytes) -> None:
        now, kind = time.monotonic(), data[0] % len(kinds) if data else 0
        message: Any = kinds[kind].FromString(data[1:])
        if kind == 0:
            state.worker_beat(now, message)
        elif kind == 1:
            state.consumer_beat(now, message)
        elif kind == 2:
            state.jobs.register(now, message.job, message.incarnation)
        elif kind == 3:
            state.jobs.get(now, message.name, message.other_than)
        else:
            upload = DatasetUpload(message.dataset_id)
            upload.add(message.data)
            upload.finish()
        state.status(now)
        if data[-1:] < b"\x02":
            state.expire(now)

    fact = dispatcher_pb2.PartitionFact(epoch=1, partition=2)
    worker = dispatcher_pb2.WorkerHeartbeatRequest(
        protocol=PROTOCOL, worker_id="w", address="10.0.0.1:7071", pod="p", rows=5
    )
    consumer = dispatcher_pb2.ConsumerHeartbeatRequest(
        protocol=PROTOCOL, job="train", index=0, count=2, incarnation="a", facts=[fact]
    )
    job = types_pb2.Job(
        name="train", dataset_id="0" * 64, partitions=4, num_splits=8, row_spec="{}"
    )
    register = dispatcher_pb2.RegisterJobRequest(job=job, incarnation="a")
    graph = b"graph"
    chunk = dispatcher_pb2.DatasetChunk(dataset_id=sha256(graph).hexdigest(), data=graph)
    get = dispatcher_pb2.GetJobRequest(name="train")
    messages = (worker, consumer, register, get, chunk)
    seeds = [bytes([kind]) + one.SerializeToString() for kind, one in enumerate(messages)]

    errors = (DecodeError, DistributedInputError)  # gRPC's server handles the first one
    return Subject(parse, seeds, errors)


def _answers() -> Subject:
    beat = dispatcher_pb2.ConsumerHeartbeatRequest(job="train", rows=7, wait_seconds=1.5, pod="p")
    stalled = types_pb2.StalledSplit(dataset="data:rows", split=3, seconds=20)
    failure = types_pb2.DatasetFailure(dataset="data:rows", message="no file")
    worker = dispatcher_pb2.WorkerInfo(worker_id="w", address="h:1", stalled=[stalled])
    worker.failure.CopyFrom(failure)
    response = dispatcher_pb2.StatusResponse(
        workers=[worker],
        consumers=[dispatcher_pb2.ConsumerInfo(last=beat)],
        jobs=[types_pb2.Job(name="train", read_amplification=4)],
    )
    seeds = [response.SerializeToString(), b""]
    return Subject(lambda data: parse_answer(data, 1.0), seeds, (UnusableAnswer,))


def _identities() -> Subject:
    own = Identity("team", "digits", "u-1", "worker")

    def parse(data: bytes) -> None:
        found = identity.parse(data.decode("utf-8", "replace").split("\n"))
        identity.refusal(own, found, identity.DIRECT_TRANSFER)

    return Subject(parse, [own.with_role(role).uri.encode() for role in ROLES], ())


TARGETS = (
    Target("network/messages", "worker → sidecar, direct connection", lambda: _messages(None)),
    Target("network/region-messages", "worker → sidecar on one host", _region_messages),
    Target("network/regions", "sidecar → worker on one host: shared memory", _regions, 0.5),
    Target("network/tickets", "anybody → worker, port of direct connections", _tickets, 0.5),
    Target("network/requests", "workers and sidecars → dispatcher", _heartbeats, 2),
    Target("network/status", "dispatcher → operator", _answers, 2),
    Target("network/identities", "certificates of peers", _identities),
)
