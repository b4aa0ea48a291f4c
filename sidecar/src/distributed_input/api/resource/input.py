"""The model of the resource `DistributedInput`, apiVersion distributed-input.dev/v1beta1.

    apiVersion: distributed-input.dev/v1beta1
    kind: DistributedInput
    metadata: {name: digits}
    spec:
      dataset:
        type: EntryPoint
        entryPoint: {function: "digits:dataset_fn", args: {folder: data}}
      workers: {replicas: 2}

YAML files are validated against these models. The custom resource definition and its descriptions
are generated from them.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic.alias_generators import to_snake

from distributed_input.api.config import (
    BadRecordsConfig,
    BatchingConfig,
    CodeSource,
    DatasetConfig,
    DeliveryConfig,
    InputConfig,
    MixtureConfig,
    PackingConfig,
    SourceLimitsConfig,
)
from distributed_input.api.resource.base import Section, cel, immutable
from distributed_input.api.resource.scalars import (
    DOMAIN_PATH,
    Anything,
    Name,
    Namespace,
    problem,
    quantity_bytes,
)
from distributed_input.api.resource.sections.dataset import (
    BadRecordsSpec,
    BatchingSpec,
    DatasetSpec,
    PackingSpec,
)
from distributed_input.api.resource.sections.mixture import MixtureSpec
from distributed_input.api.resource.sections.processes import (
    DispatcherSpec,
    SidecarSpec,
    StoreSpec,
    TfDataServiceSpec,
    TrainersSpec,
)
from distributed_input.api.resource.sections.workers import WorkersSpec
from distributed_input.api.topology import divisors

GROUP = "distributed-input.dev"
API_VERSION = f"{GROUP}/v1beta1"
KIND = "DistributedInput"

MAX_PARTITIONS = 1024

# Fields that the API server adds to every object. They are accepted, because `kubectl get -o yaml`
# prints them, and removed.
_SERVER_FIELDS = frozenset(
    "creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName "
    "managedFields ownerReferences resourceVersion selfLink".split()
)


def manager(operator_class: str) -> str | None:
    """Return spec.managedBy of the inputs of an operator with this class. "" has no class."""
    return f"{GROUP}/{operator_class}" if operator_class else None


class ObjectMeta(Section):
    """The name, namespace, labels and annotations of the object."""

    name: Name
    """Name of the input, as in `connect(name)` in the trainer. Required."""
    namespace: Namespace | None = None
    """Namespace of the object. Default: kubectl's namespace."""
    labels: dict[str, str] = Field(default={})
    """Labels, as on every Kubernetes object. Default: none."""
    annotations: dict[str, str] = Field(default={})
    """Annotations, as on every Kubernetes object. Default: none."""
    uid: str | None = None
    """Set by the API server."""
    generation: int | None = None
    """Set by the API server."""

    @model_validator(mode="before")
    @classmethod
    def _remove_server_fields(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        return {key: data[key] for key in data if key not in _SERVER_FIELDS}


ManagedBy = Annotated[str, Field(pattern=DOMAIN_PATH, max_length=63, examples=[f"{GROUP}/canary"])]


_UNPROTECTED_SERVICE = (
    "has no authentication and cannot be encrypted: set encryption: None to accept that, or remove "
    "tfDataService"
)
_OPEN_SERVICE = (
    "has no authentication, and without a NetworkPolicy every pod can connect to it: set "
    "networkPolicy: Restricted, or remove tfDataService"
)


class InputSpec(Section):
    """The desired input pipeline."""

    model_config = cel(
        (
            "!has(self.partitions) || !has(self.batching.globalBatchSize) || "
            "self.batching.globalBatchSize % self.partitions == 0",
            "partitions does not divide batching.globalBatchSize: set partitions to a divisor "
            "of it",
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
            "!has(self.tfDataService) || self.encryption == 'None'",
            f"tfDataService {_UNPROTECTED_SERVICE}",
        ),
        (
            "!has(self.tfDataService) || self.networkPolicy == 'Restricted'",
            f"tfDataService {_OPEN_SERVICE}",
        ),
        *immutable("processingMode", "numSplits", "partitions", "seed"),
        *immutable("encryption", because="running trainers have either a token or a certificate"),
        *immutable("managedBy", because="the objects of an input belong to one operator"),
    )

    dataset: DatasetSpec = DatasetSpec(type="Trainer")
    """Dataset to read. Default: the trainer sends it."""
    processing_mode: Literal["DistributedEpoch", "ParallelEpochs"] = "DistributedEpoch"
    """Rows of an epoch. DistributedEpoch: the trainers share the rows, each row once.
    ParallelEpochs: each trainer gets every row once. Default: DistributedEpoch."""
    mixture: MixtureSpec | None = Field(
        default=None, examples=[{"weights": {"books": 0.3, "web": 0.7}}]
    )
    """Sources of the rows, with weights. Needs dataset.type EntryPoint. A change takes effect when
    the trainers start again. Default: one source."""
    packing: PackingSpec | None = Field(default=None, examples=[{"length": 2048}])
    """Packing of rows of variable length, such as the tokens of documents, into rows of one length.
    The rows of a step are packed rows. Needs dataset.type EntryPoint. A change takes effect when
    the trainers start again. Default: rows stay as they are."""
    num_splits: Annotated[int, Field(ge=1, le=65536)] | None = Field(default=None, examples=[32])
    """Number of splits of the dataset. A split is the unit of work of a worker. Default: derived
    from the dataset; 4 per partition, and up to 512 if it is large."""
    partitions: Annotated[int, Field(ge=1, le=MAX_PARTITIONS)] | None = Field(
        default=None, examples=[8]
    )
    """Number of partitions: ordered lists of splits, which are distributed over the trainers. The
    number of trainers must divide it. Default: the largest divisor of the global batch size, at
    most 8."""
    seed: int = Field(default=0, ge=0, le=2**63 - 1)
    """Seed of every shuffle, combined with the number of the epoch. Default: 0."""
    epochs: Annotated[int, Field(ge=1, le=2**63 - 1)] | None = Field(default=None, examples=[10])
    """Number of epochs. Default: no limit."""
    batching: BatchingSpec = BatchingSpec()
    """Size of batches, and handling of an epoch's last batch."""
    determinism: Literal["Strict", "Warn", "Relaxed"] = "Warn"
    """Reaction if a replayed split produces different rows. Strict: raise an error. Warn: log a
    warning. Relaxed: count it, and let random values differ when a split runs again. Default:
    Warn."""
    bad_records: BadRecordsSpec = BadRecordsSpec()
    """Records that cannot be read."""
    workers: WorkersSpec = WorkersSpec()
    """Processes that run the input pipeline."""
    trainers: TrainersSpec = TrainersSpec()
    """Cost of trainers that wait for rows. Used if an InputPolicy has budgets."""
    dispatcher: DispatcherSpec = DispatcherSpec()
    """Process that registers workers and trainers, and assigns splits."""
    sidecar: SidecarSpec = SidecarSpec()
    """Process beside each trainer that fetches the trainer's rows."""
    store: StoreSpec | None = Field(default=None, examples=[{"size": "500Gi"}])
    """Store of computed splits. Later jobs, epochs and restores with the same rows read them
    instead of computing them. It has no effect with determinism Relaxed. Default: none."""
    tf_data_service: TfDataServiceSpec | None = Field(default=None, examples=[{}])
    """TensorFlow's own tf.data service in the same pods, for programs that call
    tf.data.experimental.service.distribute. It keeps its own limits: a lost worker loses elements,
    nothing is checkpointed, and it does not check a token. Default: disabled."""
    encryption: Literal["None", "Control", "All"] = "All"
    """Mutual TLS between the processes of the input. All: on every connection. Control: not on the
    direct connections that carry rows, for networks that all users may read. None: no encryption; a
    token authorizes all calls. Immutable. `distributed-input run` ignores this field. Default:
    All."""
    network_policy: Literal["Restricted", "Open"] = "Restricted"
    """Clients that the input's NetworkPolicy allows, if the cluster enforces NetworkPolicies.
    Restricted: only the input's own trainers. Open: every client with the input's token. Use Open
    for trainers with hostNetwork, because a NetworkPolicy cannot select them. Default:
    Restricted."""
    suspend: bool = False
    """Stop the dispatcher and the workers while true. Trainers wait and then resume at their
    position. Default: false."""
    managed_by: ManagedBy | None = Field(
        default=None,
        description=f"Controller that manages this input. {GROUP}/CLASS: the operator whose chart "
        "has CLASS as the value operatorClass. Other controllers' names: no operator of this "
        "project acts. Immutable. Default: the operator without a class.",
    )

    @property
    def is_encrypted(self) -> bool:
        """Whether the processes have certificates instead of a token."""
        return self.encryption != "None"

    @property
    def is_restricted(self) -> bool:
        """Whether the NetworkPolicy allows only the input's own trainers."""
        return self.network_policy == "Restricted"

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
        autoscaled = self.workers.autoscaling is not None
        if service is not None and service.static_sharding and autoscaled:
            raise problem(
                "needs a fixed number of workers: remove workers.autoscaling, or use "
                "ShardingPolicy OFF or DYNAMIC without staticSharding",
                "tfDataService",
                "staticSharding",
            )
        if service is not None and self.is_encrypted:
            raise problem(_UNPROTECTED_SERVICE, "tfDataService")
        if service is not None and not self.is_restricted:
            raise problem(_OPEN_SERVICE, "tfDataService")
        return self

    @model_validator(mode="after")
    def _check_mixture(self) -> InputSpec:
        if self.mixture is None:
            return self
        if self.dataset.entry_point is None:
            raise problem(
                "needs dataset.type EntryPoint: workers call its function for each source",
                "mixture",
            )
        if self.processing_mode == "ParallelEpochs":
            raise problem(
                "ParallelEpochs is not possible with mixture: use DistributedEpoch",
                "processingMode",
            )
        if self.batching.remainder == "Pad":
            raise problem(
                "Pad is not possible with mixture, which has only whole batches: remove it",
                "batching",
                "remainder",
            )
        return self

    @model_validator(mode="after")
    def _check_sources(self) -> InputSpec:
        sources = self.mixture.weights if self.mixture is not None else {}
        named = [("exclude", one.source) for one in self.bad_records.exclude if one.source]
        named += [("sources", name) for name in self.bad_records.sources]
        for field, name in named:
            if name not in sources:
                raise problem(
                    f"{name!r} is not a source of mixture.weights: correct or remove it",
                    "badRecords",
                    field,
                )
        return self

    @model_validator(mode="after")
    def _check_packing(self) -> InputSpec:
        if self.packing is not None and self.dataset.entry_point is None:
            raise problem(
                "needs dataset.type EntryPoint: workers pack the rows of its function. For a "
                "dataset of the trainer, call distributed_input.pack in dataset_fn",
                "packing",
            )
        return self

    @model_validator(mode="after")
    def _check_partitions(self) -> InputSpec:
        rows, partitions = self.batching.global_batch_size, self.partitions
        if not rows or not partitions or rows % partitions == 0:
            return self
        possible = [one for one in divisors(rows) if one <= MAX_PARTITIONS]
        raise problem(
            f"{partitions} does not divide batching.globalBatchSize {rows}: use one of "
            f"{', '.join(map(str, possible))}",
            "partitions",
        )


class DistributedInput(Section):
    """An input pipeline that runs in the cluster and sends rows to the trainers that use it."""

    api_version: Literal["distributed-input.dev/v1beta1"]
    kind: Literal["DistributedInput"]
    metadata: ObjectMeta
    spec: InputSpec = InputSpec()
    """The desired input pipeline."""
    status: Anything = Field(default={})
    """Written by the operator."""


def input_config(resource: DistributedInput) -> InputConfig:
    """Return the fields of the spec about the rows and their order.

    Fields about the number, place and resources of processes are not part of it. The processes
    write the values of enumerations in snake_case: `DistributedEpoch` is `distributed_epoch`.
    """
    spec, dataset = resource.spec, resource.spec.dataset
    entry = dataset.entry_point
    return InputConfig(
        dataset=DatasetConfig(
            entry.function if entry else None,
            entry.args if entry else {},
            CodeSource(dataset.path, dataset.config_map),
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
        mixture=_mixture_config(spec.mixture),
        bad_records=BadRecordsConfig(
            to_snake(spec.bad_records.on_error),
            spec.bad_records.max_per_split,
            spec.bad_records.max_percent,
            {
                name: SourceLimitsConfig(limits.max_per_split, limits.max_percent)
                for name, limits in spec.bad_records.sources.items()
            },
            tuple(
                {name: getattr(one, name) for name in type(one).model_fields}
                for one in spec.bad_records.exclude
            ),
        ),
        packing=_packing_config(spec.packing),
    )


def _packing_config(packing: PackingSpec | None) -> PackingConfig:
    if packing is None:
        return PackingConfig()
    return PackingConfig(
        packing.length,
        to_snake(packing.method),
        packing.open_sequences,
        packing.balance_window,
    )


def _mixture_config(mixture: MixtureSpec | None) -> MixtureConfig:
    if mixture is None:
        return MixtureConfig()
    changes = ({"step": one.step, "weights": dict(one.weights)} for one in mixture.schedule)
    return MixtureConfig(dict(mixture.weights), to_snake(mixture.on_exhausted), tuple(changes))
