"""The model of the resource `DistributedInput`, apiVersion distributed-input.dev/v1beta1.

apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: digits}
spec:
dataset:
type: EntryPoint
entryPoint: {function: "digits:dataset_fn", args: {folder: data}}
workers: {replicas: 2}
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, model_validator

from distributed_input.api.resource.base import Section, cel, immutable
from distributed_input.api.resource.input import GROUP, MAX_PARTITIONS, ObjectMeta, divisors
from distributed_input.api.resource.scalars import Anything, problem
from distributed_input.api.resource.sections.processes import DispatcherSpec
from distributed_input.api.resource.sections.tf_data_service import TfDataServiceSpec
from distributed_input.api.resource.v1beta1.dataset import BetaBatching, BetaDataset
from distributed_input.api.resource.v1beta1.processes import BetaSidecar, BetaTrainers
from distributed_input.api.resource.v1beta1.workers import DOMAIN_PATH, BetaWorkers

BETA_VERSION = f"{GROUP}/v1beta1"

ManagedBy = Annotated[str, Field(pattern=DOMAIN_PATH, max_length=63, examples=[f"{GROUP}/canary"])]


class BetaSpec(Section):
    """The desired input pipeline."""

    model_config = ConfigDict(
        json_schema_extra=cel(
            (
                "self.order == 'Any' || !has(self.partitions) || "
                "!has(self.batching.globalBatchSize) || "
                "self.batching.globalBatchSize % self.partitions == 0",
                "partitions does not divide batching.globalBatchSize: set partitions to a divisor "
                "of it, or set `order: Any`",
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
                "!has(self.tfDataService) || !has(self.encryption) || self.encryption == 'None'",
                "tfDataService cannot be encrypted: remove tfDataService, or set encryption: None",
            ),
            *immutable("processingMode", "numSplits", "partitions", "seed"),
            (
                "has(self.managedBy) == has(oldSelf.managedBy) && "
                "(!has(self.managedBy) || self.managedBy == oldSelf.managedBy)",
                "managedBy is immutable, because the objects of an input belong to one "
                "operator: create a new DistributedInput with another name",
            ),
        )
    )

    dataset: BetaDataset = Field(
        default=BetaDataset(type="Trainer"),
        description="Dataset to read. Default: the trainer sends it.",
    )
    processing_mode: Literal["DistributedEpoch", "ParallelEpochs"] = Field(
        default="DistributedEpoch",
        description="Rows of an epoch. DistributedEpoch: the trainers share the rows, each row "
        "once. ParallelEpochs: each trainer gets every row once. Default: DistributedEpoch.",
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
    batching: BetaBatching = Field(
        default=BetaBatching(),
        description="Size of batches, and handling of an epoch's last batch.",
    )
    order: Literal["Strict", "Any"] = Field(
        default="Strict",
        description="Order of rows. Strict: each step has the same rows for any number of "
        "trainers and workers. Any: rows in the order in which workers produce them, each exactly "
        "once. Default: Strict.",
    )
    determinism: Literal["Strict", "Warn", "Relaxed"] = Field(
        default="Warn",
        description="Reaction if a replayed split produces different rows. Strict: raise an "
        "error. Warn: log a warning. Relaxed: count it, and let random values differ when a split "
        "runs again. Default: Warn.",
    )
    workers: BetaWorkers = Field(
        default=BetaWorkers(), description="Processes that run the input pipeline."
    )
    trainers: BetaTrainers = Field(
        default=BetaTrainers(),
        description="Cost of trainers that wait for rows. Used if an InputPolicy has budgets.",
    )
    dispatcher: DispatcherSpec = Field(
        default=DispatcherSpec(),
        description="Process that registers workers and trainers, and assigns splits.",
    )
    sidecar: BetaSidecar = Field(
        default=BetaSidecar(),
        description="Process beside each trainer that fetches the trainer's rows.",
    )
    tf_data_service: TfDataServiceSpec | None = Field(
        default=None,
        description="TensorFlow's own tf.data service in the same pods, for programs that call "
        "tf.data.experimental.service.distribute. It keeps its own limits: a lost worker loses "
        "elements, nothing is checkpointed, and it does not check a token. Default: disabled.",
        examples=[{}],
    )
    encryption: Literal["None", "Control", "All"] | None = Field(
        default=None,
        description="Mutual TLS between the processes of the input. All: on every connection. "
        "Control: not on the direct connections that carry rows, for networks that all users may "
        "read. None: no encryption; a token authorizes all calls. Immutable. Images of release "
        "0.1.0 start only with `None`. `distributed-input run` ignores this field. Default: "
        "All. Inputs that ran before this default existed continue as they were: see "
        "status.encryption.",
        examples=["None"],
    )
    network_policy: Literal["Restricted", "Open"] = Field(
        default="Restricted",
        description="Clients that the input's NetworkPolicy allows, if the cluster enforces "
        "NetworkPolicies. Restricted: only the input's own trainers. Open: every client with the "
        "input's token. Use Open for trainers with hostNetwork, because a NetworkPolicy cannot "
        "select them. Default: Restricted.",
    )
    suspend: bool = Field(
        default=False,
        description="Stop the dispatcher and the workers while true. Trainers wait and then "
        "resume at their position. Default: false.",
    )
    managed_by: ManagedBy | None = Field(
        default=None,
        description=f"Controller that manages this input. {GROUP}/CLASS: the operator whose chart "
        "has CLASS as the value operatorClass. Other controllers' names: no operator of this "
        "project acts. Immutable. Default: the operator without a class.",
    )

    @model_validator(mode="after")
    def _check_tf_data_service(self) -> BetaSpec:
        service = self.tf_data_service
        if service is not None and service.port in (self.dispatcher.port, 7070, 9090):
            raise problem(
                f"{service.port} is already used in the dispatcher's pod: use another port, for "
                "example 7080",
                "tfDataService",
                "port",
            )
        if service is not None and self.encryption not in (None, "None"):
            raise problem(
                "cannot be encrypted: remove tfDataService, or set encryption: None",
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
    def _check_partitions(self) -> BetaSpec:
        rows, partitions = self.batching.global_batch_size, self.partitions
        if self.order == "Any" or not rows or not partitions or rows % partitions == 0:
            return self
        raise problem(
            f"{partitions} does not divide batching.globalBatchSize {rows}: use one of "
            f"{divisors(rows)}, or set `order: Any`",
            "partitions",
        )


class BetaInput(Section):
    """An input pipeline that runs in the cluster and sends rows to the trainers that use it."""

    api_version: Literal["distributed-input.dev/v1beta1"]
    kind: Literal["DistributedInput"]
    metadata: ObjectMeta
    spec: BetaSpec = Field(default=BetaSpec(), description="The desired input pipeline.")
    status: Anything = Field(default={}, description="Written by the operator.")
