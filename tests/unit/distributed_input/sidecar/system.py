"""A dispatcher, a sidecar and a worker in this process; the worker's rows are numbers.

All is real but the worker's datasets: rows 0, 1, 2, ... are dealt to the splits in turn.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from distributed_input.api.proto import worker_pb2
from distributed_input.api.proto.dispatcher_pb2 import WorkerHeartbeatRequest
from distributed_input.api.protocol import PROTOCOL
from distributed_input.assignment import jobs
from distributed_input.assignment.jobs import DatasetFacts
from distributed_input.client.reader import InputReader
from distributed_input.dispatcher.clock import RunningClock
from distributed_input.dispatcher.service import DESCRIPTOR, DispatcherService
from distributed_input.dispatcher.state import State
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.runtime import serving, stubs
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.input_registry import Served
from distributed_input.sidecar.inputs import Input
from distributed_input.sidecar.main import Sidecar
from tests.unit.distributed_input.dispatcher.builders import state

WORKER = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
NUMBERS = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))
ROWS, BATCH, BLOCK = 40, 4, 5


class Worker:
    """Serves proto/worker.proto."""

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


@dataclass
class System:
    """What runs. `state` is the dispatcher's knowledge."""

    folder: Path
    state: State
    clock: RunningClock
    address: str
    sidecars: list[Sidecar] = field(default_factory=list)

    def add_sidecar(self, consumer: int = 0, consumers: int = 1, **spec: Any) -> Input:
        """A sidecar in `folder`, with the one input "train"; what it knows of it."""
        spec = {
            "dataset": {"entryPoint": "any:where"},
            "batching": {"globalBatchSize": BATCH},
            "partitions": 2,
            "numSplits": 4,
            "sidecar": {"bufferBytes": 1 << 20, "timeoutSeconds": 20},
            **spec,
        }

        def make(name: str, job: str) -> Input:
            whom = consumer, consumers
            return Input(name, spec, self.address, Credentials(), self.folder, *whom, job)

        served = Served(make, ["train"])
        sidecar = Sidecar(served, self.folder, consumer, consumers)
        self.sidecars.append(sidecar)
        sidecar.start()
        return served.find("train", "")

    def connect(self, job: str = "") -> InputReader:
        """A trainer, with the job open."""
        reader = InputReader(self.folder, "train", 10.0, job)
        reader.open(reader.welcome.config, b"", 1)
        return reader


@contextmanager
def running(folder: Path, rows: int = ROWS) -> Iterator[System]:
    """A dispatcher and a worker; sidecars as they are added."""
    # Nobody expires while a test runs: who lets go of something has to say so.
    known, clock = state(heartbeat=0.2, expiry=60.0, hold=60.0), RunningClock()
    handlers = (
        stubs.service_handler(DESCRIPTOR, DispatcherService(known, clock)),
        stubs.service_handler(WORKER, Worker(rows), {"Stream": (None, stubs.identity)}),
    )
    server = serving.make_server(handlers, "127.0.0.1:0", Credentials())
    server.start()
    beat = WorkerHeartbeatRequest(worker_id="w", address=server.address, protocol=PROTOCOL)
    known.worker_beat(clock.now(), beat)
    system = System(folder, known, clock, server.address)
    try:
        yield system
    finally:
        for sidecar in system.sidecars:
            sidecar.close()
        server.stop(0)


def eventually(what: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until `what()` is true."""
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it has not come to pass"
        time.sleep(0.02)
