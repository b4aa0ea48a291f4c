"""gRPC services and stubs, created from the proto descriptors.

There are no generated *_pb2_grpc files. They require a grpcio version, and they convert every
message to its class. Here the responses of the hot path are encoded bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from distributed_input.link import statuses

Handler: TypeAlias = grpc.GenericRpcHandler
_ENCODED = "distributed_input.v1.Worker.Connect"
"""The method whose responses are bytes: `link.blocks.frames` encodes and decodes them."""


def service_handler(descriptor: ServiceDescriptor, implementation: object) -> Handler:
    """Return a handler that serves `descriptor` with the methods of `implementation`.

    Each method of the service is a method of `implementation` with the same name and the usual
    signature `(request or iterator, context) -> response or iterator`. Exceptions become statuses
    (see `statuses`).

    Raises:
        TypeError: names methods that are missing.
    """
    missing = [m.name for m in descriptor.methods if not hasattr(implementation, m.name)]
    if missing:
        raise TypeError(f"{type(implementation).__name__} lacks {', '.join(missing)}")
    handlers = {
        method.name: _method_handler(method, getattr(implementation, method.name))
        for method in descriptor.methods
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


class Stub:
    """The calls of one service on one channel: `Stub(channel, descriptor).Status(request)`.

    Each attribute is grpcio's multi-callable of that method. Call it with a request (or an iterator
    of requests) and `timeout=`.
    """

    def __init__(self, channel: grpc.Channel, descriptor: ServiceDescriptor) -> None:
        for method in descriptor.methods:
            parse = message_factory.GetMessageClass(method.output_type).FromString
            call = getattr(channel, _shape(method))(
                f"/{descriptor.full_name}/{method.name}",
                request_serializer=_serialize,
                response_deserializer=bytes if method.full_name == _ENCODED else parse,
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name!r}")


def _shape(method: MethodDescriptor) -> str:
    """Return grpcio's name of the method's shape, such as unary_stream."""
    request = "stream" if method.client_streaming else "unary"
    return f"{request}_{'stream' if method.server_streaming else 'unary'}"


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _method_handler(
    method: MethodDescriptor, behaviour: Callable[..., Any]
) -> grpc.RpcMethodHandler[Any, Any]:
    wrap = _abort_on_error_stream if method.server_streaming else _abort_on_error
    create = getattr(grpc, f"{_shape(method)}_rpc_method_handler")
    handler: grpc.RpcMethodHandler[Any, Any] = create(
        wrap(method.full_name, behaviour),
        request_deserializer=message_factory.GetMessageClass(method.input_type).FromString,
        response_serializer=bytes if method.full_name == _ENCODED else _serialize,
    )
    return handler


def _abort_on_error(name: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - becomes the status of the call
            statuses.abort(context, error, name)

    return call


def _abort_on_error_stream(name: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            # Delegate, so that messages need no Python code here.
            yield from behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - becomes the status of the call
            statuses.abort(context, error, name)

    return call
