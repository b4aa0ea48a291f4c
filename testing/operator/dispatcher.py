"""A real dispatcher that receives heartbeats of a simulated trainer and worker."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from distributed_input.api.proto import dispatcher_pb2
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually
from tests.unit.distributed_input.dispatcher.builders import consumer, job, worker


def token_of(cluster: Cluster, name: str) -> str:
    """Wait for the token of an input and return it."""
    secret = eventually(lambda: cluster.get("Secret", f"{name}-distributed-input"))
    assert secret
    return base64.b64decode(secret["data"]["token"]).decode()


class FakeHeartbeats:
    """Sends heartbeats of one trainer and one worker every half second."""

    def __init__(self, port: int, token: str) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.wait_ratio = 0.75
        """Share of the time that the trainer waits, 0 to 1."""
        self._stopped = threading.Event()
        self._call(
            "RegisterJob", dispatcher_pb2.RegisterJobRequest(job=job()), "RegisterJobResponse"
        )
        self._thread = threading.Thread(target=self._send_heartbeats)

    def start(self) -> None:
        """Start to send heartbeats."""
        self._thread.start()

    def _send_heartbeats(self) -> None:
        rows = wait = wall = 0.0
        while not self._stopped.wait(0.5):
            rows, wait, wall = rows + 50, wait + 0.5 * self.wait_ratio, wall + 0.5
            trainer_beat = consumer(
                count=1,
                useful_workers=16,
                epoch=2,
                rows=int(rows),
                wait_seconds=wait,
                wall_seconds=wall,
            )
            self._call("ConsumerHeartbeat", trainer_beat, "ConsumerHeartbeatResponse")
            worker_beat = worker(rows=int(rows), busy_seconds=wall)
            self._call("WorkerHeartbeat", worker_beat, "WorkerHeartbeatResponse")

    def _call(self, method: str, request: Any, response: str) -> None:
        call = self._channel.unary_unary(
            f"/distributed_input.v1.Dispatcher/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(dispatcher_pb2, response).FromString,
        )
        call(request, metadata=self._metadata, timeout=20, wait_for_ready=True)

    def stop(self) -> None:
        """Stop sending heartbeats."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(30)
        self._channel.close()


@contextmanager
def run_dispatcher(
    port: int, token: str, folder: Path, *, reading: bool = True
) -> Iterator[FakeHeartbeats]:
    """Run a dispatcher with simulated heartbeats. reading: whether to start them at once."""
    file = folder / "token"
    file.write_text(token)
    command = [sys.executable, "-m", "distributed_input.dispatcher", "--token-file", str(file)]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"]) as process:
        try:
            heartbeats = FakeHeartbeats(port, token)
            if reading:
                heartbeats.start()
            yield heartbeats
            heartbeats.stop()
        finally:
            process.terminate()
