"""One gRPC server that plays the dispatchers of many inputs: python -m ... --listen 0.0.0.0:7070.

Pods have different loopback addresses, so the operator sees different dispatchers. Each input has
trainers and workers whose rates change slowly, at its own time. The method `Counts` of the service
`testing.Readers` returns how often which dispatcher was asked, as JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio

from distributed_input.api.proto.dispatcher_pb2 import (
    ConsumerHeartbeatRequest,
    ConsumerInfo,
    StatusResponse,
    WorkerInfo,
)

_TRAINERS, _WORKERS = 2, 4
_ROWS_PER_SECOND = 5_000.0
_CHANGE, _PERIOD = 0.3, 300.0
"""The rates change by this share, in this many seconds."""
_START_SECONDS = 30.0


@dataclass(frozen=True)
class Counts:
    """Requests since the start of the server."""

    looks: int
    channels: int
    """Connections that sent a request."""
    inputs: int
    """Inputs that were asked."""


def status(seconds: float, phase: float) -> StatusResponse:
    """Return a dispatcher's answer, `seconds` after all its processes started."""
    turn = 2 * math.pi / _PERIOD
    wave = (math.cos(phase) - math.cos(turn * seconds + phase)) / turn
    rows = _ROWS_PER_SECOND * (seconds + _CHANGE * wave)
    trainers = [
        ConsumerHeartbeatRequest(
            job="train",
            index=index,
            count=_TRAINERS,
            incarnation="1",
            epoch=1,
            rows=int(rows / _TRAINERS),
            wait_seconds=0.01 * seconds,
            wall_seconds=seconds,
            batches=int(rows / _TRAINERS / 64),
            useful_workers=2 * _WORKERS,
        )
        for index in range(_TRAINERS)
    ]
    workers = [
        WorkerInfo(
            worker_id=f"w{index}",
            address=f"10.0.0.{index}:7071",
            open_streams=4,
            rows=int(rows / _WORKERS),
            busy_seconds=0.8 * seconds,
            parallelism=1,
        )
        for index in range(_WORKERS)
    ]
    consumers = [ConsumerInfo(last=one) for one in trainers]
    return StatusResponse(dispatcher_id="d", workers=workers, consumers=consumers)


class _Dispatchers:
    def __init__(self) -> None:
        self._looks = 0
        self._peers: set[str] = set()
        self._tokens: set[str] = set()
        self._started = time.monotonic()

    async def status(self, _: bytes, context: Any) -> bytes:
        token = dict(context.invocation_metadata()).get("authorization", "")
        self._looks += 1
        self._peers.add(context.peer())
        self._tokens.add(token)
        seconds = time.monotonic() - self._started + _PERIOD
        return status(seconds, hash(token) % 628 / 100).SerializeToString()

    async def counts(self, _: bytes, context: Any) -> bytes:
        return json.dumps([self._looks, len(self._peers), len(self._tokens)]).encode()


async def _serve(address: str) -> None:
    dispatchers = _Dispatchers()
    server = grpc.aio.server()
    for service, name, method in (
        ("distributed_input.v1.Dispatcher", "Status", dispatchers.status),
        ("testing.Readers", "Counts", dispatchers.counts),
    ):
        handler: Any = grpc.unary_unary_rpc_method_handler(method)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(service, {name: handler}),)
        )
    server.add_insecure_port(address)
    await server.start()
    await server.wait_for_termination()


class Dispatchers:
    """The running server."""

    def __init__(self, port: int, pid: int) -> None:
        self.pid = pid
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self._counts: Any = self._channel.unary_unary("/testing.Readers/Counts")

    def counts(self) -> Counts:
        """Return the requests until now."""
        return Counts(*json.loads(self._counts(b"", timeout=_START_SECONDS, wait_for_ready=True)))

    def close(self) -> None:
        """Close the connection to the server."""
        self._channel.close()


@contextmanager
def run_dispatchers(port: int) -> Iterator[Dispatchers]:
    """Run the server on all loopback addresses, in its own process."""
    command = [sys.executable, "-m", "testing.operator.readers.dispatchers"]
    with subprocess.Popen([*command, "--listen", f"0.0.0.0:{port}"]) as process:
        try:
            dispatchers = Dispatchers(port, process.pid)
            dispatchers.counts()
            yield dispatchers
            dispatchers.close()
        finally:
            process.terminate()


def main() -> None:
    """Serve until terminated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--listen", required=True, metavar="HOST:PORT")
    asyncio.run(_serve(parser.parse_args().listen))


if __name__ == "__main__":
    main()
