"""Messages that report errors to the trainer."""

from __future__ import annotations

from distributed_input.api.errors import DatasetFnError, DistributedInputError, as_utf8
from distributed_input.api.proto import trainer_pb2
from distributed_input.sidecar.errors import OtherConsumerError

_CHARACTERS = 20_000  # of an error; each has at most six bytes, and a packet is limited


def failure_message(error: DistributedInputError, generation: int = 0) -> trainer_pb2.FromSidecar:
    """Return the message whose error the trainer's iterator raises.

    Args:
        error: error to report.
        generation: generation of units that failed, or 0 for the whole connection.
    """
    text = as_utf8(str(error)[:_CHARACTERS])
    kind = DatasetFnError if isinstance(error, OtherConsumerError) else type(error)
    failure = trainer_pb2.Failure(kind=kind.__name__, message=text, generation=generation)
    return trainer_pb2.FromSidecar(failure=failure)
