from distributed_input.api.proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromTrainer(_message.Message):
    __slots__ = ("hello", "open", "start", "release", "progress", "close")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    open: Open
    start: StartEpoch
    release: Release
    progress: Progress
    close: Close
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., start: _Optional[_Union[StartEpoch, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., close: _Optional[_Union[Close, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "input", "job", "rank")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    input: str
    job: str
    rank: Rank
    def __init__(self, protocol: _Optional[int] = ..., input: _Optional[str] = ..., job: _Optional[str] = ..., rank: _Optional[_Union[Rank, _Mapping]] = ...) -> None: ...

class Rank(_message.Message):
    __slots__ = ("index", "count", "source", "requested", "readers", "reader")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    REQUESTED_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    READER_FIELD_NUMBER: _ClassVar[int]
    index: int
    count: int
    source: str
    requested: bool
    readers: int
    reader: int
    def __init__(self, index: _Optional[int] = ..., count: _Optional[int] = ..., source: _Optional[str] = ..., requested: bool = ..., readers: _Optional[int] = ..., reader: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("dataset_file", "dataset_id", "draft", "replicas", "lineage")
    DATASET_FILE_FIELD_NUMBER: _ClassVar[int]
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    dataset_file: str
    dataset_id: str
    draft: _types_pb2.Job
    replicas: int
    lineage: bool
    def __init__(self, dataset_file: _Optional[str] = ..., dataset_id: _Optional[str] = ..., draft: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., replicas: _Optional[int] = ..., lineage: bool = ...) -> None: ...

class StartEpoch(_message.Message):
    __slots__ = ("generation", "epoch", "position")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    generation: int
    epoch: int
    position: Position
    def __init__(self, generation: _Optional[int] = ..., epoch: _Optional[int] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, slots: _Optional[_Iterable[int]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("units", "wait_seconds", "wall_seconds", "generation", "waiting", "failed", "received")
    UNITS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    units: int
    wait_seconds: float
    wall_seconds: float
    generation: int
    waiting: bool
    failed: str
    received: _types_pb2.ReceivedTotals
    def __init__(self, units: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., wall_seconds: _Optional[float] = ..., generation: _Optional[int] = ..., waiting: bool = ..., failed: _Optional[str] = ..., received: _Optional[_Union[_types_pb2.ReceivedTotals, _Mapping]] = ...) -> None: ...

class Close(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FromSidecar(_message.Message):
    __slots__ = ("welcome", "opened", "unit", "end", "failure", "waiting", "units", "difference")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    UNIT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCE_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    opened: Opened
    unit: Unit
    end: EpochEnd
    failure: Failure
    waiting: Waiting
    units: Units
    difference: ReplayDifference
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., opened: _Optional[_Union[Opened, _Mapping]] = ..., unit: _Optional[_Union[Unit, _Mapping]] = ..., end: _Optional[_Union[EpochEnd, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., waiting: _Optional[_Union[Waiting, _Mapping]] = ..., units: _Optional[_Union[Units, _Mapping]] = ..., difference: _Optional[_Union[ReplayDifference, _Mapping]] = ...) -> None: ...

class Units(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: _containers.RepeatedCompositeFieldContainer[Unit]
    def __init__(self, units: _Optional[_Iterable[_Union[Unit, _Mapping]]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("protocol", "input", "consumer", "consumers", "slots_file", "slots_bytes", "config", "from_trainer", "timeout_seconds", "ranks", "readers")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    SLOTS_FILE_FIELD_NUMBER: _ClassVar[int]
    SLOTS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CONFIG_FIELD_NUMBER: _ClassVar[int]
    FROM_TRAINER_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    RANKS_FIELD_NUMBER: _ClassVar[int]
    READERS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    input: str
    consumer: int
    consumers: int
    slots_file: str
    slots_bytes: int
    config: _types_pb2.Job
    from_trainer: bool
    timeout_seconds: float
    ranks: int
    readers: int
    def __init__(self, protocol: _Optional[int] = ..., input: _Optional[str] = ..., consumer: _Optional[int] = ..., consumers: _Optional[int] = ..., slots_file: _Optional[str] = ..., slots_bytes: _Optional[int] = ..., config: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., from_trainer: bool = ..., timeout_seconds: _Optional[float] = ..., ranks: _Optional[int] = ..., readers: _Optional[int] = ...) -> None: ...

class Opened(_message.Message):
    __slots__ = ("job", "unit_rows", "units_per_step", "lineage")
    JOB_FIELD_NUMBER: _ClassVar[int]
    UNIT_ROWS_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    unit_rows: int
    units_per_step: int
    lineage: bool
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., unit_rows: _Optional[int] = ..., units_per_step: _Optional[int] = ..., lineage: bool = ...) -> None: ...

class Unit(_message.Message):
    __slots__ = ("generation", "index", "rows", "slot", "offsets", "sizes", "after", "empty", "lineage")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    EMPTY_FIELD_NUMBER: _ClassVar[int]
    LINEAGE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    index: int
    rows: int
    slot: int
    offsets: _containers.RepeatedScalarFieldContainer[int]
    sizes: _containers.RepeatedScalarFieldContainer[int]
    after: Position
    empty: bool
    lineage: _containers.RepeatedCompositeFieldContainer[RowRange]
    def __init__(self, generation: _Optional[int] = ..., index: _Optional[int] = ..., rows: _Optional[int] = ..., slot: _Optional[int] = ..., offsets: _Optional[_Iterable[int]] = ..., sizes: _Optional[_Iterable[int]] = ..., after: _Optional[_Union[Position, _Mapping]] = ..., empty: bool = ..., lineage: _Optional[_Iterable[_Union[RowRange, _Mapping]]] = ...) -> None: ...

class RowRange(_message.Message):
    __slots__ = ("split", "first_row", "rows")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    split: int
    first_row: int
    rows: int
    def __init__(self, split: _Optional[int] = ..., first_row: _Optional[int] = ..., rows: _Optional[int] = ...) -> None: ...

class EpochEnd(_message.Message):
    __slots__ = ("generation", "units", "dropped_rows")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_ROWS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    units: int
    dropped_rows: int
    def __init__(self, generation: _Optional[int] = ..., units: _Optional[int] = ..., dropped_rows: _Optional[int] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("kind", "message", "generation")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    generation: int
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class Waiting(_message.Message):
    __slots__ = ("what",)
    WHAT_FIELD_NUMBER: _ClassVar[int]
    what: str
    def __init__(self, what: _Optional[str] = ...) -> None: ...

class ReplayDifference(_message.Message):
    __slots__ = ("generation", "message")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    message: str
    def __init__(self, generation: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("job", "epoch", "step", "consumers", "base_step", "base_rows", "anchors", "prefixes", "consumer", "end", "partitions", "global_batch_size", "seed", "extra_units", "units_per_step", "format", "num_splits", "dataset", "definition", "definition_version", "order_version", "mode", "excluded", "weights", "job_weights", "sources", "trainers_since", "exhaustion")
    JOB_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    BASE_STEP_FIELD_NUMBER: _ClassVar[int]
    BASE_ROWS_FIELD_NUMBER: _ClassVar[int]
    ANCHORS_FIELD_NUMBER: _ClassVar[int]
    PREFIXES_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EXTRA_UNITS_FIELD_NUMBER: _ClassVar[int]
    UNITS_PER_STEP_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    NUM_SPLITS_FIELD_NUMBER: _ClassVar[int]
    DATASET_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDER_VERSION_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    JOB_WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    TRAINERS_SINCE_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTION_FIELD_NUMBER: _ClassVar[int]
    job: str
    epoch: int
    step: int
    consumers: int
    base_step: int
    base_rows: _containers.RepeatedScalarFieldContainer[int]
    anchors: _containers.RepeatedCompositeFieldContainer[Anchor]
    prefixes: _containers.RepeatedCompositeFieldContainer[Prefix]
    consumer: int
    end: bool
    partitions: int
    global_batch_size: int
    seed: int
    extra_units: int
    units_per_step: int
    format: int
    num_splits: int
    dataset: str
    definition: int
    definition_version: str
    order_version: int
    mode: _types_pb2.ProcessingMode
    excluded: int
    weights: _containers.RepeatedCompositeFieldContainer[_types_pb2.Weights]
    job_weights: _containers.RepeatedCompositeFieldContainer[_types_pb2.Weights]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    trainers_since: int
    exhaustion: _types_pb2.Exhaustion
    def __init__(self, job: _Optional[str] = ..., epoch: _Optional[int] = ..., step: _Optional[int] = ..., consumers: _Optional[int] = ..., base_step: _Optional[int] = ..., base_rows: _Optional[_Iterable[int]] = ..., anchors: _Optional[_Iterable[_Union[Anchor, _Mapping]]] = ..., prefixes: _Optional[_Iterable[_Union[Prefix, _Mapping]]] = ..., consumer: _Optional[int] = ..., end: bool = ..., partitions: _Optional[int] = ..., global_batch_size: _Optional[int] = ..., seed: _Optional[int] = ..., extra_units: _Optional[int] = ..., units_per_step: _Optional[int] = ..., format: _Optional[int] = ..., num_splits: _Optional[int] = ..., dataset: _Optional[str] = ..., definition: _Optional[int] = ..., definition_version: _Optional[str] = ..., order_version: _Optional[int] = ..., mode: _Optional[_Union[_types_pb2.ProcessingMode, str]] = ..., excluded: _Optional[int] = ..., weights: _Optional[_Iterable[_Union[_types_pb2.Weights, _Mapping]]] = ..., job_weights: _Optional[_Iterable[_Union[_types_pb2.Weights, _Mapping]]] = ..., sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., trainers_since: _Optional[int] = ..., exhaustion: _Optional[_Union[_types_pb2.Exhaustion, str]] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("name", "num_splits")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_SPLITS_FIELD_NUMBER: _ClassVar[int]
    name: str
    num_splits: int
    def __init__(self, name: _Optional[str] = ..., num_splits: _Optional[int] = ...) -> None: ...

class Anchor(_message.Message):
    __slots__ = ("ordinal", "rows", "ended")
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    ordinal: int
    rows: int
    ended: bool
    def __init__(self, ordinal: _Optional[int] = ..., rows: _Optional[int] = ..., ended: bool = ...) -> None: ...

class Prefix(_message.Message):
    __slots__ = ("partition", "split", "rows", "digest", "anchor_rows", "anchor_digest")
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_ROWS_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    partition: int
    split: int
    rows: int
    digest: int
    anchor_rows: int
    anchor_digest: int
    def __init__(self, partition: _Optional[int] = ..., split: _Optional[int] = ..., rows: _Optional[int] = ..., digest: _Optional[int] = ..., anchor_rows: _Optional[int] = ..., anchor_digest: _Optional[int] = ...) -> None: ...
