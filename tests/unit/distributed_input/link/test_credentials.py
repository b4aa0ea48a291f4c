"""Tokens, checked by a real server."""

from __future__ import annotations

import grpc
import pytest
from grpc_health.v1 import health_pb2

from distributed_input.api.environment import TOKEN_ENV
from distributed_input.api.errors import ConfigError, TerminalError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import serving, statuses, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.runtime.files import tokens
from tests.unit.distributed_input.runtime.served import HEALTH, Echo, served, stub_of

ANSWER = dispatcher_pb2.StatusResponse(dispatcher_id="d")
CHUNK = dispatcher_pb2.DatasetChunk(data=b"x")
ECHO = Echo(
    Status=lambda request, context: ANSWER,
    PutDataset=lambda chunks, context: (
        dispatcher_pb2.PutDatasetResponse() if list(chunks) else None
    ),
    GetDataset=lambda request, context: iter([CHUNK] * 3),
)


def token(value: str) -> Credentials:
    return Credentials.from_args(None, {TOKEN_ENV: value})


def status_with(server: Credentials, client: Credentials) -> dispatcher_pb2.StatusResponse:
    with served(ECHO, server) as at, stub_of(at.address, client) as stub:
        return stub.Status(dispatcher_pb2.StatusRequest(), timeout=5)


def test_the_right_token_is_accepted_for_every_shape_of_call():
    with served(ECHO, token("right")) as at, stub_of(at.address, token("right")) as stub:
        assert stub.Status(dispatcher_pb2.StatusRequest(), timeout=5) == ANSWER
        assert stub.Status.future(dispatcher_pb2.StatusRequest(), timeout=5).result() == ANSWER
        stub.PutDataset(iter([CHUNK]), timeout=5)
        chunks = stub.GetDataset(dispatcher_pb2.GetDatasetRequest(), timeout=5)
        assert list(chunks) == [CHUNK] * 3


@pytest.mark.parametrize("client", [Credentials(), token("wrong"), token("right-and-more")])
@pytest.mark.parametrize("method", ["Status", "PutDataset", "GetDataset"])
def test_other_tokens_are_rejected_with_the_fix(client, method):
    requests = {
        "Status": dispatcher_pb2.StatusRequest(),
        "PutDataset": iter([CHUNK]),
        "GetDataset": dispatcher_pb2.GetDatasetRequest(),
    }
    with served(ECHO, token("right")) as at, stub_of(at.address, client) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            list(getattr(stub, method)(requests[method], timeout=5))
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
    assert "--token-file" in str(caught.value.details())
    assert "right" not in str(caught.value.details())
    assert isinstance(statuses.from_rpc_error(caught.value, "asking"), TerminalError)


def test_health_checks_need_no_token():
    with served(ECHO, token("right")) as at:
        with serving.open_channel(at.address, Credentials(), private=True) as channel:
            stub = stubs.Stub(channel, HEALTH)
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
            watched = stub.Watch(health_pb2.HealthCheckRequest(), timeout=5)
            assert next(watched).status == health_pb2.HealthCheckResponse.SERVING
            watched.cancel()


def test_during_a_rotation_no_call_is_rejected(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for path in (old, new):
        path.write_text("before")
    now = 0.0
    rotated = Credentials(tokens.FileToken(new, lambda: now))
    behind = Credentials(tokens.FileToken(old, lambda: now))
    new.write_text("after")
    now = 2.0
    assert status_with(rotated, behind) == ANSWER
    assert status_with(behind, rotated) == ANSWER
    assert [value for _, value in rotated.metadata()] == ["Bearer after", "Bearer before"]


def test_the_file_overrides_the_environment(tmp_path):
    path = tmp_path / "token"
    path.write_text("from-file")
    both = Credentials.from_args(str(path), {TOKEN_ENV: "from-env"})
    assert both.metadata() == (("authorization", "Bearer from-file"),)


def test_only_loopback_is_served_without_a_token():
    Credentials().check_listen("127.0.0.1:0")
    token("x").check_listen("0.0.0.0:0")
    with pytest.raises(ConfigError, match="--token-file"):
        Credentials().check_listen("0.0.0.0:0")
    with pytest.raises(ConfigError, match="--token-file"):
        serving.make_server([], ":0", Credentials())


def test_the_token_is_checked_once_per_call(monkeypatch):
    """A stream of many messages reads the token once on each side."""
    looked = []
    for name in ("metadata", "accepts"):
        real = getattr(Credentials, name)

        def counted(*args, real=real, name=name):
            looked.append(name)
            return real(*args)

        monkeypatch.setattr(Credentials, name, counted)
    many = Echo(GetDataset=lambda request, context: iter([CHUNK] * 100))
    with served(many, token("right")) as at, stub_of(at.address, token("right")) as stub:
        got = list(stub.GetDataset(dispatcher_pb2.GetDatasetRequest(), timeout=5))
    assert len(got) == 100
    assert looked == ["metadata", "accepts"]


def test_an_unknown_method_is_not_disclosed_without_a_token():
    with served(ECHO, token("right")) as at:
        with serving.open_channel(at.address, Credentials(), private=True) as channel:
            call = channel.unary_unary("/no.such.Service/Method", lambda r: r, lambda r: r)
            with pytest.raises(grpc.RpcError) as caught:
                call(b"", timeout=5)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
