"""Real servers on port 0 for the tests of runtime."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2

from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials

HEALTH: Any = health_pb2.DESCRIPTOR.services_by_name["Health"]
REFLECTION: Any = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"]
DESCRIPTOR = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]


class Echo:
    """The dispatcher's service. A test sets the behaviour of each method."""

    def __init__(self, **methods: Any) -> None:
        for method in DESCRIPTOR.methods:
            setattr(self, method.name, methods.get(method.name, self._unwanted))

    @staticmethod
    def _unwanted(request: Any, context: Any) -> Any:
        raise NotImplementedError("this test gave no such method")


@contextmanager
def served(
    implementation: object,
    credentials: Credentials | None = None,
    **options: Any,
) -> Iterator[serving.Server]:
    """Start a server of `implementation`."""
    server = serving.make_server(
        [stubs.service_handler(DESCRIPTOR, implementation)],
        "127.0.0.1:0",
        credentials or Credentials(),
        **options,
    )
    server.start()
    try:
        yield server
    finally:
        server.stop(0)


@contextmanager
def stub_of(
    address: str,
    credentials: Credentials | None = None,
) -> Iterator[stubs.Stub]:
    """Return a stub on its own channel."""
    with serving.open_channel(address, credentials or Credentials(), private=True) as channel:
        yield stubs.Stub(channel, DESCRIPTOR)
