"""Servers and channels."""

from __future__ import annotations

import socket
import threading
from concurrent import futures

import grpc
import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.runtime import addresses
from tests.unit.distributed_input.runtime.served import (
    DESCRIPTOR,
    HEALTH,
    REFLECTION,
    Echo,
    served,
    stub_of,
)

ANSWER = dispatcher_pb2.StatusResponse(dispatcher_id="d")
ECHO = Echo(Status=lambda request, context: ANSWER)


def test_a_unix_socket_serves_and_replaces_that_of_a_killed_process(folder):
    path = folder / "a %41?"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    listen = addresses.unix(str(path))
    server = serving.make_server([stubs.service_handler(DESCRIPTOR, ECHO)], listen, Credentials())
    server.start()
    with serving.open_channel(server.address, Credentials()) as channel:
        assert stubs.Stub(channel, DESCRIPTOR).Status(dispatcher_pb2.StatusRequest()) == ANSWER
    server.stop(0)


def test_a_path_that_only_grpc_refuses_is_reported(folder):
    class Refusing(Credentials):
        def add_port(self, server, listen):
            raise RuntimeError("Failed to bind")

    listen = addresses.unix(f"{folder}/s")
    with pytest.raises(ConfigError, match=f"^--listen {listen}: Failed to bind: set another path$"):
        serving.make_server([], listen, Refusing())


def test_the_error_names_a_port_that_is_in_use():
    with served(ECHO) as at, pytest.raises(ConfigError, match=rf"--listen {at.address}: cannot"):
        serving.make_server([], at.address, Credentials())


def test_no_other_server_can_share_the_port():
    """By default, gRPC servers share a port, and calls reach either of them."""
    with served(ECHO) as at:
        other = grpc.server(futures.ThreadPoolExecutor(1))
        with pytest.raises(RuntimeError):
            other.add_insecure_port(at.address)


def test_the_error_names_an_address_of_another_machine():
    with pytest.raises(ConfigError, match=r"203\.0\.113\.1:0: cannot bind"):
        serving.make_server(
            [], "203.0.113.1:0", Credentials.from_args(None, {"DISTRIBUTED_INPUT_TOKEN": "x"})
        )


@pytest.mark.parametrize("service", ["", DESCRIPTOR.full_name])
def test_health_follows_the_server(service):
    with served(ECHO) as at, serving.open_channel(at.address, Credentials()) as channel:
        stub = stubs.Stub(channel, HEALTH)
        asked = health_pb2.HealthCheckRequest(service=service)
        answers = health_pb2.HealthCheckResponse
        assert stub.Check(asked, timeout=5).status == answers.SERVING
        watched = stub.Watch(asked, timeout=10)
        assert next(watched).status == answers.SERVING
        at.set_healthy(False)
        assert next(watched).status == answers.NOT_SERVING
        assert not at.healthy
        at.set_healthy(True)
        assert next(watched).status == answers.SERVING
        at.stop(0)
        assert not at.healthy


def test_reflection_lists_and_describes_the_service():
    with served(ECHO) as at, serving.open_channel(at.address, Credentials()) as channel:
        stub = stubs.Stub(channel, REFLECTION)
        asked = [
            reflection_pb2.ServerReflectionRequest(list_services=""),
            reflection_pb2.ServerReflectionRequest(file_containing_symbol=DESCRIPTOR.full_name),
        ]
        listed, described = stub.ServerReflectionInfo(iter(asked), timeout=5)
    names = {service.name for service in listed.list_services_response.service}
    assert {DESCRIPTOR.full_name, "grpc.health.v1.Health"} <= names
    assert any(
        b"ConsumerHeartbeat" in file
        for file in described.file_descriptor_response.file_descriptor_proto
    )


def test_a_message_over_the_limit_is_rejected():
    with served(ECHO, max_message_bytes=1000) as at, stub_of(at.address) as stub:
        with pytest.raises(grpc.RpcError) as caught:
            stub.RegisterJob(dispatcher_pb2.RegisterJobRequest(job={"name": "x" * 2000}), timeout=5)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert stub.Status(dispatcher_pb2.StatusRequest(), timeout=5) == ANSWER


def test_running_calls_have_the_grace_period_to_finish():
    entered, release = threading.Event(), threading.Event()

    def slow(request, context):
        entered.set()
        release.wait(20)
        return ANSWER

    for grace, finishes in ((20, True), (0.2, False)):
        entered.clear()
        release.clear()
        with served(Echo(Status=slow)) as at, stub_of(at.address) as stub:
            future = stub.Status.future(dispatcher_pb2.StatusRequest(), timeout=30)
            assert entered.wait(5)
            stopper = threading.Thread(target=at.stop, args=(grace,))
            stopper.start()
            if finishes:
                release.set()
                assert future.result(10) == ANSWER
            else:
                with pytest.raises(grpc.RpcError):
                    future.result(10)
                release.set()
            stopper.join(10)
            assert not stopper.is_alive()
