"""Heartbeats of a worker to the dispatcher, which sends the worker's address to sidecars."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable

import grpc

from distributed_input.api.errors import RetryableError
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.protocol import PROTOCOL, heartbeat_interval
from distributed_input.api.stalls import MAX_STALLED
from distributed_input.link import statuses
from distributed_input.link.stubs import Stub
from distributed_input.runtime import logs

_log = logs.get("worker.membership")
_CALL_SECONDS = 3.0
_RETRY_SECONDS = 0.3


class Membership:
    """A thread that sends heartbeats to the dispatcher and retries when it is unavailable.

    Args:
        stub: the dispatcher.
        load: returns a heartbeat with the load.
        address: address of the worker.
        tf_version: version of TensorFlow.
        pod: id of the only pod that uses the worker; "": all do.
        received: called with each heartbeat that the dispatcher has received.
        wake: an event that is set to send the next heartbeat at once; None: one of its own.
    """

    def __init__(
        self,
        stub: Stub,
        load: Callable[[], dispatcher_pb2.WorkerHeartbeatRequest],
        address: str,
        tf_version: str,
        pod: str = "",
        received: Callable[[dispatcher_pb2.WorkerHeartbeatRequest], None] = lambda _: None,
        wake: threading.Event | None = None,
    ) -> None:
        self.worker_id = f"{socket.gethostname()}-{uuid.uuid4().hex[:12]}"
        self._stub, self._load = stub, load
        self._address, self._tf_version, self._pod = address, tf_version, pod
        self._stop = threading.Event()
        self._received, self._wake = received, wake or threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Start the heartbeats."""
        self._thread.start()

    def send_now(self) -> None:
        """Send the next heartbeat without waiting for its time."""
        self._wake.set()

    def stop(self) -> None:
        """Stop the heartbeats."""
        self._stop.set()
        self._wake.set()
        self._thread.join(_CALL_SECONDS + 1)

    def _run(self) -> None:
        failing = True  # the first failure is not logged: the dispatcher may start later
        while not self._stop.is_set():
            interval = _RETRY_SECONDS
            try:
                interval = self._send()
                failing = False
            except grpc.RpcError as broken:
                error = statuses.from_rpc_error(broken, "heartbeat to the dispatcher")
                if not failing or not isinstance(error, RetryableError):
                    _log.warning("heartbeat failed", cause=str(error))
                failing = True
            except Exception:  # noqa: BLE001  a bug must not end the heartbeats
                _log.exception("heartbeat failed")
            self._wake.wait(interval)
            self._wake.clear()

    def _send(self) -> float:
        """Send one heartbeat. Return the seconds until the next one."""
        request = self._load()
        request.worker_id, request.address, request.pod = self.worker_id, self._address, self._pod
        request.tf_version, request.protocol = self._tf_version, PROTOCOL
        del request.stalled[MAX_STALLED:]
        response = self._stub.WorkerHeartbeat(request, timeout=_CALL_SECONDS)
        self._received(request)
        return heartbeat_interval(response.interval_seconds)
