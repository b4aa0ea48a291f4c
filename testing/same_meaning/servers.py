"""Dispatcher, worker and sidecars as threads of this process.

They are the product's own servers: only their `main` functions, which read flags and wait for
signals, are missing. Dispatcher and worker live as long as the process; each case has sidecars of
its own, so that a case costs no start of a process.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import tempfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from distributed_input.api.config import InputConfig
from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.dispatcher.clock import TICK_SECONDS, RunningClock
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.service import DESCRIPTOR, THREADS, DispatcherService
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import Server, make_server, open_channel
from distributed_input.link.stubs import Stub, service_handler
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.server import SidecarServer
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import Input
from testing.integration.cluster import spec

HEARTBEAT_SECONDS = 0.1
TIMEOUT_SECONDS = 60  # a busy machine needs long; only what hangs takes as long
_PARALLELISM = 2
_STREAMS = 512
_SHARE_BYTES = 64 << 20


class WorkerThread:
    """One worker of this process. `kill` breaks its streams, as the end of its process does."""

    def __init__(self, dispatcher: str) -> None:
        from distributed_input.link.heartbeats.membership import Membership
        from distributed_input.worker.datasets.split_opener import SplitOpener
        from distributed_input.worker.serve import _fetcher
        from distributed_input.worker.service import WorkerService

        self._channel = open_channel(dispatcher, Credentials())
        stub = Stub(self._channel, dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"])
        self._folder = Path(tempfile.mkdtemp(prefix="di-worker-"))
        splits = SplitOpener(_fetcher(stub), self._folder, cpus=_PARALLELISM)
        service = WorkerService(splits, _PARALLELISM, _STREAMS, _SHARE_BYTES)
        descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
        handler = service_handler(descriptor, service)
        self._server = make_server([handler], "127.0.0.1:0", Credentials(), max_workers=64)
        self._server.start()
        address = self._server.address
        self._membership = Membership(stub, service.load, address, "in process", "")
        self._membership.start()

    def kill(self) -> None:
        """Stop at once. Open streams break."""
        self._membership.stop()
        self._server.stop(0)
        self._channel.close()
        shutil.rmtree(self._folder, ignore_errors=True)


class Servers:
    """A dispatcher and a worker. A context manager."""

    def __init__(self, workers: int = 1) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="di-"))
        clock = RunningClock()
        limits = DispatcherLimits(heartbeat=HEARTBEAT_SECONDS, expiry=10.0, hold=20.0, forget=60.0)
        state = DispatcherState(uuid.uuid4().hex, clock.now(), limits)
        service = DispatcherService(state, clock)
        self._dispatcher: Server = make_server(
            [service_handler(DESCRIPTOR, service)],
            "127.0.0.1:0",
            Credentials(),
            max_workers=THREADS,
            max_message_bytes=16 << 20,
        )
        self._dispatcher.start()
        self._ending = threading.Event()
        self._clock = threading.Thread(target=self._expire, args=(service,), daemon=True)
        self._clock.start()
        self._numbers = itertools.count()
        self.workers = [WorkerThread(self.address) for _ in range(workers)]

    @property
    def address(self) -> str:
        """Return host:port of the dispatcher."""
        return self._dispatcher.address

    def _expire(self, service: DispatcherService) -> None:
        while not self._ending.wait(TICK_SECONDS):
            service.expire()

    def replace_worker(self) -> None:
        """Kill a worker and start another one."""
        old = self.workers.pop(0)
        self.workers.append(WorkerThread(self.address))
        old.kill()

    def new_name(self) -> str:
        """Return a name for an input that no input had."""
        return f"case{next(self._numbers)}"

    @contextlib.contextmanager
    def sidecars(self, name: str, trainers: int, **fields: Any) -> Iterator[list[Path]]:
        """Serve an input to this number of trainers; yield the folder of each.

        Args:
            name: name of the input.
            trainers: number of trainers.
            fields: of the resource's spec; see `testing.integration.cluster.spec`.
        """
        number = next(self._numbers)
        fields = {"timeoutSeconds": TIMEOUT_SECONDS, "buffer": "4Mi", **fields}
        config = InputConfig.from_json(spec(**fields), "spec")
        opened: list[tuple[SidecarServer, Path]] = []
        try:
            for consumer in range(trainers):
                folder = self._folder / f"{number}-{consumer}"
                folder.mkdir()
                opened.append((self._serve(name, config, folder, consumer, trainers), folder))
            yield [folder for _, folder in opened]
        finally:
            closing = [threading.Thread(target=server.close) for server, _ in opened]
            for thread in closing:
                thread.start()
            for thread in closing:
                thread.join()
            for _, folder in opened:
                shutil.rmtree(folder, ignore_errors=True)

    def _serve(
        self, name: str, config: InputConfig, folder: Path, consumer: int, consumers: int
    ) -> SidecarServer:
        ranks = TrainerRanks(consumer, consumers)

        def create(name: str, job: str, rank: int) -> JobInput:
            credentials = Credentials()
            return JobInput(name, config, self.address, credentials, folder, ranks, rank, job)

        server = SidecarServer(InputRegistry(create, [name], ranks=ranks), folder)
        server.start()
        return server

    def close(self) -> None:
        """Stop all servers."""
        self._ending.set()
        for worker in self.workers:
            worker.kill()
        self._dispatcher.stop(0)
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def connect(folder: Path, timeout: float = TIMEOUT_SECONDS) -> Input:
    """Connect a trainer of this process to the sidecar in a folder."""
    return Input(Consumer(folder, "", timeout))
