"""The processes of tf.data service, as forks of a zygote: `main(argv)` runs one role.

The client writes a line for every element that it receives, and "end" after the epoch.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from distributed_input.runtime import ready

GC_INTERVAL_MS = 1000
"""Interval of the dispatcher's checks for missing workers; TensorFlow's default is 10 minutes."""


def _dispatcher(args: argparse.Namespace) -> None:
    import tensorflow as tf
    from tensorflow.core.protobuf import service_config_pb2

    config = service_config_pb2.DispatcherConfig(
        port=args.port,
        protocol="grpc",
        job_gc_check_interval_ms=GC_INTERVAL_MS,
        worker_timeout_ms=2 * GC_INTERVAL_MS,
        worker_max_concurrent_snapshots=1,
    )
    server = tf.data.experimental.service.DispatchServer(config)  # takes the message
    ready.write(args.ready_file, server.target.removeprefix("grpc://"), None)
    server.join()


def _worker(args: argparse.Namespace) -> None:
    import tensorflow as tf

    config = tf.data.experimental.service.WorkerConfig(
        dispatcher_address=args.dispatcher,
        worker_address=f"localhost:{args.port}" if args.port else None,
        port=args.port,
        heartbeat_interval_ms=200,
        dispatcher_timeout_ms=60_000,
    )
    server = tf.data.experimental.service.WorkerServer(config)
    ready.write(args.ready_file, server._address, None)
    server.join()


def _client(args: argparse.Namespace) -> None:
    import tensorflow as tf

    dataset = tf.data.Dataset.range(args.elements)
    dataset = dataset.apply(
        tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{args.dispatcher}",
            max_outstanding_requests=2,
        )
    )
    ready.write(args.ready_file, args.dispatcher, None)
    with Path(args.log).open("w", buffering=1) as log:
        for element in dataset:
            log.write(f"{int(element)}\n")
            time.sleep(args.step)  # stands for a training step
        log.write("end\n")


def main(argv: Sequence[str]) -> int:
    """Run a role until it is killed, or, for the client, until its epoch ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["dispatcher", "worker", "client"])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--dispatcher", default="")
    parser.add_argument("--ready-file", required=True)
    parser.add_argument("--log", default=os.devnull)
    parser.add_argument("--elements", type=int, default=40)
    parser.add_argument("--step", type=float, default=0.02)
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    {"dispatcher": _dispatcher, "worker": _worker, "client": _client}[args.role](args)
    return 0
