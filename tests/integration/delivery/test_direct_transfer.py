"""Rows over direct connections arrive exactly once and in order, whatever happens to these."""

from __future__ import annotations

import contextlib
import itertools
import random
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.identity import SIDECAR, WORKER
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.link.blocks import direct_reader, message_socket
from distributed_input.link.blocks.direct_sender import TransferListener
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import make_server
from distributed_input.link.stubs import service_handler
from distributed_input.link.tls import secure_socket
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.runtime import addresses
from distributed_input.sidecar.streams import worker_pool
from distributed_input.sidecar.streams.epoch_plan import EpochPlan
from distributed_input.sidecar.streams.split_stream import SplitStream
from distributed_input.sidecar.streams.stream_context import StreamContext, StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.service import WorkerService
from testing.certificates import MountedFolder
from testing.chaos.proxy import Loop, Proxy
from testing.integration import readers
from testing.integration.cluster import Cluster, spec

WIDTH, ROWS, SPLITS = 512, 800, 2
SPLIT_BYTES = 8 * WIDTH * ROWS
ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", (WIDTH,)),))
SECONDS = 60.0


class WideSplits:
    """A fake `SplitOpener`. Each row is full of a number: split * 1,000,000 + row.

    Attributes:
        before: is called before the first row of each split.
    """

    before: Callable[[], object] = staticmethod(lambda: None)

    def keep(self, *_: object) -> None:
        pass

    def open(
        self, _job: Any, _seed: int, _epoch: int, split: int, *_: Any, **__: Any
    ) -> SplitIterator:
        first = split * 1_000_000

        def rows() -> Iterator[dict[str, Any]]:
            self.before()
            yield from ({"id": np.full(WIDTH, first + row)} for row in range(ROWS))

        return SplitIterator(rows(), ROW, False)


class FaultyProxy(Proxy):
    """Cuts the connections again and again, each time after a number of bytes.

    Attributes:
        every: the number of bytes.
        is_silent: whether it only stops reading, and the connections stay open.
    """

    every: int | None = None
    is_silent = False

    def cut_every(self, every: int) -> None:
        self.every = every
        self.cut_after(every)

    def _cut(self) -> None:
        if self.is_silent:
            self.cuts += 1
        else:
            super()._cut()
        self._cut_after = self.every


class System:
    """A worker, behind a proxy for direct connections, and a pool that reads from it.

    Args:
        loop: runs the proxy.
        may_transfer: whether the pool uses direct connections.
        worker: credentials of the worker.
        sidecar: credentials of the pool.

    Attributes:
        direct_within: seconds that the first row waits for a direct connection.
        had_direct: whether the worker has had one.
    """

    direct_within = 2.0
    had_direct = False

    def __init__(
        self,
        loop: Loop,
        may_transfer: bool = True,
        worker: Credentials | None = None,
        sidecar: Credentials | None = None,
    ) -> None:
        worker, sidecar = worker or Credentials(), sidecar or Credentials()
        splits: Any = WideSplits()
        self.splits = splits
        self.service = WorkerService(splits, parallelism=2, max_streams=8, share_bytes=1 << 20)
        descriptor = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
        handler = service_handler(descriptor, self.service)
        self.server = make_server([handler], "127.0.0.1:0", worker)
        self.transfers = TransferListener(self.server.address, worker.certificates)
        self.service.transfers = self.transfers
        self.proxy = FaultyProxy(loop)
        self.proxy.upstream = f"127.0.0.1:{self.transfers.port}"
        self.transfers.port = int(self.proxy.address.rpartition(":")[2])
        self.transfers.local = ""  # it would not pass the proxy
        self.transfers.start()
        self.server.start()
        self.pool = WorkerPool(sidecar, may_transfer)
        info = dispatcher_pb2.WorkerInfo(worker_id="w", address=self.server.address)
        self.pool.update([info])
        job = types_pb2.Job(
            name="train", dataset_id="d", num_splits=SPLITS, partitions=1, row_spec=ROW.to_json()
        )
        plan, lock = EpochPlan.of_job(job, epoch=0, consumer=0), threading.Lock()
        self.stats = StreamStats()
        self.shared = StreamContext(
            plan, self.pool, self.stats, lock, threading.Condition(lock), SECONDS
        )

    def read(self) -> list[int]:
        """Return the numbers of the rows of all splits, split by split, as they arrive."""
        with self.shared.lock:
            streams = [SplitStream(self.shared, split, split, 0, None) for split in range(SPLITS)]
            return [row for stream in streams for row in self._rows_of(stream)]

    def _rows_of(self, stream: SplitStream) -> Iterator[int]:
        deadline = time.monotonic() + SECONDS
        while not stream.exhausted:
            taken = stream.next(50)
            for block in taken:
                rows = block.buffers[0].view(np.int64).reshape(-1, WIDTH)
                assert (rows == rows[:, :1]).all(), "a row is damaged"
                yield from rows[:, 0].tolist()
            assert time.monotonic() < deadline, "no row came"
            if not taken:
                self.shared.arrived.wait(0.1)

    def wait_for_direct(self) -> None:
        """Wait until the worker has a direct connection: on a busy machine all rows are quicker."""
        deadline = time.monotonic() + self.direct_within
        while not self.had_direct and time.monotonic() < deadline:
            open_now = tuple(self.transfers._open)
            self.had_direct = any(offer._accepted is not None for offer in open_now)
            time.sleep(0.01)

    @property
    def direct_bytes(self) -> int:
        return self.transfers.sent_bytes

    def close(self) -> None:
        self.pool.close()
        self.server.stop(0)
        self.transfers.close()


EXPECTED = [split * 1_000_000 + row for split in range(SPLITS) for row in range(ROWS)]


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    yield loop
    loop.close()


@pytest.fixture
def system(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> Iterator[System]:
    monkeypatch.setattr(direct_reader, "_CALL_SECONDS", 0.05)
    system = System(loop)
    system.splits.before = system.wait_for_direct
    yield system
    system.close()


def test_rows_go_over_the_direct_connection(system: System) -> None:
    assert system.read() == EXPECTED
    assert system.direct_bytes > SPLIT_BYTES, "only what came before the connection used gRPC"
    assert not system.stats.reconnects


def test_rows_are_equal_over_grpc(loop: Loop) -> None:
    with contextlib.closing(System(loop, may_transfer=False)) as system:
        assert system.read() == EXPECTED
        assert system.direct_bytes == 0


def test_no_row_is_lost_while_encrypted_connections_are_replaced(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(secure_socket, "MOST_BYTES", SPLIT_BYTES // 4)
    accept, accepted = secure_socket.accept, []

    def record(*args: Any) -> Any:
        accepted.append(args)
        return accept(*args)

    monkeypatch.setattr(secure_socket, "accept", record)
    worker, sidecar = (
        TlsCredentials(CertificateFolder(MountedFolder(tmp_path / role).issue(role)))
        for role in (WORKER, SIDECAR)
    )
    with contextlib.closing(System(loop, worker=worker, sidecar=sidecar)) as system:
        system.splits.before = system.wait_for_direct
        deadline = time.monotonic() + SECONDS
        while len(accepted) < 4:
            assert time.monotonic() < deadline, "connections are not replaced"
            assert system.read() == EXPECTED
        assert not system.stats.reconnects
        assert system.direct_bytes > 2 * secure_socket.MOST_BYTES


def test_a_port_that_cannot_be_reached_leaves_the_rows_on_grpc(system: System) -> None:
    system.transfers.port = 9  # nothing listens there
    assert system.read() == EXPECTED
    assert system.direct_bytes == 0
    assert not system.stats.reconnects


@pytest.mark.parametrize("seed", range(6))
def test_connections_that_are_cut_within_messages(
    system: System, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Each new connection is a direct one again, and is cut after the same number of bytes."""
    monkeypatch.setattr(worker_pool, "_DIRECT_RETRY_SECONDS", 0.0)
    every = random.Random(seed).randrange(SPLIT_BYTES // 8, SPLIT_BYTES // 2)
    system.proxy.cut_every(every)
    assert system.read() == EXPECTED
    assert system.proxy.cuts
    assert system.stats.reconnects
    assert system.pool.lost_workers == 0, "the worker is there"


@pytest.mark.parametrize("after", [1, 7, 8, 9, 1000, 100_000])
def test_rows_continue_over_grpc_after_a_cut(system: System, after: int) -> None:
    """A network that passes only a few bytes beside gRPC would pass no message, again and again."""
    system.proxy.cut_every(after)
    assert system.read() == EXPECTED
    assert system.proxy.cuts == 1
    assert system.stats.reconnects


def test_rows_continue_over_grpc_if_nothing_is_passed_on(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker notices it. Its next direct connection would fail in the same way."""
    monkeypatch.setattr(message_socket, "_UNACKNOWLEDGED_MILLISECONDS", 500)
    # Otherwise the kernels on both sides of the proxy would take all rows.
    for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        system.transfers._sockets[0].setsockopt(socket.SOL_SOCKET, option, 8192)
    # The last rows alone would fit into the kernels, so the direct connection must come first.
    monkeypatch.setattr(direct_reader, "_CONNECT_SECONDS", SECONDS)
    system.direct_within = SECONDS
    system.proxy.is_silent = True
    system.proxy.cut_every(20_000)
    began = time.monotonic()
    assert system.read() == EXPECTED
    assert time.monotonic() - began > 0.4, "the kernel reports it"
    assert system.proxy.cuts == 1
    assert system.stats.reconnects
    assert system.direct_bytes < SPLIT_BYTES


def test_delays_are_no_error(system: System) -> None:
    ends = threading.Event()

    def delay() -> None:
        while not ends.wait(0.02):
            system.proxy.hold()
            ends.wait(0.02)
            system.proxy.flow()

    delaying = threading.Thread(target=delay)
    delaying.start()
    try:
        assert system.read() == EXPECTED
    finally:
        ends.set()
        delaying.join()
    assert not system.stats.reconnects
    assert system.direct_bytes


# Processes.

SLOW: dict[str, Any] = {"rows": 1200, "kib": 16, "milliseconds": 1.0}
FIELDS: dict[str, Any] = {"partitions": 2, "numSplits": 4, "globalBatchSize": 8, "epochs": 1}


def direct_bytes(part: Any) -> float:
    """Return the metric of a worker."""
    address = part.wait_ready()["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    name = "distributed_input_worker_direct_bytes_total "
    (line,) = (line for line in lines if line.startswith(name))
    return float(line.removeprefix(name))


def test_a_killed_worker_loses_and_repeats_nothing(own_cluster: Cluster) -> None:
    metrics = ("--metrics-listen", "127.0.0.1:0")
    workers = own_cluster.add_workers(2, *metrics)
    (sidecar,) = own_cluster.add_sidecars({"train": spec("wide:slow", SLOW, **FIELDS)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = readers.ids(itertools.islice(batches, 20))
        assert all(direct_bytes(one) > 0 for one in workers), "rows use the direct connections"
        workers[0].kill()
        found += readers.ids(batches)
    assert sorted(found) == list(range(SLOW["rows"]))


def test_a_worker_starts_again_at_its_path(own_cluster: Cluster) -> None:
    paths = [own_cluster.folder / name for name in ("w", "w.rows")]
    flags = ("--listen", addresses.unix(str(paths[0])))
    (killed,) = own_cluster.add_workers(1, *flags)
    killed.kill()
    assert all(path.is_socket() for path in paths), "nothing could remove them"
    (stopped,) = own_cluster.add_workers(1, *flags)
    with pytest.raises(AssertionError, match=f"{flags[1]}: another process listens at {paths[0]}"):
        own_cluster.add_workers(1, *flags)
    assert all(path.is_socket() for path in paths)
    assert stopped.stop() == 0
    assert not any(path.exists() for path in paths)


def test_both_settings_give_equal_rows(own_cluster: Cluster) -> None:
    (worker,) = own_cluster.add_workers(1, "--metrics-listen", "127.0.0.1:0")
    found = []
    for transfer in ("grpc", "auto"):
        one = spec("rows:shuffled", {"rows": 400, "global_batch": 8}, **FIELDS)
        one["sidecar"]["transfer"] = transfer
        sidecars = own_cluster.add_sidecars({transfer: one})
        found.append(readers.ids(readers.read(sidecars)[0][0]))
        if transfer == "grpc":
            assert not direct_bytes(worker)
    assert found[0] == found[1]
    assert sorted(found[0]) == list(range(400))
