"""The job that the configuration of an input describes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from distributed_input.api.config import (
    BadRecordsConfig,
    InputConfig,
    MixtureConfig,
    SourceLimitsConfig,
)
from distributed_input.api.proto import types_pb2
from distributed_input.order.mixture import rounding, whole_weights

_MODES = {
    "distributed_epoch": types_pb2.DISTRIBUTED_EPOCH,
    "parallel_epochs": types_pb2.PARALLEL_EPOCHS,
}
_EXHAUSTIONS = {
    "repeat": types_pb2.REPEAT,
    "stop": types_pb2.STOP,
    "drop": types_pb2.DROP_SOURCE,
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
    _set_bad_records(job, config.bad_records)
    if config.dataset.entry_point is not None:
        job.entry_point.target = config.dataset.entry_point
        job.entry_point.args_json = json.dumps(dict(config.dataset.args), sort_keys=True)
        job.entry_point.path = config.dataset.source.path or ""
        if config.packing.length is not None:
            job.entry_point.packing.length = config.packing.length
            job.entry_point.packing.method = config.packing.method
            job.entry_point.packing.open_sequences = config.packing.open_sequences
            job.entry_point.packing.balance_window = config.packing.balance_window
        job.dataset_id = _dataset_id(job.entry_point)
    if config.mixture.weights:
        _mix(job, config.mixture)
        for source in job.sources:
            _set_bad_records(source, config.bad_records)
    return job


def _set_bad_records(job: types_pb2.Job, config: BadRecordsConfig) -> None:
    """Set the records that the splits of a job, or of a source, leave out, in place."""
    found = types_pb2.BadRecords()
    if config.on_error == "skip":
        limits = config.sources.get(job.entry_point.source, SourceLimitsConfig())
        found.per_split = limits.max_per_split or config.max_per_split
        found.percent = limits.max_percent or config.max_percent
    for one in config.exclude:
        if one["source"] in (None, job.entry_point.source):
            excluded = found.excluded.add(step=one["step"], index=one["index"])
            for name in ("file", "split", "epoch"):
                if one[name] is not None:
                    setattr(excluded, name, one[name])
    if found != types_pb2.BadRecords():
        job.bad_records.CopyFrom(found)


def _mix(job: types_pb2.Job, mixture: MixtureConfig) -> None:
    """Make a job a mixture, in place. Its sources are sorted by name."""
    names = sorted(mixture.weights)
    for name in names:
        source = job.sources.add(entry_point=job.entry_point)
        source.entry_point.source = name
        source.dataset_id = _dataset_id(source.entry_point)
    log: list[tuple[int, Mapping[str, float]]] = [(0, mixture.weights)]
    log += [(change["step"], change["weights"]) for change in mixture.schedule]
    for step, weights in log:
        job.weights.add(step=step, weights=whole_weights([weights[name] for name in names]))
        if text := rounding(weights):
            job.warnings.append(f"spec.mixture: {text}")
    job.exhaustion = _EXHAUSTIONS[mixture.on_exhausted]
    job.remainder = types_pb2.DROP  # only whole steps have the shares


def _dataset_id(entry_point: types_pb2.EntryPoint) -> str:
    return hashlib.sha256(entry_point.SerializeToString(deterministic=True)).hexdigest()
