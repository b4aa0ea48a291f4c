"""The configuration that the processes of the data plane read."""

from __future__ import annotations

from typing import Any

from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.scalars import quantity_bytes

_OTHER_FIELDS: Any = {
    "trainers": True,
    "workers": True,
    "dispatcher": True,
    "network_policy": True,
    "suspend": True,
    "tf_data_service": True,
    "sidecar": {"image", "resources"},
}
"""Fields about the number, place and resources of processes."""


def data_plane_config(resource: DistributedInput) -> dict[str, Any]:
    """Return the JSON object that the sidecar's `--config` has under `inputs[<name>]`.

    It has every field of the spec about the rows and their order, in camelCase, with defaults.
    A field without value and default is null. Three fields differ from the YAML:
    `dataset.fromTrainer` is always true or false, the default of `dataset.source` is
    `{image: true}`, and `sidecar.bufferBytes` is `sidecar.buffer` in bytes.
    """
    config: dict[str, Any] = resource.spec.model_dump(
        mode="json", by_alias=True, exclude=_OTHER_FIELDS
    )
    dataset, sidecar = config["dataset"], config["sidecar"]
    dataset["fromTrainer"] = resource.spec.dataset.traced
    source = {key: value for key, value in dataset["source"].items() if value is not None}
    dataset["source"] = source or {"image": True}
    sidecar["bufferBytes"] = quantity_bytes(sidecar.pop("buffer"))
    return config
