"""gRPC services and stubs, created from the proto descriptors.

There are no generated *_pb2_grpc files. They require a grpcio version, and they convert every
message of the hot path to the message class. Here a method may have its own (de)serializer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from distributed_input.link import statuses

Handler: TypeAlias = grpc.GenericRpcHandler
Codec = Callable[[Any], Any]
Overrides = Mapping[str, tuple[Codec | None, Codec | None]]
"""Codecs by method name; None selects the codec of the message class. For a service: (request
deserializer, response serializer). For a stub: (request serializer, response deserializer)."""


def identity(data: Any) -> Any:
    """Return `data`: the codec of a method that handles encoded bytes itself."""
    return data


def service_handler(
    descriptor: ServiceDescriptor,
    implementation: object,
    overrides: Overrides | None = None,
) -> Handler:
    """Return a handler that serves `descriptor` with the methods of `implementation`.

    Each method of the service is a method of `implementation` with the same name and the usual
    signature `(request or iterator, context) -> response or iterator`. Exceptions become statuses
    (see `statuses`).

    Raises:
        TypeError: names methods that are missing, or overrides of methods that do not exist.
    """
    chosen = _checked(descriptor, overrides)
    missing = [m.name for m in descriptor.methods if not hasattr(implementation, m.name)]
    if missing:
        raise TypeError(f"{type(implementation).__name__} lacks {', '.join(missing)}")
    handlers = {
        method.name: _method_handler(method, getattr(implementation, method.name), chosen)
        for method in descriptor.methods
    }
    return grpc.method_handlers_generic_handler(descriptor.full_name, handlers)


class Stub:
    """The calls of one service on one channel: `Stub(channel, descriptor).Status(request)`.

    Each attribute is grpcio's multi-callable of that method. Call it with a request (or an iterator
    of requests) and `timeout=`.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        descriptor: ServiceDescriptor,
        overrides: Overrides | None = None,
    ) -> None:
        chosen = _checked(descriptor, overrides)
        for method in descriptor.methods:
            serialize, deserialize = chosen.get(method.name, (None, None))
            create = getattr(channel, _shape(method))
            call = create(
                f"/{descriptor.full_name}/{method.name}",
                request_serializer=serialize or _serialize,
                response_deserializer=deserialize or _parser(method.output_type),
            )
            setattr(self, method.name, call)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the service has no method {name!r}")


def _checked(descriptor: ServiceDescriptor, overrides: Overrides | None) -> Overrides:
    unknown = set(overrides or ()) - {method.name for method in descriptor.methods}
    if unknown:
        raise TypeError(f"{descriptor.full_name} has no method {', '.join(sorted(unknown))}")
    return overrides or {}


def _shape(method: MethodDescriptor) -> str:
    """Return grpcio's name of the method's shape, such as unary_stream."""
    request = "stream" if method.client_streaming else "unary"
    return f"{request}_{'stream' if method.server_streaming else 'unary'}"


def _serialize(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _parser(message_type: Any) -> Codec:
    parse: Codec = message_factory.GetMessageClass(message_type).FromString
    return parse


def _method_handler(
    method: MethodDescriptor, behaviour: Callable[..., Any], overrides: Overrides
) -> grpc.RpcMethodHandler[Any, Any]:
    deserialize, serialize = overrides.get(method.name, (None, None))
    wrap = _abort_on_error_stream if method.server_streaming else _abort_on_error
    create = getattr(grpc, f"{_shape(method)}_rpc_method_handler")
    handler: grpc.RpcMethodHandler[Any, Any] = create(
        wrap(method.full_name, behaviour),
        request_deserializer=deserialize or _parser(method.input_type),
        response_serializer=serialize or _serialize,
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
