"""The errors that a user may see, in two families: retryable and terminal.

Every message states what is wrong and what to do. The class names are part of the wire contract
(`Failure.kind`): the trainer raises the class that the sidecar or a worker raised.

ConfigError is also a ValueError, and SpecError is also a TypeError. TensorFlow documents these for
wrong values and wrong elements, and its iterators treat them differently from other failures.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DistributedInputError(Exception):
    """Base class of all errors of this package."""


class RetryableError(DistributedInputError):
    """The same call may succeed later, for example when a process is back."""


class TerminalError(DistributedInputError):
    """The same call will fail again until something is changed."""


class UnavailableError(RetryableError):
    """A process could not be reached before the deadline."""


class ConfigError(TerminalError, ValueError):
    """A field of the resource, a flag or an argument is invalid."""


class ProtocolError(TerminalError):
    """Two processes have incompatible versions."""


class SpecError(TerminalError, TypeError):
    """A dataset's elements are unsupported or differ from the element spec."""


class DatasetFnError(TerminalError):
    """The user's dataset function raised."""


class JobConflictError(TerminalError):
    """Another job uses this name, or the dataset of a running job changed."""


class FencedError(TerminalError):
    """A newer process has taken over this consumer index."""


class ReplayError(TerminalError):
    """A split that ran again produced other rows than before."""


class PositionError(TerminalError):
    """A saved position does not belong to this job."""


class ReplayWarning(UserWarning):
    """A split that ran again produced other rows than before, and determinism is not strict."""


_KINDS = {
    name: value
    for name, value in tuple(globals().items())
    if isinstance(value, type) and issubclass(value, RetryableError | TerminalError)
}


def from_kind(kind: str, message: str) -> DistributedInputError:
    """Return an error of the class named `kind`; a TerminalError if there is no such class."""
    return _KINDS.get(kind, TerminalError)(message)


def as_utf8(text: str) -> str:
    """Return a text that messages can have: escape lone surrogates, as in names of files."""
    return text.encode(errors="backslashreplace").decode()


def short(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function with errors, and Ctrl-C, that have no frames below it.

    A notebook shows some lines for each frame and each cause, and the message below them. The
    messages contain the causes. Only an error of the user's code keeps its cause.
    """

    @functools.wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (DistributedInputError, KeyboardInterrupt) as error:
            cause = error.__cause__ if isinstance(error, DatasetFnError) else None
            raise error.with_traceback(None) from cause

    return called
