"""Autoscaling from end to end: a real dispatcher, told of trainers, and a real API server."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import pytest

from distributed_input.proto import dispatcher_pb2
from tests.operator.running import eventually, manifest
from tests.unit.distributed_input.dispatcher.builders import consumer, job, worker

NAME = "scaled"
_LONG = 150.0
"""Rates are over 30 s."""


class Told:
    """Heartbeats of one trainer and one worker, every half second."""

    def __init__(self, port: int, token: str) -> None:
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.waits = 0.75
        """Share of its time that the trainer waits."""
        self._over = threading.Event()
        self._call(
            "RegisterJob", dispatcher_pb2.RegisterJobRequest(job=job()), "RegisterJobResponse"
        )
        self._thread = threading.Thread(target=self._tell)

    def begin(self) -> None:
        self._thread.start()

    def _tell(self) -> None:
        rows = wait = wall = 0.0
        while not self._over.wait(0.5):
            rows, wait, wall = rows + 50, wait + 0.5 * self.waits, wall + 0.5
            beat = consumer(
                count=1,
                useful_workers=16,
                epoch=2,
                rows=int(rows),
                wait_seconds=wait,
                wall_seconds=wall,
            )
            self._call("ConsumerHeartbeat", beat, "ConsumerHeartbeatResponse")
            made = worker(rows=int(rows), busy_seconds=wall)
            self._call("WorkerHeartbeat", made, "WorkerHeartbeatResponse")

    def _call(self, method: str, request, response: str) -> None:
        call = self._channel.unary_unary(
            f"/distributed_input.v1.Dispatcher/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=getattr(dispatcher_pb2, response).FromString,
        )
        call(request, metadata=self._metadata, timeout=20, wait_for_ready=True)

    def end(self) -> None:
        self._over.set()
        self._thread.join(30)
        self._channel.close()


@contextmanager
def dispatcher(port: int, token: str, folder, *, reading: bool = True) -> Iterator[Told]:
    file = folder / "token"
    file.write_text(token)
    command = [sys.executable, "-m", "distributed_input.dispatcher", "--token-file", str(file)]
    with subprocess.Popen([*command, "--listen", f"127.0.0.1:{port}"]) as process:
        try:
            told = Told(port, token)
            if reading:
                told.begin()
            yield told
            told.end()
        finally:
            process.terminate()


@pytest.mark.timeout(600)
def test_workers_follow_what_the_trainers_would_take(cluster, operator, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    scaling = {"minReplicas": 1, "maxReplicas": 6, "stabilizationWindowSeconds": 5}
    workers = {"autoscaling": scaling}
    cluster.create(manifest(NAME, workers=workers, dispatcher={"port": port}))
    secret = eventually(lambda: cluster.get("Secret", f"{NAME}-distributed-input"))
    token = base64.b64decode(secret["data"]["token"]).decode()

    def replicas() -> int:
        cluster.play_kubelet(NAME, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(NAME)
        return cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]

    with dispatcher(port, token, tmp_path) as told:
        # 100 rows a second in a quarter of the time are 400; a worker makes 100 while busy.
        eventually(lambda: replicas() == 4, _LONG)
        assert operator.metric("distributed_input_workers_recommended") == 4

        def live():
            return cluster.get("DistributedInput", NAME)["status"].get("live", {})

        eventually(lambda: live().get("stall") == "75%" and live(), _LONG)
        assert live()["rowsPerSecond"] == pytest.approx(100, rel=0.2)
        assert (live()["consumers"], live()["epoch"]) == (1, 2)
        before, started = (
            operator.metric("distributed_input_operator_writes_total"),
            time.monotonic(),
        )
        told.waits = 0.0
        # All that one worker can make: another stays, for measurements are not exact.
        eventually(lambda: replicas() == 2, _LONG)
        seconds, writes = time.monotonic() - started, operator.writes() - before
        print(f"{writes:g} writes in {seconds:.0f} s of changing rates and two workers less")
        marked = [p["metadata"].get("annotations", {}) for p in cluster.list("Pod")]
        costs = [one.get("controller.kubernetes.io/pod-deletion-cost") for one in marked]
        assert costs.count("-1000") <= 3
    cluster.delete("DistributedInput", NAME)


@pytest.mark.timeout(600)
def test_an_idle_input_has_no_workers_until_a_trainer_reads(cluster, operator, tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = "idle"
    scaling = {"minReplicas": 2, "maxReplicas": 6, "idleTTLSeconds": 1}
    cluster.create(manifest(name, workers={"autoscaling": scaling}, dispatcher={"port": port}))
    secret = eventually(lambda: cluster.get("Secret", f"{name}-distributed-input"))
    token = base64.b64decode(secret["data"]["token"]).decode()

    def replicas() -> int | None:
        cluster.play_kubelet(name, "dispatcher", "127.0.0.1")
        cluster.play_kubelet(name)
        found = cluster.get("Deployment", f"{name}-worker")
        return found and found["spec"]["replicas"]

    eventually(lambda: replicas() == 2)
    with dispatcher(port, token, tmp_path, reading=False) as told:
        eventually(lambda: replicas() == 0, _LONG)
        eventually(lambda: cluster.condition(name, "Ready")["reason"] == "Idle")
        assert cluster.condition(name, "Ready")["status"] == "True"
        told.begin()
        eventually(lambda: replicas() == 6, _LONG)
    cluster.delete("DistributedInput", name)
