"""The worker process: serves splits, sends heartbeats, drains when it stops."""

from __future__ import annotations

import argparse
import contextlib
import gc
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import grpc
import tensorflow as tf

from distributed_input.api.environment import MACHINE_WORKERS_ENV
from distributed_input.api.errors import RetryableError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.link import statuses
from distributed_input.link.blocks.direct_sender import TransferListener
from distributed_input.link.heartbeats.membership import Membership
from distributed_input.link.serving import Server, make_server, open_channel
from distributed_input.link.stubs import Stub, service_handler
from distributed_input.link.tls_credentials import credentials_of
from distributed_input.runtime import heap, logs, ready
from distributed_input.runtime.exposition import Exposition
from distributed_input.runtime.files import locked_folders
from distributed_input.runtime.shutdown import Shutdown
from distributed_input.worker import crash_notes
from distributed_input.worker.advertise import advertised_address
from distributed_input.worker.datasets import entry_points
from distributed_input.worker.datasets.split_opener import SplitOpener
from distributed_input.worker.host.cpu_times import usable_cpus
from distributed_input.worker.host.idle_share import IdleCpus
from distributed_input.worker.host.priority import LOW, LOWEST, lower_cpu_priority
from distributed_input.worker.service import WorkerService
from distributed_input.worker.states.state_files import StateFiles
from distributed_input.worker.store.block_store import BlockStore

_log = logs.get("worker.main")
_HAND_BACK_SECONDS = 2.0  # part of the grace period, for streams that have not ended before it
_FETCH_SECONDS = 120.0
_FOLDERS = "distributed-input-worker"


def serve(args: argparse.Namespace, stopping: Shutdown) -> None:
    """Run a worker until it is asked to stop, then drain it.

    Args:
        args: flags of the command line.
        stopping: set when the process is asked to stop.
    """
    crashes = crash_notes.collect(locked_folders.parent_of(_FOLDERS), args.dispatcher)
    with locked_folders.temporary(_FOLDERS, crash_notes.is_needed) as folder:
        crash_notes.enable(folder, args.dispatcher)
        _serve(args, stopping, folder, crashes)


def _serve(
    args: argparse.Namespace,
    stopping: Shutdown,
    folder: Path,
    crashes: Sequence[types_pb2.StalledSplit],
) -> None:
    # Otherwise, a fifth of the pages of each element is new, which takes a quarter of its CPU time.
    heap.keep_freed_memory(heap.arenas_within(heap.memory_limit(), os.cpu_count() or 1))
    credentials = credentials_of(args.tls_dir, args.token_file, os.environ)
    channel = open_channel(args.dispatcher, credentials)
    dispatcher = Stub(channel, dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"])
    parallelism = args.parallelism or usable_cpus()
    entry_points.allow_only(args.modules.split(",") if args.modules else [])
    store = None
    if args.store_dir and not args.relaxed:
        store = BlockStore(Path(args.store_dir), args.store_bytes)
    prefixes = store.prefixes if store is not None else None
    splits = SplitOpener(_fetcher(dispatcher), folder, args.relaxed, parallelism, prefixes)
    states = StateFiles(Path(args.state_dir)) if args.state_dir else None
    service = WorkerService(
        splits,
        parallelism,
        args.max_streams,
        args.share_bytes,
        args.relaxed,
        states,
        crashes,
        store,
    )
    descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    handler = service_handler(descriptor, service)
    server = make_server([handler], args.listen, credentials, max_workers=args.max_streams + 8)
    address = advertised_address(args.advertise, server.address, args.dispatcher)
    exposition = Exposition()
    exposition.add_source(service.samples)
    scraped = exposition.serve(args.metrics_listen, lambda: server.healthy)
    certificates = None if args.plain_transfer else credentials.certificates
    service.transfers = TransferListener(server.address, certificates)
    service.transfers.start()
    server.start()
    membership = Membership(
        dispatcher,
        service.load,
        address,
        tf.__version__,
        args.pod,
        service.record_received,
        service.reports,
    )
    membership.start()
    # TensorFlow's modules are millions of objects that are never freed. Without this, scanning them
    # takes a tenth of the CPU of a worker.
    gc.collect()
    gc.freeze()
    # Not earlier: on a busy host, importing TensorFlow would take minutes.
    if args.idle_cpus:
        IdleCpus(parallelism, service.resize).start()  # reports a system that is not Linux
        lower_cpu_priority(LOWEST)
    elif MACHINE_WORKERS_ENV in os.environ:
        with contextlib.suppress(OSError):  # not on all systems
            lower_cpu_priority(LOW)
    ready.write(args.ready_file, server.address, scraped.address if scraped else None)
    _log.info("serving", address=address, worker=membership.worker_id, tensorflow=tf.__version__)
    stopping.wait()
    crash_notes.expect_end(folder)
    _drain(server, service, membership, args.grace_seconds)


def _fetcher(dispatcher: Stub) -> Callable[[str], bytes]:
    def fetch(dataset_id: str) -> bytes:
        request = dispatcher_pb2.GetDatasetRequest(dataset_id=dataset_id)
        try:
            chunks = dispatcher.GetDataset(request, timeout=_FETCH_SECONDS)
            return b"".join(chunk.data for chunk in chunks)
        except grpc.RpcError as broken:
            error = statuses.from_rpc_error(broken, "fetching a dataset from the dispatcher")
            if isinstance(error, RetryableError):
                raise UnavailableError(str(error)) from broken
            raise error from broken

    return fetch


def _drain(server: Server, service: WorkerService, membership: Membership, grace: float) -> None:
    """Refuse new streams, and let open ones end during the grace period.

    A split that ends in time is not produced again. For the others, the sidecars continue with
    another worker at the row that they reached.
    """
    server.set_healthy(False)
    service.streams.draining.set()
    membership.send_now()
    service.streams.idle.wait(max(0.0, grace - _HAND_BACK_SECONDS))
    service.hand_back()
    service.streams.idle.wait(min(_HAND_BACK_SECONDS, grace))
    service.flush(min(_HAND_BACK_SECONDS, grace))
    membership.stop()
    server.stop(1.0)
    if service.transfers is not None:
        service.transfers.close()
    _log.info("drained")
