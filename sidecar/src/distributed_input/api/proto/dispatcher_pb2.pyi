from distributed_input.api.proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WorkerHeartbeatRequest(_message.Message):
    __slots__ = ("worker_id", "address", "draining", "open_streams", "rows", "busy_seconds", "tf_version", "node", "protocol", "pod", "parallelism", "permit_seconds", "stalled", "capacity", "buffer_bytes", "cpu_seconds", "failure", "skipped")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    TF_VERSION_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    PERMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    draining: bool
    open_streams: int
    rows: int
    busy_seconds: float
    tf_version: str
    node: str
    protocol: int
    pod: str
    parallelism: int
    permit_seconds: float
    stalled: _containers.RepeatedCompositeFieldContainer[_types_pb2.StalledSplit]
    capacity: int
    buffer_bytes: int
    cpu_seconds: float
    failure: _types_pb2.DatasetFailure
    skipped: _containers.RepeatedCompositeFieldContainer[_types_pb2.SkippedRecord]
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., draining: bool = ..., open_streams: _Optional[int] = ..., rows: _Optional[int] = ..., busy_seconds: _Optional[float] = ..., tf_version: _Optional[str] = ..., node: _Optional[str] = ..., protocol: _Optional[int] = ..., pod: _Optional[str] = ..., parallelism: _Optional[int] = ..., permit_seconds: _Optional[float] = ..., stalled: _Optional[_Iterable[_Union[_types_pb2.StalledSplit, _Mapping]]] = ..., capacity: _Optional[int] = ..., buffer_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., failure: _Optional[_Union[_types_pb2.DatasetFailure, _Mapping]] = ..., skipped: _Optional[_Iterable[_Union[_types_pb2.SkippedRecord, _Mapping]]] = ...) -> None: ...

class WorkerHeartbeatResponse(_message.Message):
    __slots__ = ("dispatcher_id", "interval_seconds")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    interval_seconds: float
    def __init__(self, dispatcher_id: _Optional[str] = ..., interval_seconds: _Optional[float] = ...) -> None: ...

class PartitionFact(_message.Message):
    __slots__ = ("partition", "epoch", "split_rows", "rows_seen", "ended", "first_ordinal", "first_rows", "remade")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_ROWS_FIELD_NUMBER: _ClassVar[int]
    ROWS_SEEN_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    FIRST_ORDINAL_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROWS_FIELD_NUMBER: _ClassVar[int]
    REMADE_FIELD_NUMBER: _ClassVar[int]
    partition: int
    epoch: int
    split_rows: _containers.RepeatedScalarFieldContainer[int]
    rows_seen: int
    ended: bool
    first_ordinal: int
    first_rows: int
    remade: int
    def __init__(self, partition: _Optional[int] = ..., epoch: _Optional[int] = ..., split_rows: _Optional[_Iterable[int]] = ..., rows_seen: _Optional[int] = ..., ended: bool = ..., first_ordinal: _Optional[int] = ..., first_rows: _Optional[int] = ..., remade: _Optional[int] = ...) -> None: ...

class ConsumerHeartbeatRequest(_message.Message):
    __slots__ = ("job", "index", "count", "incarnation", "facts", "epoch", "rows", "batches", "wait_seconds", "wall_seconds", "buffer_fill", "replay_mismatches", "finished", "useful_workers", "protocol", "waiting_for", "run", "no_trainer", "pod", "received", "pauses", "useful_limit", "sources", "weights", "failed")
    JOB_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_FILL_FIELD_NUMBER: _ClassVar[int]
    REPLAY_MISMATCHES_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    USEFUL_WORKERS_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    NO_TRAINER_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PAUSES_FIELD_NUMBER: _ClassVar[int]
    USEFUL_LIMIT_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    job: str
    index: int
    count: int
    incarnation: str
    facts: _containers.RepeatedCompositeFieldContainer[PartitionFact]
    epoch: int
    rows: int
    batches: int
    wait_seconds: float
    wall_seconds: float
    buffer_fill: float
    replay_mismatches: int
    finished: bool
    useful_workers: int
    protocol: int
    waiting_for: str
    run: str
    no_trainer: bool
    pod: str
    received: _types_pb2.ReceivedTotals
    pauses: bool
    useful_limit: str
    sources: _containers.RepeatedCompositeFieldContainer[_types_pb2.SourceTotals]
    weights: _types_pb2.Weights
    failed: str
    def __init__(self, job: _Optional[str] = ..., index: _Optional[int] = ..., count: _Optional[int] = ..., incarnation: _Optional[str] = ..., facts: _Optional[_Iterable[_Union[PartitionFact, _Mapping]]] = ..., epoch: _Optional[int] = ..., rows: _Optional[int] = ..., batches: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., wall_seconds: _Optional[float] = ..., buffer_fill: _Optional[float] = ..., replay_mismatches: _Optional[int] = ..., finished: bool = ..., useful_workers: _Optional[int] = ..., protocol: _Optional[int] = ..., waiting_for: _Optional[str] = ..., run: _Optional[str] = ..., no_trainer: bool = ..., pod: _Optional[str] = ..., received: _Optional[_Union[_types_pb2.ReceivedTotals, _Mapping]] = ..., pauses: bool = ..., useful_limit: _Optional[str] = ..., sources: _Optional[_Iterable[_Union[_types_pb2.SourceTotals, _Mapping]]] = ..., weights: _Optional[_Union[_types_pb2.Weights, _Mapping]] = ..., failed: _Optional[str] = ...) -> None: ...

class ConsumerHeartbeatResponse(_message.Message):
    __slots__ = ("dispatcher_id", "workers", "facts", "fenced", "job_unknown", "interval_seconds", "fenced_by", "contradiction", "run", "failed", "failed_epoch")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    FENCED_FIELD_NUMBER: _ClassVar[int]
    JOB_UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FENCED_BY_FIELD_NUMBER: _ClassVar[int]
    CONTRADICTION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    facts: _containers.RepeatedCompositeFieldContainer[PartitionFact]
    fenced: bool
    job_unknown: bool
    interval_seconds: float
    fenced_by: str
    contradiction: str
    run: str
    failed: str
    failed_epoch: int
    def __init__(self, dispatcher_id: _Optional[str] = ..., workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ..., facts: _Optional[_Iterable[_Union[PartitionFact, _Mapping]]] = ..., fenced: bool = ..., job_unknown: bool = ..., interval_seconds: _Optional[float] = ..., fenced_by: _Optional[str] = ..., contradiction: _Optional[str] = ..., run: _Optional[str] = ..., failed: _Optional[str] = ..., failed_epoch: _Optional[int] = ...) -> None: ...

class WorkerInfo(_message.Message):
    __slots__ = ("worker_id", "address", "draining", "open_streams", "rows", "busy_seconds", "node", "pod", "parallelism", "permit_seconds", "stalled", "capacity", "buffer_bytes", "cpu_seconds", "failure")
    WORKER_ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DRAINING_FIELD_NUMBER: _ClassVar[int]
    OPEN_STREAMS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    POD_FIELD_NUMBER: _ClassVar[int]
    PARALLELISM_FIELD_NUMBER: _ClassVar[int]
    PERMIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    worker_id: str
    address: str
    draining: bool
    open_streams: int
    rows: int
    busy_seconds: float
    node: str
    pod: str
    parallelism: int
    permit_seconds: float
    stalled: _containers.RepeatedCompositeFieldContainer[_types_pb2.StalledSplit]
    capacity: int
    buffer_bytes: int
    cpu_seconds: float
    failure: _types_pb2.DatasetFailure
    def __init__(self, worker_id: _Optional[str] = ..., address: _Optional[str] = ..., draining: bool = ..., open_streams: _Optional[int] = ..., rows: _Optional[int] = ..., busy_seconds: _Optional[float] = ..., node: _Optional[str] = ..., pod: _Optional[str] = ..., parallelism: _Optional[int] = ..., permit_seconds: _Optional[float] = ..., stalled: _Optional[_Iterable[_Union[_types_pb2.StalledSplit, _Mapping]]] = ..., capacity: _Optional[int] = ..., buffer_bytes: _Optional[int] = ..., cpu_seconds: _Optional[float] = ..., failure: _Optional[_Union[_types_pb2.DatasetFailure, _Mapping]] = ...) -> None: ...

class RegisterJobRequest(_message.Message):
    __slots__ = ("job", "incarnation")
    JOB_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    incarnation: str
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., incarnation: _Optional[str] = ...) -> None: ...

class RegisterJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("name", "other_than")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OTHER_THAN_FIELD_NUMBER: _ClassVar[int]
    name: str
    other_than: str
    def __init__(self, name: _Optional[str] = ..., other_than: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ...) -> None: ...

class DatasetChunk(_message.Message):
    __slots__ = ("dataset_id", "data")
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    data: bytes
    def __init__(self, dataset_id: _Optional[str] = ..., data: _Optional[bytes] = ...) -> None: ...

class PutDatasetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetDatasetRequest(_message.Message):
    __slots__ = ("dataset_id",)
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    dataset_id: str
    def __init__(self, dataset_id: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("max_skipped",)
    MAX_SKIPPED_FIELD_NUMBER: _ClassVar[int]
    max_skipped: int
    def __init__(self, max_skipped: _Optional[int] = ...) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("dispatcher_id", "uptime_seconds", "workers", "consumers", "jobs", "skipped", "skipped_records")
    DISPATCHER_ID_FIELD_NUMBER: _ClassVar[int]
    UPTIME_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_RECORDS_FIELD_NUMBER: _ClassVar[int]
    dispatcher_id: str
    uptime_seconds: float
    workers: _containers.RepeatedCompositeFieldContainer[WorkerInfo]
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerInfo]
    jobs: _containers.RepeatedCompositeFieldContainer[_types_pb2.Job]
    skipped: _containers.RepeatedCompositeFieldContainer[_types_pb2.SkippedRecord]
    skipped_records: int
    def __init__(self, dispatcher_id: _Optional[str] = ..., uptime_seconds: _Optional[float] = ..., workers: _Optional[_Iterable[_Union[WorkerInfo, _Mapping]]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerInfo, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[_types_pb2.Job, _Mapping]]] = ..., skipped: _Optional[_Iterable[_Union[_types_pb2.SkippedRecord, _Mapping]]] = ..., skipped_records: _Optional[int] = ...) -> None: ...

class ConsumerInfo(_message.Message):
    __slots__ = ("last", "age_seconds")
    LAST_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    last: ConsumerHeartbeatRequest
    age_seconds: float
    def __init__(self, last: _Optional[_Union[ConsumerHeartbeatRequest, _Mapping]] = ..., age_seconds: _Optional[float] = ...) -> None: ...
