"""A dispatcher whose status has 100,000 workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc

from distributed_input.api.proto.dispatcher_pb2 import StatusResponse, WorkerInfo

ENTRIES = 100_000


@contextmanager
def hostile_dispatcher(port: int) -> Iterator[Callable[[], int]]:
    """Serve a status with 100,000 workers. Return a function that returns the number of calls."""
    calls = 0
    workers = [WorkerInfo(worker_id=str(i), address=f"h{i}:1") for i in range(ENTRIES)]
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
