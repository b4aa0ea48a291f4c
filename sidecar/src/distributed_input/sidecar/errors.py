"""Exceptions that all stages of the sidecar share."""

from __future__ import annotations

from distributed_input.api.errors import DatasetFnError, UnavailableError


class OtherConsumerError(DatasetFnError):
    """An error has ended the epoch of another consumer, which this one waits for."""


class LeftEpochError(UnavailableError):
    """Another consumer reads a later epoch, and has not ended the one that this one waits for."""
