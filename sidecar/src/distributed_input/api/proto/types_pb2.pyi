from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ProcessingMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DISTRIBUTED_EPOCH: _ClassVar[ProcessingMode]
    PARALLEL_EPOCHS: _ClassVar[ProcessingMode]

class Remainder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    KEEP: _ClassVar[Remainder]
    DROP: _ClassVar[Remainder]
    PAD: _ClassVar[Remainder]

class Exhaustion(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REPEAT: _ClassVar[Exhaustion]
    STOP: _ClassVar[Exhaustion]
    DROP_SOURCE: _ClassVar[Exhaustion]
DISTRIBUTED_EPOCH: ProcessingMode
PARALLEL_EPOCHS: ProcessingMode
KEEP: Remainder
DROP: Remainder
PAD: Remainder
REPEAT: Exhaustion
STOP: Exhaustion
DROP_SOURCE: Exhaustion

class ReceivedTotals(_message.Message):
    __slots__ = ("trainer", "rows", "batches", "wait_seconds", "wall_seconds")
    TRAINER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    WALL_SECONDS_FIELD_NUMBER: _ClassVar[int]
    trainer: str
    rows: int
    batches: int
    wait_seconds: float
    wall_seconds: float
    def __init__(self, trainer: _Optional[str] = ..., rows: _Optional[int] = ..., batches: _Optional[int] = ..., wait_seconds: _Optional[float] = ..., wall_seconds: _Optional[float] = ...) -> None: ...

class SourceTotals(_message.Message):
    __slots__ = ("source", "rows", "wait_seconds")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    source: str
    rows: int
    wait_seconds: float
    def __init__(self, source: _Optional[str] = ..., rows: _Optional[int] = ..., wait_seconds: _Optional[float] = ...) -> None: ...

class EntryPoint(_message.Message):
    __slots__ = ("target", "args_json", "path", "source", "packing")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    ARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    PACKING_FIELD_NUMBER: _ClassVar[int]
    target: str
    args_json: str
    path: str
    source: str
    packing: Packing
    def __init__(self, target: _Optional[str] = ..., args_json: _Optional[str] = ..., path: _Optional[str] = ..., source: _Optional[str] = ..., packing: _Optional[_Union[Packing, _Mapping]] = ...) -> None: ...

class Packing(_message.Message):
    __slots__ = ("length", "method", "open_sequences", "balance_window")
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    OPEN_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    BALANCE_WINDOW_FIELD_NUMBER: _ClassVar[int]
    length: int
    method: str
    open_sequences: int
    balance_window: int
    def __init__(self, length: _Optional[int] = ..., method: _Optional[str] = ..., open_sequences: _Optional[int] = ..., balance_window: _Optional[int] = ...) -> None: ...

class Weights(_message.Message):
    __slots__ = ("step", "weights")
    STEP_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    step: int
    weights: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, step: _Optional[int] = ..., weights: _Optional[_Iterable[int]] = ...) -> None: ...

class GraphDataset(_message.Message):
    __slots__ = ("tf_version", "graphs", "shard_policy", "constants")
    TF_VERSION_FIELD_NUMBER: _ClassVar[int]
    GRAPHS_FIELD_NUMBER: _ClassVar[int]
    SHARD_POLICY_FIELD_NUMBER: _ClassVar[int]
    CONSTANTS_FIELD_NUMBER: _ClassVar[int]
    tf_version: str
    graphs: _containers.RepeatedScalarFieldContainer[bytes]
    shard_policy: str
    constants: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, tf_version: _Optional[str] = ..., graphs: _Optional[_Iterable[bytes]] = ..., shard_policy: _Optional[str] = ..., constants: _Optional[_Iterable[bytes]] = ...) -> None: ...

class Job(_message.Message):
    __slots__ = ("name", "dataset_id", "entry_point", "seed", "mode", "num_splits", "partitions", "global_batch_size", "remainder", "batched", "row_spec", "epochs", "strict", "infinite", "warnings", "element_spec", "definitions", "definition_version", "split_bytes", "read_amplification", "shard_policy", "split_bytes_at_most", "order_version", "run", "first_run", "shards_by_split", "varies", "indexed_rows", "sources", "weights", "exhaustion", "bad_records")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATASET_ID_FIELD_NUMBER: _ClassVar[int]
    ENTRY_POINT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    NUM_SPLITS_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    REMAINDER_FIELD_NUMBER: _ClassVar[int]
    BATCHED_FIELD_NUMBER: _ClassVar[int]
    ROW_SPEC_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    INFINITE_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    ELEMENT_SPEC_FIELD_NUMBER: _ClassVar[int]
    DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_VERSION_FIELD_NUMBER: _ClassVar[int]
    SPLIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    READ_AMPLIFICATION_FIELD_NUMBER: _ClassVar[int]
    SHARD_POLICY_FIELD_NUMBER: _ClassVar[int]
    SPLIT_BYTES_AT_MOST_FIELD_NUMBER: _ClassVar[int]
    ORDER_VERSION_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    FIRST_RUN_FIELD_NUMBER: _ClassVar[int]
    SHARDS_BY_SPLIT_FIELD_NUMBER: _ClassVar[int]
    VARIES_FIELD_NUMBER: _ClassVar[int]
    INDEXED_ROWS_FIELD_NUMBER: _ClassVar[int]
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    EXHAUSTION_FIELD_NUMBER: _ClassVar[int]
    BAD_RECORDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    dataset_id: str
    entry_point: EntryPoint
    seed: int
    mode: ProcessingMode
    num_splits: int
    partitions: int
    global_batch_size: int
    remainder: Remainder
    batched: bool
    row_spec: str
    epochs: int
    strict: bool
    infinite: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    element_spec: str
    definitions: _containers.RepeatedScalarFieldContainer[int]
    definition_version: str
    split_bytes: int
    read_amplification: int
    shard_policy: str
    split_bytes_at_most: bool
    order_version: int
    run: str
    first_run: str
    shards_by_split: _containers.RepeatedScalarFieldContainer[bool]
    varies: bool
    indexed_rows: int
    sources: _containers.RepeatedCompositeFieldContainer[Job]
    weights: _containers.RepeatedCompositeFieldContainer[Weights]
    exhaustion: Exhaustion
    bad_records: BadRecords
    def __init__(self, name: _Optional[str] = ..., dataset_id: _Optional[str] = ..., entry_point: _Optional[_Union[EntryPoint, _Mapping]] = ..., seed: _Optional[int] = ..., mode: _Optional[_Union[ProcessingMode, str]] = ..., num_splits: _Optional[int] = ..., partitions: _Optional[int] = ..., global_batch_size: _Optional[int] = ..., remainder: _Optional[_Union[Remainder, str]] = ..., batched: bool = ..., row_spec: _Optional[str] = ..., epochs: _Optional[int] = ..., strict: bool = ..., infinite: bool = ..., warnings: _Optional[_Iterable[str]] = ..., element_spec: _Optional[str] = ..., definitions: _Optional[_Iterable[int]] = ..., definition_version: _Optional[str] = ..., split_bytes: _Optional[int] = ..., read_amplification: _Optional[int] = ..., shard_policy: _Optional[str] = ..., split_bytes_at_most: bool = ..., order_version: _Optional[int] = ..., run: _Optional[str] = ..., first_run: _Optional[str] = ..., shards_by_split: _Optional[_Iterable[bool]] = ..., varies: bool = ..., indexed_rows: _Optional[int] = ..., sources: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., weights: _Optional[_Iterable[_Union[Weights, _Mapping]]] = ..., exhaustion: _Optional[_Union[Exhaustion, str]] = ..., bad_records: _Optional[_Union[BadRecords, _Mapping]] = ...) -> None: ...

class BadRecords(_message.Message):
    __slots__ = ("per_split", "percent", "excluded")
    PER_SPLIT_FIELD_NUMBER: _ClassVar[int]
    PERCENT_FIELD_NUMBER: _ClassVar[int]
    EXCLUDED_FIELD_NUMBER: _ClassVar[int]
    per_split: int
    percent: int
    excluded: _containers.RepeatedCompositeFieldContainer[ExcludedRecord]
    def __init__(self, per_split: _Optional[int] = ..., percent: _Optional[int] = ..., excluded: _Optional[_Iterable[_Union[ExcludedRecord, _Mapping]]] = ...) -> None: ...

class ExcludedRecord(_message.Message):
    __slots__ = ("step", "index", "file", "epoch", "split")
    STEP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    step: str
    index: int
    file: str
    epoch: int
    split: int
    def __init__(self, step: _Optional[str] = ..., index: _Optional[int] = ..., file: _Optional[str] = ..., epoch: _Optional[int] = ..., split: _Optional[int] = ...) -> None: ...

class SkippedRecord(_message.Message):
    __slots__ = ("dataset", "first_run", "epoch", "split", "step", "index", "file", "record", "error")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    FIRST_RUN_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    first_run: str
    epoch: int
    split: int
    step: str
    index: int
    file: str
    record: str
    error: str
    def __init__(self, dataset: _Optional[str] = ..., first_run: _Optional[str] = ..., epoch: _Optional[int] = ..., split: _Optional[int] = ..., step: _Optional[str] = ..., index: _Optional[int] = ..., file: _Optional[str] = ..., record: _Optional[str] = ..., error: _Optional[str] = ...) -> None: ...

class StalledSplit(_message.Message):
    __slots__ = ("dataset", "jobs", "epoch", "split", "row", "seconds", "at", "crash", "first_run", "rows", "step")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    CRASH_FIELD_NUMBER: _ClassVar[int]
    FIRST_RUN_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    jobs: _containers.RepeatedScalarFieldContainer[str]
    epoch: int
    split: int
    row: int
    seconds: float
    at: str
    crash: str
    first_run: str
    rows: int
    step: str
    def __init__(self, dataset: _Optional[str] = ..., jobs: _Optional[_Iterable[str]] = ..., epoch: _Optional[int] = ..., split: _Optional[int] = ..., row: _Optional[int] = ..., seconds: _Optional[float] = ..., at: _Optional[str] = ..., crash: _Optional[str] = ..., first_run: _Optional[str] = ..., rows: _Optional[int] = ..., step: _Optional[str] = ...) -> None: ...

class DatasetFailure(_message.Message):
    __slots__ = ("dataset", "message")
    DATASET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    dataset: str
    message: str
    def __init__(self, dataset: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
