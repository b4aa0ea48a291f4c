"""The configuration that the processes of the data plane read."""

from __future__ import annotations

from pydantic.alias_generators import to_snake

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

    Fields about the number, place and resources of processes are not part of it. The processes
    write the values of enumerations in snake_case: `DistributedEpoch` is `distributed_epoch`.
    """
    spec, dataset = resource.spec, resource.spec.dataset
    entry = dataset.entry_point
    return InputConfig(
        dataset=DatasetConfig(
            entry_point=entry.function if entry else None,
            args=entry.args if entry else {},
            source=CodeSource(dataset.path, dataset.config_map),
        ),
        processing_mode=to_snake(spec.processing_mode),
        num_splits=spec.num_splits,
        partitions=spec.partitions,
        seed=spec.seed,
        epochs=spec.epochs,
        batching=BatchingConfig(spec.batching.global_batch_size, to_snake(spec.batching.remainder)),
        determinism=to_snake(spec.determinism),
        sidecar=DeliveryConfig(
            spec.sidecar.read_ahead,
            spec.sidecar.timeout_seconds,
            quantity_bytes(spec.sidecar.buffer),
            to_snake(spec.sidecar.transfer),
        ),
    )
