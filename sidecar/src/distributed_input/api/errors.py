"""The errors that a user may see, in two families: worth retrying, or not.

Every message says what is wrong and what to do. The names travel over the wire
(`Failure.kind`), so that the trainer raises what the sidecar or a worker met.

Wrong values and wrong elements are a ValueError and a TypeError as well: that is what TensorFlow
documents for them, and its iterators then tell them apart from what fails for other reasons.
"""

from __future__ import annotations


class DistributedInputError(Exception):
    """Anything that this package raises on purpose."""


class RetryableError(DistributedInputError):
    """Something is away that may come back: the same call may succeed later."""


class TerminalError(DistributedInputError):
    """The same call will fail again: something must be changed first."""


class UnavailableError(RetryableError):
    """A part could not be reached before the deadline."""


class ConfigError(TerminalError, ValueError):
    """A field of the resource, a flag or an argument does not fit."""


class ProtocolError(TerminalError):
    """Two parts are of versions that do not speak with each other."""


class SpecError(TerminalError, TypeError):
    """A dataset's elements are not what they should be."""


class DatasetFnError(TerminalError):
    """The user's dataset function raised."""


class JobConflictError(TerminalError):
    """Another job lives under this name, or the dataset changed under a running job."""


class FencedError(TerminalError):
    """A newer holder of this consumer index has taken over."""


class ReplayError(TerminalError):
    """A split that was run again made other rows than before."""


class PositionError(TerminalError):
    """A saved position does not belong to this job."""


_KINDS = {
    kind.__name__: kind
    for kind in (
        RetryableError,
        TerminalError,
        UnavailableError,
        ConfigError,
        ProtocolError,
        SpecError,
        DatasetFnError,
        JobConflictError,
        FencedError,
        ReplayError,
        PositionError,
    )
}


def from_kind(kind: str, message: str) -> DistributedInputError:
    """The error that `kind`, the name of a class here, stands for."""
    return _KINDS.get(kind, TerminalError)(message)
