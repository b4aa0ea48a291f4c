"""Messages that report errors to the trainer."""

from __future__ import annotations

from distributed_input.api.errors import DistributedInputError, as_utf8
from distributed_input.api.proto import trainer_pb2

_CHARACTERS = 20_000  # of an error; each has at most six bytes, and a packet is limited


def failure_message(error: DistributedInputError, generation: int = 0) -> trainer_pb2.FromSidecar:
    """Return the message whose error the trainer's iterator raises.

    Args:
        error: error to report.
        generation: generation of units that failed, or 0 for the whole connection.
    """
    text = as_utf8(str(error)[:_CHARACTERS])
    module = DistributedInputError.__module__  # the trainer does not know the sidecar's own errors
    kind = next(base.__name__ for base in type(error).__mro__ if base.__module__ == module)
    failure = trainer_pb2.Failure(kind=kind, message=text, generation=generation)
    return trainer_pb2.FromSidecar(failure=failure)
