"""The processes of TensorFlow's tf.data service: a dispatcher or worker until SIGTERM."""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses, logs, ready, shutdown
from distributed_input.runtime import args as common

_log = logs.get("tf_data_service.main")

GC_CHECK_MS = 10_000
"""Interval at which the dispatcher checks for unused jobs and ended workers. With TensorFlow's
default of ten minutes, a reader would wait that long for an ended worker."""
GC_TIMEOUT_MS = 300_000
WORKER_TIMEOUT_MS = 30_000
HEARTBEAT_MS = 5_000
_POLL_SECONDS = 2.0
_DNS = "dns:"
_GRACE_SECONDS = 5.0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m distributed_input.tf_data_service",
        description="Start a dispatcher or worker of TensorFlow's own tf.data service.",
        allow_abbrev=False,
    )
    both = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    both.add_argument(
        flags.READY_FILE,
        metavar="FILE",
        help="file to write when the process is ready: a JSON object with its address",
    )
    both.add_argument(flags.LOG_LEVEL, choices=logs.LEVELS, default="info")
    both.add_argument(flags.PORT, type=int, required=True, help="port to serve on")
    parts = parser.add_subparsers(dest="part", required=True)
    dispatcher = parts.add_parser("dispatcher", parents=[both], help="start a dispatcher")
    dispatcher.add_argument(
        flags.WORK_DIR,
        required=True,
        metavar="DIR",
        help="folder of the journal, from which the dispatcher resumes after a restart",
    )
    dispatcher.add_argument(
        flags.STATIC_WORKERS,
        default="",
        metavar="HOST:PORT,...|dns:NAME:PORT:COUNT",
        help="all workers, which the sharding policies FILE, DATA and HINT need in advance; dns: "
        "the addresses of a name, when it has COUNT addresses",
    )
    worker = parts.add_parser("worker", parents=[both], help="start a worker")
    worker.add_argument(
        flags.DISPATCHER, required=True, metavar="HOST:PORT", help="address of the dispatcher"
    )
    worker.add_argument(
        flags.ADVERTISE,
        required=True,
        metavar="HOST[:PORT]",
        help="address at which readers reach this worker",
    )
    worker.add_argument(
        flags.CACHE_BYTES,
        type=int,
        default=0,
        metavar="BYTES",
        help="size of cross-trainer caches (default: TensorFlow's default)",
    )
    worker.add_argument(
        flags.PATH,
        action="append",
        default=[],
        metavar="DIR",
        help="folder to insert at the start of sys.path; repeatable",
    )
    return parser


def dispatcher_config(port: int, work_dir: Path, workers: Sequence[str]) -> Any:
    """Return the configuration of the dispatcher. Without `workers`, these register themselves.

    Each list of static workers (host:port) has its own journal in the folder `work_dir`, because a
    journal with other workers cannot be used.
    """
    from tensorflow.core.protobuf import service_config_pb2

    if workers:
        name = hashlib.sha256(",".join(workers).encode()).hexdigest()[:16]
        work_dir = work_dir / f"workers-{name}"
    work_dir.mkdir(parents=True, exist_ok=True)
    return service_config_pb2.DispatcherConfig(
        port=port,
        protocol="grpc",
        work_dir=str(work_dir),
        fault_tolerant_mode=True,
        worker_addresses=workers,
        job_gc_check_interval_ms=GC_CHECK_MS,
        job_gc_timeout_ms=GC_TIMEOUT_MS,
        worker_timeout_ms=WORKER_TIMEOUT_MS,
        client_timeout_ms=WORKER_TIMEOUT_MS,
    )


def worker_config(dispatcher: str, port: int, advertise: str, cache_bytes: int) -> Any:
    """Return the configuration of a worker that serves on all addresses.

    Readers connect to `advertise`, a host or host:port. TensorFlow's default is localhost. 0 bytes
    for the cross-trainer cache select TensorFlow's default.
    """
    from tensorflow.core.protobuf import service_config_pb2

    host, named = addresses.parse(advertise, "--advertise")
    return service_config_pb2.WorkerConfig(
        dispatcher_address=dispatcher,
        port=port,
        protocol="grpc",
        worker_address=addresses.join(host, named or port),
        data_transfer_address=addresses.join(host, named or port),
        heartbeat_interval_ms=HEARTBEAT_MS,
        cross_trainer_cache_size_bytes=cache_bytes,
    )


def static_workers(value: str, resolve: Callable[[str], list[str]]) -> list[str] | None:
    """Return host:port of each worker in the value of --static-workers.

    `resolve` returns the addresses of a DNS name. None: it does not have COUNT addresses (yet).

    Raises:
        ConfigError: the value is invalid.
    """
    if not value.startswith(_DNS):
        return [one for one in value.split(",") if one]
    parts = value.split(":")
    if len(parts) != 4 or not (parts[2].isdigit() and parts[3].isdigit()):
        raise ConfigError(f"--static-workers {value}: use the form dns:NAME:PORT:COUNT")
    _, name, port, count = parts
    found = resolve(name)
    return [addresses.join(host, int(port)) for host in found] if len(found) == int(count) else None


def resolve(name: str) -> list[str]:
    """Return the sorted addresses of a DNS name; [] if the name does not exist (yet)."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(one[4][0]) for one in found})


def _body(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    logs.setup(f"tf-data-{args.part}", args.log_level)
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(_GRACE_SECONDS)
    stopping.install()
    return _dispatch(args, stopping) if args.part == "dispatcher" else _work(args, stopping)


def _dispatch(args: argparse.Namespace, stopping: shutdown.Shutdown) -> int:
    value = args.static_workers
    logged = False
    while (workers := static_workers(value, resolve)) is None:
        if not logged:
            _log.info("waiting for all static workers", workers=value)
        logged = True
        if stopping.wait(_POLL_SECONDS):
            return 0
    bindings = _bindings()
    config = dispatcher_config(args.port, Path(args.work_dir), workers)
    server = bindings.TF_DATA_NewDispatchServer(config.SerializeToString())
    _start(server, args)
    while not stopping.wait(_POLL_SECONDS):
        if static_workers(value, resolve) not in (workers, None):
            _log.error("the static workers changed: exiting, because this dispatcher rejects them")
            return 1
    server.stop()
    return 0


def _work(args: argparse.Namespace, stopping: shutdown.Shutdown) -> int:
    sys.path[:0] = args.path
    bindings = _bindings()
    config = worker_config(args.dispatcher, args.port, args.advertise, args.cache_bytes)
    server = bindings.TF_DATA_NewWorkerServer(config.SerializeToString())
    _start(server, args)
    stopping.wait()
    server.stop()
    return 0


def _start(server: Any, args: argparse.Namespace) -> None:
    server.start()
    address = f"127.0.0.1:{server.bound_port()}"
    ready.write(args.ready_file, address, None)
    _log.info("serving", address=address)


def _bindings() -> Any:
    """Return the servers' bindings. TensorFlow's Python classes lack fields that pods need."""
    import tensorflow  # noqa: F401 - loads the libraries of the bindings
    from tensorflow.python.data.experimental.service import _pywrap_server_lib

    return _pywrap_server_lib


def main(argv: Sequence[str] | None = None) -> int:
    """Run a dispatcher or worker until SIGTERM; return the exit status."""
    return common.exit_code("tf-data-service", _body, argv)
