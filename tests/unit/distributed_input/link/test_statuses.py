"""Errors on the wire."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import grpc
import pytest

from distributed_input.api import errors
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import serving, statuses
from distributed_input.link.credentials import Credentials
from distributed_input.runtime import logs
from tests.unit.distributed_input.runtime.served import Echo, served, stub_of

REQUEST = dispatcher_pb2.GetDatasetRequest()


def rpc_error(raised: Exception, streaming: bool = False) -> Any:
    """Return the error of a caller whose method raises `error`."""

    def unary(request, context):
        raise raised

    def stream(request, context):
        yield dispatcher_pb2.DatasetChunk()
        raise raised

    with served(Echo(Status=unary, GetDataset=stream)) as at, stub_of(at.address) as stub:
        method = stub.GetDataset if streaming else stub.Status
        request = REQUEST if streaming else dispatcher_pb2.StatusRequest()
        with pytest.raises(grpc.RpcError) as caught:
            list(method(request, timeout=5))
    return caught.value


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.RetryableError, grpc.StatusCode.UNAVAILABLE),
        (errors.UnavailableError, grpc.StatusCode.UNAVAILABLE),
        (errors.TerminalError, grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ProtocolError, grpc.StatusCode.FAILED_PRECONDITION),
        (errors.DatasetFnError, grpc.StatusCode.FAILED_PRECONDITION),
        (errors.ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
        (statuses.NotFoundError, grpc.StatusCode.NOT_FOUND),
        (statuses.InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_errors_keep_their_class(kind, code, streaming):
    caught = rpc_error(kind("split 3: do this"), streaming)
    assert caught.code() is code
    got = statuses.from_rpc_error(caught, "streaming")
    assert isinstance(got, errors.RetryableError) == issubclass(kind, errors.RetryableError)
    if kind is not statuses.InvalidRequestError:
        assert type(got) is kind
    assert str(got) == "streaming: split 3: do this"


@pytest.mark.parametrize("streaming", [False, True])
def test_unexpected_errors_are_internal_and_logged(streaming):
    log, stream = logging.getLogger("distributed_input"), io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter("test"))
    log.addHandler(handler)
    try:
        caught = rpc_error(ZeroDivisionError("by zero"), streaming)
    finally:
        log.removeHandler(handler)
    assert caught.code() is grpc.StatusCode.INTERNAL
    assert "ZeroDivisionError: by zero" in str(caught.details())
    line = json.loads(stream.getvalue())
    assert "Traceback" in line["traceback"]
    assert line["method"].endswith("GetDataset" if streaming else "Status")
    assert isinstance(statuses.from_rpc_error(caught, "x"), errors.TerminalError)


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "x" * 100_000,
        "数据" * 2000,
        "é" * 4000,
        "🦉" * 3000,
        "line\n" * 1000,
        "%" * 5000,
        "\udcff" * 4000,
    ],
    ids=["ASCII", "Chinese", "accents", "emoji", "lines", "percent", "bad file name"],
)
def test_a_long_message_keeps_its_class_its_start_and_its_end(
    text: str, streaming: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caught = rpc_error(errors.DatasetFnError(f"split 3: {text} at row 7"), streaming)
    assert caught.code() is grpc.StatusCode.FAILED_PRECONDITION, caught
    got = statuses.from_rpc_error(caught, "streaming")
    assert type(got) is errors.DatasetFnError
    assert re.fullmatch(r"streaming: split 3: .* characters omitted.* at row 7", str(got), re.S)
    assert len(str(got)) > 600
    (entry,) = caplog.records
    assert vars(entry)["fields"]["error"] == f"split 3: {text} at row 7"


def test_an_abort_by_the_method_is_kept():
    def method(request, context):
        context.abort(grpc.StatusCode.DATA_LOSS, "lost")

    with served(Echo(Status=method)) as at, stub_of(at.address) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            stub.Status(dispatcher_pb2.StatusRequest(), timeout=5)
    assert caught.value.code() is grpc.StatusCode.DATA_LOSS


def test_an_unreachable_server_is_retryable():
    with stub_of("127.0.0.1:1") as stub, pytest.raises(grpc.RpcError) as caught:
        stub.Status(dispatcher_pb2.StatusRequest(), timeout=5)
    got = statuses.from_rpc_error(caught.value, "asking 127.0.0.1:1")
    assert isinstance(got, errors.UnavailableError)
    assert str(got).startswith("asking 127.0.0.1:1: UNAVAILABLE")


def test_the_error_of_a_missing_method_names_the_fix():
    with served(Echo()) as at, serving.open_channel(at.address, Credentials()) as channel:
        call = channel.unary_unary("/distributed_input.v1.Dispatcher/Newer", bytes, bytes)
        with pytest.raises(grpc.RpcError) as caught:
            call(b"", timeout=5)
    got = statuses.from_rpc_error(caught.value, "asking")
    assert isinstance(got, errors.ProtocolError)
    assert "upgrade" in str(got)
