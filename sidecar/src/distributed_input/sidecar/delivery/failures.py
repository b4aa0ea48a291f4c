"""Errors on their way to the trainer."""

from __future__ import annotations

from distributed_input.api.errors import DistributedInputError
from distributed_input.api.proto import trainer_pb2


def unexpected(error: Exception) -> DistributedInputError:
    """A bug, in words: it must reach the user, not end in silence."""
    return DistributedInputError(f"the sidecar failed: {type(error).__name__}: {error}")


def told(error: DistributedInputError, generation: int = 0) -> trainer_pb2.FromSidecar:
    """What the trainer's iterator raises; `generation`: that failed, 0: the whole connection."""
    kind, message = type(error).__name__, str(error)
    failure = trainer_pb2.Failure(kind=kind, message=message, generation=generation)
    return trainer_pb2.FromSidecar(failure=failure)
