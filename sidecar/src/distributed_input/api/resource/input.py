"""The model of the resource `DistributedInput`, apiVersion distributed-input.dev/v1alpha1.

    apiVersion: distributed-input.dev/v1alpha1
    kind: DistributedInput
    metadata: {name: digits}
    spec:
      dataset: {entryPoint: "digits:dataset_fn", args: {folder: data}}
      workers: {replicas: 2}

YAML files are validated against these models. The custom resource definition and its descriptions
are generated from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel, immutable
from distributed_input.api.resource.scalars import (
    Anything,
    Name,
    Namespace,
    OperatorClass,
    problem,
)
from distributed_input.api.resource.sections.dataset import BatchingSpec, DatasetSpec
from distributed_input.api.resource.sections.processes import DispatcherSpec, SidecarSpec
from distributed_input.api.resource.sections.tf_data_service import TfDataServiceSpec
from distributed_input.api.resource.sections.trainers import TrainersSpec
from distributed_input.api.resource.sections.workers import WorkersSpec

GROUP = "distributed-input.dev"
API_VERSION = f"{GROUP}/v1alpha1"
KIND = "DistributedInput"

MAX_PARTITIONS = 1024

# Fields that the API server adds to every object. They are accepted, because `kubectl get -o yaml`
# prints them, and removed.
_SERVER_FIELDS = frozenset(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName "
    "managedFields ownerReferences resourceVersion selfLink".split()
)


def divisors(rows: int) -> str:
    """Return the numbers of partitions that divide a batch, as text."""
    return ", ".join(str(one) for one in range(1, MAX_PARTITIONS + 1) if rows % one == 0)


class ObjectMeta(Section):
    """The name, namespace, labels and annotations of the object."""

    name: Name = Field(
        description="Name of the input, as in `connect(name)` in the trainer. Required."
    )
    namespace: Namespace | None = Field(
        default=None, description="Namespace of the object. Default: kubectl's namespace."
    )
    labels: dict[str, str] = Field(
        default={}, description="Labels, as on every Kubernetes object. Default: none."
    )
    annotations: dict[str, str] = Field(
        default={}, description="Annotations, as on every Kubernetes object. Default: none."
    )
    uid: str | None = Field(default=None, description="Set by the API server.")
    generation: int | None = Field(default=None, description="Set by the API server.")

    @model_validator(mode="before")
    @classmethod
    def _remove_server_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: data[key] for key in data if key not in _SERVER_FIELDS}


class InputSpec(Section):
    """The desired input pipeline."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.order == 'any' || !has(self.partitions) || "
                "!has(self.batching.globalBatchSize) || "
                "self.batching.globalBatchSize % self.partitions == 0",
                "partitions does not divide batching.globalBatchSize: set partitions to a divisor "
                "of it, or set `order: any`",
            ),
            (
                "!has(self.tfDataService) || !self.tfDataService.staticSharding || "
                "!has(self.workers) || !has(self.workers.autoscaling)",
                "tfDataService.staticSharding needs a fixed number of workers: remove "
                "workers.autoscaling, or use ShardingPolicy OFF or DYNAMIC without staticSharding",
            ),
            (
                "!has(self.tfDataService) || !(self.tfDataService.port in "
                "[has(self.dispatcher) && has(self.dispatcher.port) ? self.dispatcher.port : 7070, "
                "7070, 9090])",
                "tfDataService.port is already used in the dispatcher's pod: use another port, for "
                "example 7080",
            ),
            (
                "!has(self.tfDataService) || !has(self.encryption) || self.encryption == 'none'",
                "tfDataService cannot be encrypted: remove tfDataService, or set encryption: none",
            ),
            *immutable("processingMode", "numSplits", "partitions", "seed"),
            (
                "has(self.operatorClass) == has(oldSelf.operatorClass) && "
                "(!has(self.operatorClass) || self.operatorClass == oldSelf.operatorClass)",
                "operatorClass is immutable, because the objects of an input belong to one "
                "operator: create a new DistributedInput with another name",
            ),
        )
    )

    dataset: DatasetSpec = Field(
        default=DatasetSpec(), description="Dataset to read. Default: the trainer sends it."
    )
    processing_mode: Literal["distributed_epoch", "parallel_epochs"] = Field(
        default="distributed_epoch",
        description="Rows of an epoch. distributed_epoch: the trainers share the rows, each row "
        "once. parallel_epochs: each trainer gets every row once. Default: distributed_epoch.",
    )
    num_splits: Annotated[int, Field(ge=1, le=65536)] | None = Field(
        default=None,
        description="Number of splits of the dataset. A split is the unit of work of a worker. "
        "Default: derived from the dataset; 4 per partition, and up to 512 if it is large.",
        examples=[32],
    )
    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = Field(
        default=None,
        description="Number of partitions: ordered lists of splits, which are distributed over "
        "the trainers. The number of trainers must divide it. Default: the largest divisor of the "
        "global batch size, at most 8.",
        examples=[8],
    )
    seed: int = Field(
        default=0,
        ge=0,
        le=2**63 - 1,
        description="Seed of every shuffle, combined with the number of the epoch. Default: 0.",
    )
    epochs: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(
        default=None, description="Number of epochs. Default: no limit.", examples=[10]
    )
    batching: BatchingSpec = Field(
        default=BatchingSpec(),
        description="Size of batches, and handling of an epoch's last batch.",
    )
    order: Literal["strict", "any"] = Field(
        default="strict",
        description="Order of rows. strict: each step has the same rows for any number of "
        "trainers and workers. any: rows in the order in which workers produce them, each exactly "
        "once. Default: strict.",
    )
    determinism: Literal["strict", "warn", "relaxed"] = Field(
        default="warn",
        description="Reaction if a replayed split produces different rows. strict: raise an "
        "error. warn: log a warning. relaxed: count it, and let random values differ when a split "
        "runs again. Default: warn.",
    )
    workers: WorkersSpec = Field(
        default=WorkersSpec(), description="Processes that run the input pipeline."
    )
    trainers: TrainersSpec = Field(
        default=TrainersSpec(),
        description="Cost of trainers that wait for rows. Used if an InputPolicy has budgets.",
    )
    dispatcher: DispatcherSpec = Field(
        default=DispatcherSpec(),
        description="Process that registers workers and trainers, and assigns splits.",
    )
    sidecar: SidecarSpec = Field(
        default=SidecarSpec(),
        description="Process beside each trainer that fetches the trainer's rows.",
    )
    tf_data_service: TfDataServiceSpec | None = Field(
        default=None,
        description="TensorFlow's own tf.data service in the same pods, for programs that call "
        "tf.data.experimental.service.distribute. It keeps its own limits: a lost worker loses "
        "elements, nothing is checkpointed, and it does not check a token. Default: disabled.",
        examples=[{}],
    )
    encryption: Literal["none", "control", "all"] | None = Field(
        default=None,
        description="Mutual TLS between the processes of the input. all: on every connection. "
        "control: not on the direct connections that carry rows, for networks that all users may "
        "read. none: no encryption; a token authorizes all calls. Immutable. Images of release "
        "0.1.0 start only with `none`. `distributed-input run` ignores this field. Default: "
        "all. Inputs that ran before this default existed continue as they were: see "
        "status.encryption.",
        examples=["none"],
    )
    network_policy: bool = Field(
        default=True,
        description="Create a NetworkPolicy that allows only the input's own trainers, if the "
        "cluster enforces NetworkPolicies. false: allow every client with the input's token. Use "
        "false for trainers with hostNetwork, because a NetworkPolicy cannot select them. "
        "Default: true.",
    )
    suspend: bool = Field(
        default=False,
        description="Stop the dispatcher and the workers while true. Trainers wait and then "
        "resume at their position. Default: false.",
    )

    operator_class: OperatorClass | None = Field(
        default=None,
        description="Class of the operator that manages this input, as in the value operatorClass "
        "of its chart. Immutable. Default: the operator without a class.",
        examples=["canary"],
    )

    @model_validator(mode="after")
    def _check_tf_data_service(self) -> InputSpec:
        service = self.tf_data_service
        if service is not None and service.port in (self.dispatcher.port, 7070, 9090):
            raise problem(
                f"{service.port} is already used in the dispatcher's pod: use another port, for "
                "example 7080",
                "tfDataService",
                "port",
            )
        if service is not None and self.encryption not in (None, "none"):
            raise problem(
                "cannot be encrypted: remove tfDataService, or set encryption: none",
                "tfDataService",
            )
        autoscaled = self.workers.autoscaling is not None
        if service is not None and service.static_sharding and autoscaled:
            raise problem(
                "needs a fixed number of workers: remove workers.autoscaling, or use "
                "ShardingPolicy OFF or DYNAMIC without staticSharding",
                "tfDataService",
                "staticSharding",
            )
        return self

    @model_validator(mode="after")
    def _check_partitions(self) -> InputSpec:
        rows, partitions = self.batching.global_batch_size, self.partitions
        if self.order == "any" or not rows or not partitions or rows % partitions == 0:
            return self
        raise problem(
            f"{partitions} does not divide batching.globalBatchSize {rows}: use one of "
            f"{divisors(rows)}, or set `order: any`",
            "partitions",
        )


class DistributedInput(Section):
    """An input pipeline that runs in the cluster and sends rows to the trainers that use it."""

    api_version: Literal["distributed-input.dev/v1alpha1"]
    kind: Literal["DistributedInput"]
    metadata: ObjectMeta
    spec: InputSpec = Field(default=InputSpec(), description="The desired input pipeline.")
    status: Anything = Field(default={}, description="Written by the operator.")
