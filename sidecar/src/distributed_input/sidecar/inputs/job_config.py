"""The job that the spec of a DistributedInput describes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2

_MODES = {
    "distributed_epoch": types_pb2.DISTRIBUTED_EPOCH,
    "parallel_epochs": types_pb2.PARALLEL_EPOCHS,
}
_REMAINDERS = {"keep": types_pb2.KEEP, "drop": types_pb2.DROP, "pad": types_pb2.PAD}
_ORDERS = {"strict": types_pb2.STRICT, "any": types_pb2.ANY}


def job_of_spec(name: str, spec: Mapping[str, Any]) -> types_pb2.Job:
    """Return the job of a spec, without the fields that depend on the dataset.

    Args:
        name: full name of the job.
        spec: the spec with all defaults.

    Raises:
        ConfigError: a field has a value that this version does not support.
    """
    dataset = spec.get("dataset") or {}
    batching = spec.get("batching") or {}
    job = types_pb2.Job(
        name=name,
        seed=spec.get("seed", 0),
        mode=_choice(_MODES, spec, "processingMode", "distributed_epoch"),
        num_splits=spec.get("numSplits") or 0,
        partitions=spec.get("partitions") or 0,
        global_batch_size=batching.get("globalBatchSize") or 0,
        remainder=_choice(_REMAINDERS, batching, "remainder", "keep"),
        order=_choice(_ORDERS, spec, "order", "strict"),
        epochs=spec.get("epochs") or 0,
        strict=spec.get("determinism") == "strict",
    )
    if dataset.get("entryPoint"):
        source = dataset.get("source") or {}
        job.entry_point.target = dataset["entryPoint"]
        job.entry_point.args_json = json.dumps(dataset.get("args") or {}, sort_keys=True)
        job.entry_point.path = source.get("path") or ""
        content = job.entry_point.SerializeToString(deterministic=True)
        job.dataset_id = hashlib.sha256(content).hexdigest()
    return job


def _choice(choices: Mapping[str, int], fields: Mapping[str, Any], key: str, default: str) -> Any:
    value = fields.get(key) or default
    if value not in choices:
        raise ConfigError(f"{key}: unknown value {value!r}. Use one of {', '.join(choices)}")
    return choices[value]
