"""Conversion of errors to gRPC statuses and back, within the same family.

Any gRPC client can use the status code. The class of our own errors is in the trailing metadata,
so that our stubs raise the same class.
"""

from __future__ import annotations

from typing import Any, NoReturn

import grpc

from distributed_input.api import errors
from distributed_input.api.errors import (
    DistributedInputError,
    RetryableError,
    TerminalError,
)
from distributed_input.runtime import logs

_KIND = "distributed-input-error"
_MESSAGE_BYTES = 6144  # of a status in HTTP/2 headers, of which gRPC accepts 8 KiB by default
_END_BYTES = 2048  # of a shortened message: its end often names the user's line of code
_log = logs.get("runtime.statuses")


class NotFoundError(RetryableError):
    """It is not registered yet, or the dispatcher has restarted."""


class InvalidRequestError(TerminalError):
    """A field of a message is invalid. The error names it."""


_CODES: tuple[tuple[type[BaseException], grpc.StatusCode], ...] = (
    (NotFoundError, grpc.StatusCode.NOT_FOUND),
    (InvalidRequestError, grpc.StatusCode.INVALID_ARGUMENT),
    (errors.ConfigError, grpc.StatusCode.INVALID_ARGUMENT),
    (RetryableError, grpc.StatusCode.UNAVAILABLE),
    (TerminalError, grpc.StatusCode.FAILED_PRECONDITION),
)
_RETRYABLE = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.CANCELLED,
        # gRPC reports INTERNAL and UNKNOWN for broken connections. Exceptions of our own servers
        # are different: they carry their class.
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
    }
)


def abort(context: grpc.ServicerContext, error: Exception, method: str) -> NoReturn:
    """End the call with the status of `error`. Log unexpected errors with their traceback.

    Call it while `error` is being handled. If the method has aborted the call itself, raise
    `error` again.
    """
    if _aborted(context):
        raise error
    code = next((c for kind, c in _CODES if isinstance(error, kind)), grpc.StatusCode.UNKNOWN)
    if not isinstance(error, DistributedInputError):
        code = grpc.StatusCode.INTERNAL
    # If the caller has disconnected, that is usually the cause of the error.
    kind, text = explain(error, method, is_expected=not context.is_active())
    details = _shortened(text)
    if details != text and isinstance(error, DistributedInputError):
        _log.warning("the error of a call was shortened", method=method, error=text)
    context.set_trailing_metadata(((_KIND, kind),))
    context.abort(code, details)
    raise AssertionError("abort returned")


def explain(error: Exception, doing: str, is_expected: bool = False) -> tuple[str, str]:
    """Return the class and the text of an error for another process.

    Log unexpected errors with their traceback.
    """
    if isinstance(error, DistributedInputError):
        return type(error).__name__, str(error)
    log = _log.debug if is_expected else _log.exception
    try:
        raise error  # the log has the traceback of the error that is being handled
    except Exception:  # noqa: BLE001 - it is logged
        log("unexpected error in a call", method=doing, error=repr(error))
    return TerminalError.__name__, (
        f"{type(error).__name__}: {error} (a bug, or an error in the user's code: see this "
        "server's log)"
    )


def _shortened(text: str) -> str:
    """Return the text, without its middle if it is too long for a status.

    A caller gets neither text nor class of an error whose headers are too long.
    """
    text = errors.as_utf8(text)
    if _fitting(text, _MESSAGE_BYTES) == len(text):
        return text
    start = _fitting(text, _MESSAGE_BYTES - _END_BYTES - 256)  # the sentence below needs the rest
    end = _fitting(text[: -_END_BYTES - 1 : -1], _END_BYTES)
    omitted = len(text) - start - end
    return (
        f"{text[:start]} [... {omitted} characters omitted: see the log of the process that sent "
        f"this error ...] {text[len(text) - end :]}"
    )


def _fitting(text: str, size: int) -> int:
    """Return how many characters of the text fit into `size` bytes of a status.

    gRPC sends a byte that is not printable ASCII, or that is a percent sign, as three bytes.
    """
    if 3 * len(text.encode()) <= size:
        return len(text)
    for count, char in enumerate(text):
        size -= sum(1 if 0x20 <= byte < 0x7F and byte != 0x25 else 3 for byte in char.encode())
        if size < 0:
            return count
    return len(text)


def _aborted(context: grpc.ServicerContext) -> bool:
    code = getattr(context, "code", None)  # older versions lack it in the abstract class
    return code is not None and code() is not None


def from_rpc_error(error: grpc.RpcError, doing: str) -> DistributedInputError:
    """Return the error for a failed call; raise it `from error`.

    `doing` starts the message, such as "registering job train at dispatcher:5000".
    """
    code: Any = error.code() if isinstance(error, grpc.Call) else None
    detail = (error.details() if isinstance(error, grpc.Call) else None) or str(error)
    kind = _kind_of(error)
    message = f"{doing}: {detail}"
    if kind == NotFoundError.__name__ or code is grpc.StatusCode.NOT_FOUND:
        return NotFoundError(message)
    if kind is not None:
        return errors.from_kind(kind, message)
    name = code.name if code is not None else "no status"
    if code in _RETRYABLE or code is None:
        return errors.UnavailableError(f"{doing}: {name}: {detail}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return errors.ProtocolError(
            f"{message} (the other process has another version: upgrade it)"
        )
    return TerminalError(f"{doing}: {name}: {detail}")


def is_explained(error: grpc.RpcError) -> bool:
    """Return whether one of our servers ended the call. If not, the connection failed."""
    return _kind_of(error) is not None


def _kind_of(error: grpc.RpcError) -> str | None:
    metadata: Any = error.trailing_metadata() if isinstance(error, grpc.Call) else ()
    for key, value in metadata or ():
        if key == _KIND and isinstance(value, str):
            return value
    return None
