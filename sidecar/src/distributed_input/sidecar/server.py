"""The socket on which the sidecar accepts trainers."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from distributed_input.api.files import SOCKET_NAME
from distributed_input.link.trainer import packet_socket
from distributed_input.runtime import logs, metrics
from distributed_input.runtime.files import shared_files
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.inputs.session import TrainerSession

_log = logs.get("sidecar.server")
_SEND_BUFFER_BYTES = 1 << 21
_RETRY_SECONDS = 0.5  # after a connection could not be accepted, for example without descriptors
_SEND_TIMEOUT_SECONDS = 0.2  # a blocked send checks this often whether it was cancelled


class SidecarServer:
    """Accepts trainers on `folder`/sidecar.sock and serves inputs to them.

    Args:
        registry: inputs to serve.
        folder: folder shared with trainers.
    """

    def __init__(self, registry: InputRegistry, folder: Path) -> None:
        self._registry = registry
        path = folder / SOCKET_NAME
        path.unlink(missing_ok=True)  # left behind by an earlier container in the same volume
        self._socket = packet_socket.new()
        self._socket.bind(str(path))
        os.chmod(path, shared_files.mode(folder))
        self._socket.listen(16)
        self._path = path
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)

    def start(self) -> None:
        """Connect to the dispatchers and accept trainers."""
        self._registry.start()
        self._thread.start()

    @property
    def is_healthy(self) -> bool:
        """Whether the server accepts connections."""
        return self._thread.is_alive()

    def samples(self) -> list[metrics.Sample]:
        """Return the metrics of all inputs."""
        return [sample for job in self._registry.all() for sample in _samples(job)]

    def close(self) -> None:
        """Stop serving. Trainers get a retryable error."""
        self._closed.set()
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it wakes `accept`, which a close does not
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._registry.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError as error:
                if self._closed.is_set():
                    return
                _log.warning("cannot accept a trainer; retrying", cause=str(error))
                self._closed.wait(_RETRY_SECONDS)
                continue
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(_SEND_TIMEOUT_SECONDS))
            session = TrainerSession(sock, self._registry)
            threading.Thread(target=session.serve, name="connection", daemon=True).start()


def _samples(job: JobInput) -> Iterator[metrics.Sample]:
    """Yield the present value of each metric. Counters count from the start of the process."""
    stats, streams, link = job.sessions.stats(), job.streams, job.link
    labels = {"input": job.config.name, "rank": str(job.consumer)}
    for definition, value in (
        (metrics.SIDECAR_ROWS, stats.rows),
        (metrics.SIDECAR_BYTES, stats.bytes),
        (metrics.SIDECAR_BATCHES, stats.batches),
        (metrics.SIDECAR_WAIT_SECONDS, stats.wait_seconds),
        (metrics.SIDECAR_WALL_SECONDS, stats.wall_seconds),
        (metrics.SIDECAR_BUFFER_FILL, stats.buffer_fill),
        (metrics.SIDECAR_OPEN_STREAMS, link.pool.open_streams),
        (metrics.SIDECAR_RECEIVED_BYTES, streams.bytes),
        (metrics.SIDECAR_WORKER_LOSSES, link.pool.lost_workers),
        (metrics.SIDECAR_REPLAYS, streams.replays),
        (metrics.SIDECAR_REPLAY_MISMATCHES, streams.mismatches),
        (metrics.SIDECAR_EPOCH, stats.epoch),
        (metrics.SIDECAR_USEFUL_WORKERS, stats.useful_workers),
        (metrics.SIDECAR_RING_BYTES, job.slots.size),
        (metrics.SIDECAR_RING_USED_BYTES, job.slots.used),
        (metrics.SIDECAR_HEARTBEAT_AGE_SECONDS, link.heartbeat_age),
    ):
        yield metrics.sample(definition, value, **labels)
    for cause, count in streams.reconnects.copy().items():
        yield metrics.sample(metrics.SIDECAR_RECONNECTS, count, cause=cause, **labels)
    for one in stats.sources:
        of = {**labels, "source": one.source}
        yield metrics.sample(metrics.SIDECAR_SOURCE_ROWS, one.rows, **of)
        yield metrics.sample(metrics.SIDECAR_SOURCE_WAIT_SECONDS, one.wait_seconds, **of)


def _timeval(seconds: float) -> bytes:
    """Return a C `struct timeval`."""
    return struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
