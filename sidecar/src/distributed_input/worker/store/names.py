"""The names of stored splits: a name stands for all that a split's rows depend on, except files."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.graph.definition.canonical import FINGERPRINT_VERSION
from distributed_input.order.identity import ORDER_VERSION
from distributed_input.rows.prefix import DIGEST_VERSION
from distributed_input.rows.stored_split import FORMAT
from distributed_input.worker.datasets.iterator_state import PIPELINE
from distributed_input.worker.node import NODE
from distributed_input.worker.streams.dataset_usage import sharing_key

_FIXED = "all"  # stands for the epoch of rows that do not depend on it


def is_storable(job: types_pb2.Job) -> bool:
    """Return whether a job shows what its rows depend on, except files."""
    if job.infinite or job.varies or job.HasField("bad_records"):
        return False
    is_defined = bool(job.definitions) and job.definition_version == FINGERPRINT_VERSION
    return is_defined or not job.HasField("entry_point")


def names_of(request: worker_pb2.StreamRequest) -> tuple[str, str]:
    """Return the name of a split if its rows do not depend on the epoch, and if they do."""
    alike = worker_pb2.StreamRequest(job=request.job, seed=request.seed)
    for field in ("first_run", "strict"):
        alike.job.ClearField(field)
    if alike.job.HasField("entry_point"):
        alike.job.ClearField("dataset_id")  # it has the folder of the code
        alike.job.entry_point.ClearField("path")
    (dataset, seed), *_ = sharing_key(alike)
    values = dataset, seed, request.split
    return name_of(values, _FIXED), name_of(values, request.epoch)


def name_of(*values: object) -> str:
    """Return the name of what depends on values, and on the releases and the kind of node."""
    versions_of_rows = FORMAT, DIGEST_VERSION, FINGERPRINT_VERSION, ORDER_VERSION, PIPELINE
    of = versions_of_rows, _release(), NODE, values
    return hashlib.blake2b(repr(of).encode(), digest_size=16).hexdigest()


@functools.cache
def _release() -> str:
    try:
        return importlib.metadata.version("distributed-input")
    except importlib.metadata.PackageNotFoundError:
        return ""  # run from its sources
