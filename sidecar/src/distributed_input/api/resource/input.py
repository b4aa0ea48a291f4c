"""The resource: `DistributedInput`, apiVersion distributed-input.dev/v1alpha1.

    apiVersion: distributed-input.dev/v1alpha1
    kind: DistributedInput
    metadata: {name: digits}
    spec:
      dataset: {entryPoint: "digits:dataset_fn", args: {folder: data}}
      workers: {replicas: 2}

These models are the one definition: YAML is checked against them, the custom resource
definition comes from their JSON schema, and its documentation from their descriptions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel, fixed
from distributed_input.api.resource.pods import Accelerator, Resources
from distributed_input.api.resource.scalars import Anything, Name, Namespace, problem
from distributed_input.api.resource.sections import (
    Batching,
    Dataset,
    Dispatcher,
    Sidecar,
    Source,
    TfDataService,
)
from distributed_input.api.resource.trainers import Trainers
from distributed_input.api.resource.workers import Autoscaling, Workers

__all__ = [
    "API_VERSION",
    "KIND",
    "Accelerator",
    "Autoscaling",
    "Batching",
    "Dataset",
    "Dispatcher",
    "DistributedInput",
    "Metadata",
    "Resources",
    "Section",
    "Sidecar",
    "Source",
    "Spec",
    "TfDataService",
    "Trainers",
    "Workers",
]

GROUP = "distributed-input.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "DistributedInput"

MOST_PARTITIONS = 1024

# What the API server adds to every object: allowed, as `kubectl get -o yaml` writes it, not kept.
_SERVERS_OWN = frozenset(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName "
    "managedFields ownerReferences resourceVersion selfLink".split()
)


class Metadata(Section):
    """The object's name and labels."""

    name: Name = Field(description="The input's name; `connect(name)` in the trainer.")
    namespace: Namespace | None = Field(default=None, description="Where it lives.")
    labels: dict[str, str] = Field(default={}, description="As on every Kubernetes object.")
    annotations: dict[str, str] = Field(default={}, description="As on every Kubernetes object.")
    uid: str | None = Field(default=None, description="Set by the API server.")
    generation: int | None = Field(default=None, description="Set by the API server.")

    @model_validator(mode="before")
    @classmethod
    def _leave_out_the_servers_own(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: data[key] for key in data if key not in _SERVERS_OWN}


class Spec(Section):
    """The input pipeline that is wanted."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.order == 'any' || !has(self.partitions) || "
                "!has(self.batching.globalBatchSize) || "
                "self.batching.globalBatchSize % self.partitions == 0",
                "partitions does not divide batching.globalBatchSize: use a number that does, or "
                "give up the order with `order: any`",
            ),
            (
                "!has(self.tfDataService) || !self.tfDataService.staticSharding || "
                "!has(self.workers) || !has(self.workers.autoscaling)",
                "tfDataService.staticSharding needs a number of workers that stays: take "
                "workers.autoscaling away, or keep to ShardingPolicy OFF and DYNAMIC",
            ),
            (
                "!has(self.tfDataService) || !(self.tfDataService.port in "
                "[has(self.dispatcher) && has(self.dispatcher.port) ? self.dispatcher.port : 7070, "
                "7070, 9090])",
                "tfDataService.port is taken in the dispatcher's pod: choose another, such as 7080",
            ),
            *fixed("processingMode", "numSplits", "partitions", "seed"),
        )
    )

    dataset: Dataset = Field(default=Dataset(), description="What is read.")
    processing_mode: Literal["distributed_epoch", "parallel_epochs"] = Field(
        default="distributed_epoch",
        description="Every row once per epoch over all trainers, or every row once per epoch for "
        "each trainer.",
    )
    num_splits: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        default=None,
        description="Pieces that the dataset is cut into. Left out: chosen from the dataset.",
        examples=[32],
    )
    partitions: Annotated[int, Field(ge=1, le=MOST_PARTITIONS)] | None = Field(
        default=None,
        description="Ordered lists of splits, which trainers share out. The number of trainers "
        "must divide it. Left out: the largest divisor of the global batch size up to 8.",
        examples=[8],
    )
    seed: int = Field(
        default=0, ge=0, le=2**63 - 1, description="Seeds every shuffle, with the epoch."
    )
    epochs: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="How many there are. Left out: no limit.", examples=[10]
    )
    batching: Batching = Field(default=Batching(), description="How rows become batches.")
    order: Literal["strict", "any"] = Field(
        default="strict",
        description="strict: a step is the same rows on any number of trainers and workers. any: "
        "whichever rows are there first; still each exactly once.",
    )
    determinism: Literal["strict", "warn", "relaxed"] = Field(
        default="warn",
        description="What happens where a split that runs again makes other rows than before. "
        "strict: an error. warn: a warning. relaxed: it is counted, and workers run without "
        "TensorFlow's op determinism.",
    )
    workers: Workers = Field(default=Workers(), description="What runs the input pipeline.")
    trainers: Trainers = Field(
        default=Trainers(), description="What waits when there are too few workers."
    )
    dispatcher: Dispatcher = Field(default=Dispatcher(), description="What knows who is there.")
    sidecar: Sidecar = Field(default=Sidecar(), description="What fetches a trainer's share.")
    tf_data_service: TfDataService | None = Field(
        default=None,
        description="TensorFlow's own tf.data service in the same pods, for programs that call "
        "tf.data.experimental.service.distribute. Its limits stay its own: a worker that dies "
        "loses elements, nothing is checkpointed, and it knows no token.",
        examples=[{}],
    )
    network_policy: bool = Field(
        default=True,
        description="Only the input's own trainers reach it, where the cluster enforces "
        "NetworkPolicies. false: everyone who has its token; for trainers with hostNetwork, which "
        "no NetworkPolicy can tell from their node.",
    )
    suspend: bool = Field(
        default=False,
        description="Stop dispatcher and workers; trainers wait, and go on where they were.",
    )

    @model_validator(mode="after")
    def _stock_service_fits(self) -> Spec:
        stock = self.tf_data_service
        if stock is not None and stock.port in (self.dispatcher.port, 7070, 9090):
            raise problem(
                f"{stock.port} is taken in the dispatcher's pod: choose another, such as 7080",
                "tfDataService",
                "port",
            )
        if stock is not None and stock.static_sharding and self.workers.autoscaling is not None:
            raise problem(
                "needs a number of workers that stays: take workers.autoscaling away, or keep to "
                "ShardingPolicy OFF and DYNAMIC",
                "tfDataService",
                "staticSharding",
            )
        return self

    @model_validator(mode="after")
    def _partitions_divide_the_batch(self) -> Spec:
        rows, partitions = self.batching.global_batch_size, self.partitions
        if self.order == "any" or not rows or not partitions or rows % partitions == 0:
            return self
        fitting = [str(d) for d in range(1, MOST_PARTITIONS + 1) if rows % d == 0]
        raise problem(
            f"{partitions} does not divide batching.globalBatchSize {rows}: use one of "
            f"{', '.join(fitting)}, or give up the order with `order: any`",
            "partitions",
        )


class DistributedInput(Section):
    """An input pipeline that a cluster runs for the trainers that name it."""

    api_version: Literal["distributed-input.dev/v1alpha1"]
    kind: Literal["DistributedInput"]
    metadata: Metadata
    spec: Spec = Field(default=Spec(), description="The input pipeline that is wanted.")
    status: Anything = Field(default={}, description="Written by the operator.")
