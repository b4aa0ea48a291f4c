"""A dispatcher with an image of its user sends anything: only its own input is affected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from distributed_input.api.proto.dispatcher_pb2 import StatusResponse, WorkerInfo
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.processes import eventually, manifest
from testing.operator.resource_usage import memory_mib
from testing.operator.webhooks import free_port

_ENTRIES = 100_000
_MAX_GROWTH_MIB = 64
_LONG = 150.0


@contextmanager
def hostile_dispatcher(port: int) -> Iterator[Callable[[], int]]:
    """Serve a status with 100,000 workers. Return a function that returns the number of calls."""
    calls = 0
    workers = [WorkerInfo(worker_id=str(i), address=f"h{i}:1") for i in range(_ENTRIES)]
    answer = StatusResponse(workers=workers).SerializeToString()

    def status(_: bytes, context: Any) -> bytes:
        nonlocal calls
        calls += 1
        return answer

    method: Any = grpc.unary_unary_rpc_method_handler(status)
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        handler = grpc.method_handlers_generic_handler(
            "distributed_input.v1.Dispatcher", {"Status": method}
        )
        server.add_generic_rpc_handlers((handler,))
        server.add_insecure_port(f"127.0.0.1:{port}")
        server.start()
        try:
            yield lambda: calls
        finally:
            server.stop(0).wait()


@pytest.mark.timeout(600)
def test_a_status_with_100000_workers_affects_only_its_input(cluster, operator, tmp_path):
    ports = {name: free_port() for name in ("good", "bad")}
    for name, port in ports.items():
        cluster.create(manifest(name, dispatcher={"port": port}))

    def live(name: str) -> dict[str, Any]:
        cluster.simulate_kubelet(name, "dispatcher", "127.0.0.1")
        cluster.simulate_kubelet(name)
        return cluster.get("DistributedInput", name)["status"].get("live", {})

    with run_dispatcher(ports["good"], token_of(cluster, "good"), tmp_path):
        eventually(lambda: live("good").get("consumers") == 1, _LONG)
        before = memory_mib(operator.process.pid, "VmHWM")
        with hostile_dispatcher(ports["bad"]) as calls:
            eventually(lambda: not live("bad") and calls() >= 2, _LONG)
            found = eventually(lambda: cluster.condition("bad", "Unmeasured"))
        growth = memory_mib(operator.process.pid, "VmHWM") - before
        print(f"operator: {before} MiB, {growth} MiB more after {_ENTRIES} workers in one status")
        assert (found["status"], found["reason"]) == ("True", "StatusUnusable")
        assert "more than 10000 workers" in found["message"]
        assert growth < _MAX_GROWTH_MIB
        # The input works as before, and the operator carries out changes of its spec.
        cluster.patch("DistributedInput", "bad", {"spec": {"workers": {"replicas": 2}}})
        eventually(lambda: len(cluster.pods("bad")) == 2)
        assert live("good")["consumers"] == 1
        assert not cluster.condition("good", "Unmeasured")
    assert operator.process.poll() is None
    for name in ports:
        cluster.delete("DistributedInput", name)
