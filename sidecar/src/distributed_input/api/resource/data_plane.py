"""The configuration that the processes of the data plane read."""

from __future__ import annotations

from typing import Any

from distributed_input.api.config import (
    BatchingConfig,
    CodeSource,
    DatasetConfig,
    DeliveryConfig,
    InputConfig,
)
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import quantity_bytes


def input_config(resource: DistributedInput) -> InputConfig:
    """Return the fields of the spec about the rows and their order.

    Fields about the number, place and resources of processes are not part of it.
    """
    spec, dataset = resource.spec, resource.spec.dataset
    return InputConfig(
        dataset=DatasetConfig(
            entry_point=dataset.entry_point,
            args=dataset.args,
            source=CodeSource(dataset.source.path, dataset.source.config_map),
        ),
        processing_mode=spec.processing_mode,
        num_splits=spec.num_splits,
        partitions=spec.partitions,
        seed=spec.seed,
        epochs=spec.epochs,
        batching=BatchingConfig(spec.batching.global_batch_size, spec.batching.remainder),
        determinism=spec.determinism,
        sidecar=DeliveryConfig(
            spec.sidecar.read_ahead,
            spec.sidecar.timeout_seconds,
            quantity_bytes(spec.sidecar.buffer),
            spec.sidecar.transfer,
        ),
    )


def data_plane_config(resource: DistributedInput) -> dict[str, Any]:
    """Return `input_config` as the JSON object of `inputs[<name>]` in the sidecar's --config."""
    return input_config(resource).to_json()
