"""Exceptions that all stages of the sidecar share."""

from __future__ import annotations

from distributed_input.api.errors import DatasetFnError, DistributedInputError, UnavailableError


class OtherConsumerError(DatasetFnError):
    """An error has ended the epoch of another consumer, which this one waits for."""


class LeftEpochError(UnavailableError):
    """Another consumer reads a later epoch, and has not ended the one that this one waits for."""


class Cancelled(Exception):
    """The epoch or the connection was closed while a call was waiting."""


def internal_error(error: Exception) -> DistributedInputError:
    """Return the error that reports a bug of the sidecar to the trainer."""
    return DistributedInputError(f"the sidecar failed: {type(error).__name__}: {error}")
