"""A dispatcher, sidecars and a worker in this process; the worker's rows are numbers.

Everything is real except the worker's datasets. Rows 0, 1, 2, ... are dealt to the splits in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distributed_input.api.config import InputConfig
from distributed_input.api.proto import worker_pb2
from distributed_input.api.proto.dispatcher_pb2 import WorkerHeartbeatRequest
from distributed_input.api.proto.trainer_pb2 import Rank
from distributed_input.api.protocol import PROTOCOL
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.dispatcher.service import DESCRIPTOR, DispatcherService
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link import serving, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.order import jobs
from distributed_input.order.jobs import DatasetFacts
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.inputs.session import TrainerSession
from distributed_input.sidecar.server import SidecarServer
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.dispatcher.builders import state
from tests.unit.distributed_input.sidecar.connecting import serve_connection

WORKER = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
NUMBERS = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))
ROWS, BATCH, BLOCK = 40, 4, 5


class Worker:
    """Implements the service of proto/worker.proto."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def Describe(self, request: worker_pb2.DescribeRequest, _context: Any) -> Any:  # noqa: N802
        job = jobs.complete(request.job, DatasetFacts(NUMBERS))
        return worker_pb2.DescribeResponse(job=job)

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        split = np.arange(request.split, self._rows, request.job.num_splits)
        for at in range(request.start_row, len(split), BLOCK):
            rows = split[at : at + BLOCK]
            digests = np.zeros(len(rows), np.uint64)
            yield blocks.encode(RowBlock(at, len(rows), (rows.view(np.uint8),), digests))
        nothing = np.zeros(0, np.uint8)
        end = RowBlock(len(split), 0, (nothing,), nothing.view(np.uint64), last=True)
        yield blocks.encode(end)

    def Connect(self, requests: Any, context: Any) -> Iterator[bytes]:  # noqa: N802
        return serve_connection(self.Stream, requests, context)


def worker_handler(worker: object) -> stubs.Handler:
    """Return the handler of an implementation of proto/worker.proto."""
    return stubs.service_handler(WORKER, worker)


@dataclass
class System:
    """The running parts. `state` is the dispatcher's state."""

    folder: Path
    state: DispatcherState
    clock: RunningClock
    address: str
    sidecars: list[SidecarServer] = field(default_factory=list)
    registries: list[InputRegistry] = field(default_factory=list)

    def add_sidecar(
        self, consumer: int = 0, consumers: int = 1, ranks_per_trainer: int = 1, **spec: Any
    ) -> JobInput:
        """Start a sidecar in `folder` with the one input "train". Return the input's own job."""
        spec = {
            "dataset": {"entryPoint": "any:where"},
            "batching": {"globalBatchSize": BATCH},
            "partitions": 2,
            "numSplits": 4,
            "sidecar": {"bufferBytes": 1 << 20, "timeoutSeconds": 20},
            **spec,
        }

        ranks = TrainerRanks(consumer, consumers, ranks_per_trainer)

        def create(name: str, job: str, rank: int) -> JobInput:
            return JobInput(
                name,
                InputConfig.from_json(spec),
                self.address,
                Credentials(),
                self.folder,
                ranks,
                rank,
                job,
            )

        registry = InputRegistry(create, ["train"], ranks=ranks)
        self.registries.append(registry)
        sidecar = SidecarServer(registry, self.folder)
        self.sidecars.append(sidecar)
        sidecar.start()
        return registry.find("train", "")

    def connect(self, job: str = "", replicas: int = 1, rank: Rank | None = None) -> Consumer:
        """Connect a trainer and open the job."""
        reader = Consumer(self.folder, "train", 10.0, job, rank=rank)
        reader.open(reader.welcome.config, b"", replicas)
        return reader


@contextmanager
def running(folder: Path, rows: int = ROWS) -> Iterator[System]:
    """Run a dispatcher and a worker, and the sidecars that are added."""
    # Nothing expires while a test runs: a part that leaves has to report it.
    shared, clock = state(heartbeat=0.2, expiry=60.0, hold=60.0), RunningClock()
    handlers = (
        stubs.service_handler(DESCRIPTOR, DispatcherService(shared, clock)),
        worker_handler(Worker(rows)),
    )
    server = serving.make_server(handlers, "127.0.0.1:0", Credentials())
    server.start()
    heartbeat = WorkerHeartbeatRequest(worker_id="w", address=server.address, protocol=PROTOCOL)
    shared.worker_beat(clock.now(), heartbeat)
    system = System(folder, shared, clock, server.address)
    try:
        yield system
    finally:
        for sidecar in system.sidecars:
            sidecar.close()
        server.stop(0)


def current_session(job: JobInput) -> TrainerSession:
    """Return the session of the trainer that reads the job."""
    session = job.sessions._current
    assert isinstance(session, TrainerSession)
    return session


def eventually(condition: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until `condition()` is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.02)
