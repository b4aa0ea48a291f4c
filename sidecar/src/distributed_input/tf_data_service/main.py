"""The stock dispatcher and worker as processes: flags in, a server until SIGTERM."""

from __future__ import annotations

import argparse
import hashlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses, logs, ready, shutdown
from distributed_input.runtime import args as common

_log = logs.get("stock.main")

GC_CHECK_MS = 10_000
"""How often the dispatcher looks for jobs that nobody reads and workers that are gone. Its own
default of ten minutes is how long a reader would wait for a dead worker."""
GC_TIMEOUT_MS = 300_000
WORKER_TIMEOUT_MS = 30_000
HEARTBEAT_MS = 5_000
_LOOK_SECONDS = 2.0
_DNS = "dns:"
_GRACE_SECONDS = 5.0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m distributed_input.tf_data_service",
        description="TensorFlow's own tf.data service: dispatcher or worker.",
        allow_abbrev=False,
    )
    both = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    both.add_argument("--ready-file", help="gets a JSON object with the address once it serves")
    both.add_argument("--log-level", choices=logs.LEVELS, default="info")
    parts = made.add_subparsers(dest="part", required=True)
    dispatcher = parts.add_parser(
        "dispatcher", parents=[both], help="knows the datasets, jobs and workers"
    )
    dispatcher.add_argument("--port", type=int, required=True)
    dispatcher.add_argument(
        "--work-dir", required=True, help="of the journal: it goes on from there after a restart"
    )
    dispatcher.add_argument(
        "--static-workers",
        default="",
        metavar="HOST:PORT,...|dns:NAME:PORT:COUNT",
        help="the workers that there will be, which FILE, DATA and HINT need to know beforehand; "
        "dns: the addresses behind a name, once there are so many",
    )
    worker = parts.add_parser("worker", parents=[both], help="runs the datasets")
    worker.add_argument("--dispatcher", required=True, metavar="HOST:PORT")
    worker.add_argument("--port", type=int, required=True)
    worker.add_argument(
        "--advertise", required=True, metavar="HOST[:PORT]", help="where readers reach this worker"
    )
    worker.add_argument("--cache-bytes", type=int, default=0, help="of cross-trainer caches")
    worker.add_argument("--path", action="append", default=[], help="put before Python's path")
    return made


def dispatcher_config(port: int, work_dir: Path, workers: Sequence[str]) -> Any:
    """What the stock dispatcher is started with.

    Args:
        port: where it listens, on all addresses.
        work_dir: of the journal. Workers that are told beforehand have a journal of their own: one
            that names others would be of no use.
        workers: host:port of each; empty: whoever registers.
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
    """What the stock worker is started with.

    Args:
        dispatcher: host:port.
        port: where it listens, on all addresses.
        advertise: host, or host:port, that readers connect to: TensorFlow's default is localhost.
        cache_bytes: of cross-trainer caches; 0: TensorFlow's default.
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


def static_workers(wanted: str, resolve: Callable[[str], list[str]]) -> list[str] | None:
    """The workers that `--static-workers` names; [] where it names none, None: not all are there.

    Raises:
        ConfigError: naming the flag.
    """
    if not wanted.startswith(_DNS):
        return [one for one in wanted.split(",") if one]
    parts = wanted.split(":")
    if len(parts) != 4 or not (parts[2].isdigit() and parts[3].isdigit()):
        raise ConfigError(f"--static-workers {wanted}: write dns:NAME:PORT:COUNT")
    _, name, port, count = parts
    found = resolve(name)
    return [addresses.join(host, int(port)) for host in found] if len(found) == int(count) else None


def resolve(name: str) -> list[str]:
    """The addresses behind a DNS name, sorted; none where there is no such name (yet)."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    return sorted({str(one[4][0]) for one in found})


def _body(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    logs.setup(f"stock-{args.part}", args.log_level)
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(_GRACE_SECONDS)
    stopping.install()
    return _dispatch(args, stopping) if args.part == "dispatcher" else _work(args, stopping)


def _dispatch(args: argparse.Namespace, stopping: shutdown.Shutdown) -> int:
    wanted = args.static_workers
    told = False
    while (workers := static_workers(wanted, resolve)) is None:
        if not told:
            _log.info("waiting until all workers are there", workers=wanted)
        told = True
        if stopping.wait(_LOOK_SECONDS):
            return 0
    stock = _bindings()
    config = dispatcher_config(args.port, Path(args.work_dir), workers)
    server = stock.TF_DATA_NewDispatchServer(config.SerializeToString())
    _start(server, args)
    while not stopping.wait(_LOOK_SECONDS):
        if static_workers(wanted, resolve) not in (workers, None):
            _log.error("the workers are others now, whom this dispatcher would refuse: it ends")
            return 1
    server.stop()
    return 0


def _work(args: argparse.Namespace, stopping: shutdown.Shutdown) -> int:
    sys.path[:0] = args.path
    stock = _bindings()
    config = worker_config(args.dispatcher, args.port, args.advertise, args.cache_bytes)
    server = stock.TF_DATA_NewWorkerServer(config.SerializeToString())
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
    """The servers themselves: TensorFlow's Python classes leave out fields that pods need."""
    import tensorflow  # noqa: F401 - loads what the bindings need
    from tensorflow.python.data.experimental.service import _pywrap_server_lib

    return _pywrap_server_lib


def main(argv: Sequence[str] | None = None) -> int:
    """Run one part until SIGTERM; the exit status."""
    return common.exit_code("stock", _body, argv)
