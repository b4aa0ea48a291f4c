"""A worker's heartbeats: how sidecars come to know of it."""

from __future__ import annotations

import socket
import threading
import uuid
from typing import TYPE_CHECKING

import grpc

from distributed_input.api.errors import RetryableError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.runtime import logs, statuses
from distributed_input.runtime.stubs import Stub

if TYPE_CHECKING:
    from distributed_input.worker.service import WorkerService

_log = logs.get("worker.membership")
_CALL_SECONDS = 3.0


class Membership:
    """Heartbeats to the dispatcher, which may come and go."""

    def __init__(self, stub: Stub, service: WorkerService, address: str, tf_version: str) -> None:
        self.worker_id = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
        self._stub, self._service = stub, service
        self._address, self._tf_version = address, tf_version
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def leave(self) -> None:
        """Tell the dispatcher at once that no new streams are taken."""
        self._soon.set()

    def stop(self) -> None:
        """End heartbeats."""
        self._stop.set()
        self._soon.set()
        self._thread.join(_CALL_SECONDS + 1)

    def _run(self) -> None:
        told = True
        while not self._stop.is_set():
            interval = 0.3
            try:
                interval = self._beat()
                told = False
            except grpc.RpcError as broken:
                error = statuses.from_rpc_error(broken, "heartbeat to the dispatcher")
                if not told or not isinstance(error, RetryableError):
                    _log.warning("no heartbeat", cause=str(error))
                told = True
            self._soon.wait(interval)
            self._soon.clear()

    def _beat(self) -> float:
        work = self._service.totals()
        answer = self._stub.WorkerHeartbeat(
            dispatcher_pb2.WorkerHeartbeatRequest(
                worker_id=self.worker_id,
                address=self._address,
                draining=self._service.draining.is_set(),
                open_streams=self._service.open_streams,
                rows=work.rows,
                busy_seconds=work.busy_seconds,
                tf_version=self._tf_version,
                protocol=PROTOCOL,
            ),
            timeout=_CALL_SECONDS,
        )
        return float(answer.interval_seconds) or 1.0
