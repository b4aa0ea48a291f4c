"""The audit log: which peer registered which dataset, and when.

Each line has the logger `dispatcher.audit`, the time, the peer's address and identity, and the
fingerprint of the dataset. It has no arguments of an entry point and nothing of a graph, which may
contain secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import grpc

from distributed_input.api import identity
from distributed_input.api.proto.types_pb2 import Job
from distributed_input.runtime import logs

_URIS = "x509_subject_alternative_name"
_log = logs.get("dispatcher.audit")


def dataset_registered(context: grpc.ServicerContext, dataset: str, size: int) -> None:
    """Log that a peer has sent a traced dataset.

    Args:
        context: the peer's call.
        dataset: fingerprint of the dataset, SHA-256.
        size: number of bytes.
    """
    _log.info("dataset registered", **_peer(context), dataset=dataset, size=size)


def job_registered(context: grpc.ServicerContext, job: Job, incarnation: str) -> None:
    """Log that a peer has named the dataset of a job: a traced one, or an entry point.

    Args:
        context: the peer's call.
        job: the job.
        incarnation: of the consumer that registers it.
    """
    _log.info(
        "job registered",
        **_peer(context),
        dataset=job.dataset_id,
        job=job.name,
        entry_point=job.entry_point.target,
        incarnation=incarnation,
    )


def _peer(context: grpc.ServicerContext) -> dict[str, str]:
    """Return the address of a call's peer, and its identity. Without encryption, it has none."""
    names: Iterable[bytes] = cast(Any, context.auth_context()).get(_URIS, ())
    found = identity.parse(name.decode(errors="replace") for name in names)
    return {"peer": context.peer(), "identity": found.uri if found else ""}
