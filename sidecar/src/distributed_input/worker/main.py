"""The worker's process: serve splits, tell the dispatcher, drain on SIGTERM."""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import grpc

from distributed_input.api import flags
from distributed_input.api.errors import RetryableError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.runtime import args as common
from distributed_input.runtime import logs, ready, shutdown, statuses
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.exposition import Exposition
from distributed_input.runtime.serving import Server, make_server, open_channel
from distributed_input.runtime.stubs import Stub, identity, service_handler
from distributed_input.worker.advertise import advertised
from distributed_input.worker.membership import Membership

if TYPE_CHECKING:
    from distributed_input.worker.service import WorkerService

_log = logs.get("worker.main")
_HAND_BACK_SECONDS = 2.0  # of the grace period: for streams that have not ended by then


def _parser() -> argparse.ArgumentParser:
    made = common.parser("worker", "Runs splits of datasets and streams their rows.")
    common.add_listen(made)
    made.add_argument(flags.DISPATCHER, required=True, metavar="HOST:PORT")
    made.add_argument(
        flags.ADVERTISE,
        default=flags.ADVERTISE_AUTO,
        metavar="HOST:PORT|auto",
        help="where sidecars reach this worker (default: as it listens; where that is on all "
        "addresses, the one that reaches the dispatcher)",
    )
    made.add_argument(
        flags.PARALLELISM,
        type=int,
        default=0,
        help="elements made at once over all streams (default: the cores)",
    )
    made.add_argument(
        flags.MAX_STREAMS,
        type=int,
        default=2048,
        help="open at once, of all jobs (default: 2048, which one job of the most partitions takes "
        "where each reads a split ahead); others are refused",
    )
    made.add_argument(
        flags.SHARE_BYTES,
        type=int,
        default=64 << 20,
        help="rows kept for other jobs of the same dataset (default: 64 MiB)",
    )
    made.add_argument(
        flags.PATH, action="append", default=[], help="folder put before Python's path; repeatable"
    )
    made.add_argument(
        flags.RELAXED,
        action="store_true",
        help="run TensorFlow without op determinism: faster for some datasets, but what is made "
        "again after a failure may differ",
    )
    return made


def _fetcher(stub: Stub) -> Callable[[str], bytes]:
    def fetch(dataset_id: str) -> bytes:
        request = dispatcher_pb2.GetDatasetRequest(dataset_id=dataset_id)
        try:
            return b"".join(chunk.data for chunk in stub.GetDataset(request, timeout=120))
        except grpc.RpcError as broken:
            error = statuses.from_rpc_error(broken, "fetching a dataset from the dispatcher")
            if isinstance(error, RetryableError):
                raise UnavailableError(str(error)) from broken
            raise error from broken

    return fetch


def _body(argv: Sequence[str] | None) -> int:
    args = _parser().parse_args(argv)
    logs.setup("worker", args.log_level)
    shutdown.die_with_parent(os.environ)
    stopping = shutdown.Shutdown(args.grace_seconds)
    stopping.install()
    sys.path[:0] = args.path
    # Imported late, so that a bad flag is told at once: TensorFlow takes seconds.
    import tensorflow as tf

    from distributed_input.worker.datasets.sources import Sources
    from distributed_input.worker.service import WorkerService

    if not args.relaxed:
        tf.config.experimental.enable_op_determinism()
    credentials = Credentials.from_args(args.token_file, os.environ)
    channel = open_channel(args.dispatcher, credentials)
    dispatcher = Stub(channel, dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"])
    parallelism = args.parallelism or len(os.sched_getaffinity(0))
    service = WorkerService(
        Sources(_fetcher(dispatcher)), parallelism, args.max_streams, args.share_bytes
    )
    descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    handler = service_handler(descriptor, service, {"Stream": (None, identity)})
    server = make_server([handler], args.listen, credentials, max_workers=args.max_streams + 8)
    address = advertised(args.advertise, server.address, args.dispatcher)
    exposed = Exposition()
    exposed.add_source(service.samples)
    scraped = exposed.serve(args.metrics_listen, lambda: server.healthy)
    server.start()
    membership = Membership(dispatcher, service, address, tf.__version__)
    membership.start()
    # TensorFlow's modules are millions of objects that never go: walking them again and again
    # took a tenth of a worker's CPU.
    gc.collect()
    gc.freeze()
    ready.write(args.ready_file, server.address, scraped.address if scraped else None)
    _log.info("serving", address=address, worker=membership.worker_id, tensorflow=tf.__version__)
    stopping.wait()
    _drain(server, service, membership, args.grace_seconds)
    return 0


def _drain(server: Server, service: WorkerService, membership: Membership, grace: float) -> None:
    """New streams go elsewhere from now on, and splits that end in time are not made twice; of
    the others the sidecars go on from where they are with another worker.
    """
    server.set_healthy(False)
    service.draining.set()
    membership.leave()
    service.idle.wait(max(0.0, grace - _HAND_BACK_SECONDS))
    service.handing_back.set()
    service.idle.wait(min(_HAND_BACK_SECONDS, grace))
    membership.stop()
    server.stop(1.0)
    _log.info("drained")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a worker until SIGTERM; the exit status."""
    return common.exit_code("worker", _body, argv)
