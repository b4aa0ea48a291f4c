from distributed_input.api.proto import types_pb2 as _types_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DescribeRequest(_message.Message):
    __slots__ = ("job", "consumer")
    JOB_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    consumer: str
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., consumer: _Optional[str] = ...) -> None: ...

class DescribeResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("job", "seed", "epoch", "split", "start_row", "prefix_digest", "check_prefix", "resume_token", "protocol", "prefix_rows", "digest_version", "ordinal", "block_bytes", "anchor_rows", "anchor_digest")
    JOB_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    START_ROW_FIELD_NUMBER: _ClassVar[int]
    PREFIX_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CHECK_PREFIX_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    PREFIX_ROWS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_VERSION_FIELD_NUMBER: _ClassVar[int]
    ORDINAL_FIELD_NUMBER: _ClassVar[int]
    BLOCK_BYTES_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_ROWS_FIELD_NUMBER: _ClassVar[int]
    ANCHOR_DIGEST_FIELD_NUMBER: _ClassVar[int]
    job: _types_pb2.Job
    seed: int
    epoch: int
    split: int
    start_row: int
    prefix_digest: int
    check_prefix: bool
    resume_token: bytes
    protocol: int
    prefix_rows: int
    digest_version: int
    ordinal: int
    block_bytes: int
    anchor_rows: int
    anchor_digest: int
    def __init__(self, job: _Optional[_Union[_types_pb2.Job, _Mapping]] = ..., seed: _Optional[int] = ..., epoch: _Optional[int] = ..., split: _Optional[int] = ..., start_row: _Optional[int] = ..., prefix_digest: _Optional[int] = ..., check_prefix: bool = ..., resume_token: _Optional[bytes] = ..., protocol: _Optional[int] = ..., prefix_rows: _Optional[int] = ..., digest_version: _Optional[int] = ..., ordinal: _Optional[int] = ..., block_bytes: _Optional[int] = ..., anchor_rows: _Optional[int] = ..., anchor_digest: _Optional[int] = ...) -> None: ...

class Block(_message.Message):
    __slots__ = ("first_row", "rows", "buffer_sizes", "row_digests", "last", "prefix_differs", "node", "resume_token", "prefix_digest", "replayed", "payload")
    FIRST_ROW_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    BUFFER_SIZES_FIELD_NUMBER: _ClassVar[int]
    ROW_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PREFIX_DIFFERS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    RESUME_TOKEN_FIELD_NUMBER: _ClassVar[int]
    PREFIX_DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    first_row: int
    rows: int
    buffer_sizes: _containers.RepeatedScalarFieldContainer[int]
    row_digests: bytes
    last: bool
    prefix_differs: bool
    node: str
    resume_token: bytes
    prefix_digest: int
    replayed: int
    payload: bytes
    def __init__(self, first_row: _Optional[int] = ..., rows: _Optional[int] = ..., buffer_sizes: _Optional[_Iterable[int]] = ..., row_digests: _Optional[bytes] = ..., last: bool = ..., prefix_differs: bool = ..., node: _Optional[str] = ..., resume_token: _Optional[bytes] = ..., prefix_digest: _Optional[int] = ..., replayed: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class ConnectRequest(_message.Message):
    __slots__ = ("open", "credits", "close")
    OPEN_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    CLOSE_FIELD_NUMBER: _ClassVar[int]
    open: _containers.RepeatedCompositeFieldContainer[OpenStream]
    credits: _containers.RepeatedCompositeFieldContainer[StreamCredit]
    close: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, open: _Optional[_Iterable[_Union[OpenStream, _Mapping]]] = ..., credits: _Optional[_Iterable[_Union[StreamCredit, _Mapping]]] = ..., close: _Optional[_Iterable[int]] = ...) -> None: ...

class OpenStream(_message.Message):
    __slots__ = ("stream", "request", "credit")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    stream: int
    request: StreamRequest
    credit: int
    def __init__(self, stream: _Optional[int] = ..., request: _Optional[_Union[StreamRequest, _Mapping]] = ..., credit: _Optional[int] = ...) -> None: ...

class StreamCredit(_message.Message):
    __slots__ = ("stream", "credit")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    stream: int
    credit: int
    def __init__(self, stream: _Optional[int] = ..., credit: _Optional[int] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("blocks", "offer", "moved")
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    blocks: _containers.RepeatedCompositeFieldContainer[StreamBlock]
    offer: TransferOffer
    moved: bool
    def __init__(self, blocks: _Optional[_Iterable[_Union[StreamBlock, _Mapping]]] = ..., offer: _Optional[_Union[TransferOffer, _Mapping]] = ..., moved: bool = ...) -> None: ...

class TransferOffer(_message.Message):
    __slots__ = ("port", "ticket", "local", "encrypted")
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKET_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    ENCRYPTED_FIELD_NUMBER: _ClassVar[int]
    port: int
    ticket: bytes
    local: str
    encrypted: bool
    def __init__(self, port: _Optional[int] = ..., ticket: _Optional[bytes] = ..., local: _Optional[str] = ..., encrypted: bool = ...) -> None: ...

class StreamBlock(_message.Message):
    __slots__ = ("stream", "error", "block")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    BLOCK_FIELD_NUMBER: _ClassVar[int]
    stream: int
    error: StreamError
    block: Block
    def __init__(self, stream: _Optional[int] = ..., error: _Optional[_Union[StreamError, _Mapping]] = ..., block: _Optional[_Union[Block, _Mapping]] = ...) -> None: ...

class StreamError(_message.Message):
    __slots__ = ("kind", "message")
    KIND_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    kind: str
    message: str
    def __init__(self, kind: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...
