"""The processes' command-line flags: their names, and builders of argument lists.

The runner and the operator build command lines here. The processes' parsers declare the same
names. A field that is None, empty or False adds no flag, so the process uses its default. Pods get
some of them as fields of a document, see `process_config`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

# All processes.
TOKEN_FILE = "--token-file"  # noqa: S105 - the flag's name
TLS_DIR = "--tls-dir"
METRICS_LISTEN = "--metrics-listen"
READY_FILE = "--ready-file"
GRACE_SECONDS = "--grace-seconds"
LOG_LEVEL = "--log-level"
LISTEN = "--listen"
DISPATCHER = "--dispatcher"
METRICS_OFF = "off"
"""Value of METRICS_LISTEN that turns metrics off."""

# The dispatcher.
HEARTBEAT_SECONDS = "--heartbeat-seconds"
EXPIRY_SECONDS = "--expiry-seconds"
MAX_DATASET_BYTES = "--max-dataset-bytes"

# The worker and the sidecar.
POD = "--pod"

# The worker.
ADVERTISE = "--advertise"
PARALLELISM = "--parallelism"
MAX_STREAMS = "--max-streams"
SHARE_BYTES = "--share-bytes"
PATH = "--path"
RELAXED = "--relaxed"
IDLE_CPUS = "--idle-cpus"
STATE_DIR = "--state-dir"
PLAIN_TRANSFER = "--plain-transfer"
MODULES = "--modules"
ADVERTISE_AUTO = "auto"

# The sidecar.
CONFIG = "--config"
DIR = "--dir"
CONSUMER_INDEX = "--consumer-index"
CONSUMER_COUNT = "--consumer-count"

# TensorFlow's own tf.data service.
PORT = "--port"
WORK_DIR = "--work-dir"
STATIC_WORKERS = "--static-workers"
CACHE_BYTES = "--cache-bytes"


@dataclass(frozen=True)
class ProcessFlags:
    """Flags that dispatcher, worker and sidecar have in common."""

    token_file: str | None = None
    """The token file. The sidecar also accepts a folder with one file per input."""
    ready_file: str | None = None
    metrics_listen: str | None = None
    """host:port, or METRICS_OFF."""
    grace_seconds: float | None = None
    tls_dir: str | None = None
    """Folder with the certificate. The sidecar takes a folder with one folder per input."""


@dataclass(frozen=True)
class DispatcherFlags:
    """Flags of a dispatcher."""

    listen: str
    """host:port; port 0 selects a free port."""
    process: ProcessFlags = ProcessFlags()


@dataclass(frozen=True)
class WorkerFlags:
    """Flags of a worker."""

    listen: str
    dispatcher: str
    """host:port of the dispatcher."""
    advertise: str | None = None
    parallelism: int | None = None
    share_bytes: int | None = None
    path: str | None = None
    """Folder that the worker inserts at the start of sys.path."""
    relaxed: bool = False
    idle_cpus: bool = False
    """Use only CPUs that other processes leave idle."""
    state_dir: str | None = None
    """Folder for the saved states of splits."""
    pod: str | None = None
    """Id of the pod whose sidecar alone uses the worker, or `$(VARIABLE)`."""
    process: ProcessFlags = ProcessFlags()
    plain_transfer: bool = False
    """Do not encrypt direct connections."""
    modules: Sequence[str] = ()
    """Modules whose functions may be entry points. Empty: all."""


@dataclass(frozen=True)
class SidecarFlags:
    """Flags of a sidecar."""

    configs: Sequence[str]
    """Configuration files."""
    dispatchers: Sequence[str]
    """Dispatchers: HOST:PORT of a single input, or INPUT=HOST:PORT for each input."""
    folder: str
    """Folder that the sidecar shares with its trainers."""
    consumer_index: str
    """A number, or `$(VARIABLE)`, which Kubernetes replaces."""
    consumer_count: str
    pod: str | None = None
    """Id of its pod, or `$(VARIABLE)`, if the pod has workers of its own."""
    process: ProcessFlags = ProcessFlags()


@dataclass(frozen=True)
class TfDataDispatcherFlags:
    """Flags of a dispatcher of TensorFlow's own tf.data service."""

    port: int
    work_dir: str
    static_workers: str = ""
    ready_file: str | None = None


@dataclass(frozen=True)
class TfDataWorkerFlags:
    """Flags of a worker of TensorFlow's own tf.data service."""

    dispatcher: str
    port: int
    advertise: str
    cache_bytes: int = 0
    path: str | None = None
    ready_file: str | None = None


def dispatcher_arguments(flags: DispatcherFlags) -> list[str]:
    """Return the arguments of `distributed-input dispatcher`."""
    return [
        *(LISTEN, flags.listen),
        *_seconds(GRACE_SECONDS, flags.process.grace_seconds),
        *_process_arguments(flags.process),
    ]


def worker_arguments(flags: WorkerFlags) -> list[str]:
    """Return the arguments of `distributed-input worker`."""
    return [
        *(LISTEN, flags.listen),
        *_optional(ADVERTISE, flags.advertise),
        *(DISPATCHER, flags.dispatcher),
        *_optional(PARALLELISM, flags.parallelism),
        *_seconds(GRACE_SECONDS, flags.process.grace_seconds),
        *_optional(SHARE_BYTES, flags.share_bytes),
        *_optional(PATH, flags.path),
        *((RELAXED,) if flags.relaxed else ()),
        *((IDLE_CPUS,) if flags.idle_cpus else ()),
        *_optional(STATE_DIR, flags.state_dir),
        *_optional(MODULES, ",".join(flags.modules) or None),
        *_optional(POD, flags.pod),
        *((PLAIN_TRANSFER,) if flags.plain_transfer else ()),
        *_process_arguments(flags.process),
    ]


def sidecar_arguments(flags: SidecarFlags) -> list[str]:
    """Return the arguments of `distributed-input sidecar`.

    With one configuration file per input, each file's flag precedes its dispatcher's flag.
    """
    pairs = itertools.zip_longest(flags.configs, flags.dispatchers)
    return [
        *(
            word
            for path, item in pairs
            for word in (*_optional(CONFIG, path), *_optional(DISPATCHER, item))
        ),
        *(DIR, flags.folder),
        *_optional(TOKEN_FILE, flags.process.token_file),
        *_optional(TLS_DIR, flags.process.tls_dir),
        *(CONSUMER_INDEX, flags.consumer_index),
        *(CONSUMER_COUNT, flags.consumer_count),
        *_optional(POD, flags.pod),
        *_seconds(GRACE_SECONDS, flags.process.grace_seconds),
        *_optional(READY_FILE, flags.process.ready_file),
        *_optional(METRICS_LISTEN, flags.process.metrics_listen),
    ]


def tf_data_dispatcher_arguments(flags: TfDataDispatcherFlags) -> list[str]:
    """Return the arguments of `python -m distributed_input.tf_data_service` for a dispatcher."""
    return [
        "dispatcher",
        *(PORT, str(flags.port), WORK_DIR, flags.work_dir),
        *_optional(STATIC_WORKERS, flags.static_workers),
        *_optional(READY_FILE, flags.ready_file),
    ]


def tf_data_worker_arguments(flags: TfDataWorkerFlags) -> list[str]:
    """Return the arguments of `python -m distributed_input.tf_data_service` for a worker."""
    return [
        "worker",
        *(DISPATCHER, flags.dispatcher, PORT, str(flags.port), ADVERTISE, flags.advertise),
        *(CACHE_BYTES, str(flags.cache_bytes)),
        *_optional(PATH, flags.path),
        *_optional(READY_FILE, flags.ready_file),
    ]


def _process_arguments(flags: ProcessFlags) -> list[str]:
    return [
        *_optional(TOKEN_FILE, flags.token_file),
        *_optional(TLS_DIR, flags.tls_dir),
        *_optional(READY_FILE, flags.ready_file),
        *_optional(METRICS_LISTEN, flags.metrics_listen),
    ]


def _optional(name: str, value: str | int | None) -> tuple[str, ...]:
    return () if value is None or value == "" else (name, str(value))


def _seconds(name: str, value: float | None) -> tuple[str, ...]:
    if value is None:
        return ()
    return (name, str(int(value) if value == int(value) else value))
