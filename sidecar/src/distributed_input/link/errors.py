"""Exceptions of the ends of protocols that are no errors of a user."""

from __future__ import annotations

from distributed_input.api.errors import DistributedInputError


class Cancelled(Exception):
    """The epoch or the connection was closed while a call was waiting."""


def internal_error(error: Exception) -> DistributedInputError:
    """Return the error that reports a bug of the sidecar to the trainer."""
    return DistributedInputError(f"the sidecar failed: {type(error).__name__}: {error}")
