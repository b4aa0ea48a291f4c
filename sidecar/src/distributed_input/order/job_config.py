"""The job that the configuration of an input describes."""

from __future__ import annotations

import hashlib
import json

from distributed_input.api.config import InputConfig
from distributed_input.api.proto import types_pb2

_MODES = {
    "distributed_epoch": types_pb2.DISTRIBUTED_EPOCH,
    "parallel_epochs": types_pb2.PARALLEL_EPOCHS,
}
_REMAINDERS = {"keep": types_pb2.KEEP, "drop": types_pb2.DROP, "pad": types_pb2.PAD}


def job_of_config(name: str, config: InputConfig) -> types_pb2.Job:
    """Return the job of a configuration, without the fields that depend on the dataset.

    `name` is the full name of the job.
    """
    job = types_pb2.Job(
        name=name,
        seed=config.seed,
        mode=_MODES[config.processing_mode],
        num_splits=config.num_splits or 0,
        partitions=config.partitions or 0,
        global_batch_size=config.batching.global_batch_size or 0,
        remainder=_REMAINDERS[config.batching.remainder],
        epochs=config.epochs or 0,
        strict=config.determinism == "strict",
    )
    if config.bad_records.on_error == "skip":
        job.bad_records.per_split = config.bad_records.max_per_split
        job.bad_records.percent = config.bad_records.max_percent
    if config.dataset.entry_point is not None:
        job.entry_point.target = config.dataset.entry_point
        job.entry_point.args_json = json.dumps(dict(config.dataset.args), sort_keys=True)
        job.entry_point.path = config.dataset.source.path or ""
        content = job.entry_point.SerializeToString(deterministic=True)
        job.dataset_id = hashlib.sha256(content).hexdigest()
    return job
