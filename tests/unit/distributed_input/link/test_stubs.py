"""Services and stubs from descriptors."""

from __future__ import annotations

import gc
import threading

import grpc
import pytest

from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import stubs
from tests.unit.distributed_input.runtime.served import DESCRIPTOR, Echo, served, stub_of

REQUEST = dispatcher_pb2.GetDatasetRequest(dataset_id="i")


def test_messages_arrive_as_their_classes():
    seen = []

    def put(chunks, context):
        seen.extend(chunks)
        return dispatcher_pb2.PutDatasetResponse()

    sent = [dispatcher_pb2.DatasetChunk(data=bytes([i])) for i in range(3)]
    with served(Echo(PutDataset=put)) as at, stub_of(at.address) as stub:
        assert stub.PutDataset(iter(sent), timeout=5) == dispatcher_pb2.PutDatasetResponse()
    assert seen == sent


def test_an_error_names_missing_methods():
    with pytest.raises(TypeError, match=r"object lacks WorkerHeartbeat, .*Status"):
        stubs.service_handler(DESCRIPTOR, object())
    with stub_of("127.0.0.1:1") as stub, pytest.raises(AttributeError, match="Nope"):
        _ = stub.Nope


def test_a_cancelled_stream_ends_the_method():
    left = threading.Event()

    def get(request, context):
        try:
            while True:
                yield dispatcher_pb2.DatasetChunk(data=b"x" * 1000)
        finally:
            left.set()

    with served(Echo(GetDataset=get)) as at, stub_of(at.address) as stub:
        stream = stub.GetDataset(REQUEST)
        next(stream)
        stream.cancel()
        assert left.wait(10)
        with pytest.raises(grpc.RpcError):
            list(stream)
        gc.collect()
