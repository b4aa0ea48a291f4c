"""gRPC services and stubs straight from the proto descriptors.

No generated *_pb2_grpc files: those pin a grpcio version, and copy every message of
the hot path through the message class. Here a method may name its own (de)serializer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from distributed_input.runtime import statuses

Handler: TypeAlias = grpc.GenericRpcHandler
Codec = Callable[[Any], Any]
Overrides = Mapping[str, tuple[Codec | None, Codec | None]]
"""Method name to its own two codecs, None for that of the message class: a service's (request
deserializer, response serializer), a stub's (request serializer, response deserializer)."""


def identity(data: Any) -> Any:
    """The codec of a method that handles encoded bytes itself."""
    return data


def service_handler(
    descriptor: ServiceDescriptor,
    implementation: object,
    overrides: Overrides | None = None,
) -> Handler:
    """The handler that serves `descriptor` with the methods of `implementation`.

    Each method of the service is one of `implementation` with the same name, of the usual shape
    `(request or request iterator, context) -> response or response iterator`. What they raise
    becomes a status (see `statuses`). Raises TypeError naming methods that are missing or
    overrides of methods that do not exist.
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

    Each attribute is grpcio's multi-callable of that method: call it with a request (or an
    iterator of them) and `timeout=`; `.future(...)` where grpcio has it.
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
    """unary_unary, unary_stream, stream_unary or stream_stream, as grpcio names them."""
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
    guard = _guarded_stream if method.server_streaming else _guarded
    create = getattr(grpc, f"{_shape(method)}_rpc_method_handler")
    handler: grpc.RpcMethodHandler[Any, Any] = create(
        guard(method.full_name, behaviour),
        request_deserializer=deserialize or _parser(method.input_type),
        response_serializer=serialize or _serialize,
    )
    return handler


def _guarded(name: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - becomes the status of the call
            statuses.abort(context, error, name)

    return call


def _guarded_stream(name: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
    def call(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        try:
            # Delegation: no work of ours for each message.
            yield from behaviour(request, context)
        except Exception as error:  # noqa: BLE001 - becomes the status of the call
            statuses.abort(context, error, name)

    return call
