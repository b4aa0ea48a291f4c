"""Asks a dispatcher for its Status without waiting on the event loop's thread."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import grpc

from distributed_input.api.proto import dispatcher_pb2
from distributed_input.runner.display.stats import Consumer, Status, Worker
from distributed_input.runtime import serving, statuses, stubs
from distributed_input.runtime.credentials import Credentials

_SERVICE = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]


class Dispatcher:
    """One dispatcher, asked over one channel."""

    def __init__(self, address: str, credentials: Credentials) -> None:
        self.address = address
        self._channel = serving.open_channel(address, credentials)
        self._ask: Any = stubs.Stub(self._channel, _SERVICE).Status

    def status(self, timeout: float) -> Status:
        """Ask, and wait at most `timeout` seconds. Raises what `statuses` makes of a failure."""
        try:
            response = self._ask(
                dispatcher_pb2.StatusRequest(), timeout=timeout, wait_for_ready=True
            )
        except grpc.RpcError as error:
            raise statuses.from_rpc_error(
                error, f"asking the dispatcher at {self.address}"
            ) from error
        return from_message(response)

    async def status_or_none(self, timeout: float, *, patient: bool = False) -> Status | None:
        """As `status`, for the event loop; None where no answer came.

        `patient`: a dispatcher that cannot be reached may come back within the timeout.
        """
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        call = self._ask.future(
            dispatcher_pb2.StatusRequest(), timeout=timeout, wait_for_ready=patient
        )

        def wake(_: object) -> None:  # on a thread of grpc's, perhaps after the loop's end
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(answered.set)

        call.add_done_callback(wake)
        try:
            await answered.wait()
            return from_message(call.result())
        except (grpc.RpcError, grpc.FutureCancelledError):
            return None
        finally:
            call.cancel()

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def from_message(response: Any) -> Status:
    """The values of a StatusResponse."""
    return Status(
        consumers=tuple(_consumer(info.last) for info in response.consumers),
        workers=tuple(
            Worker(
                worker_id=info.worker_id,
                address=info.address,
                rows=info.rows,
                busy=info.busy_seconds,
                streams=info.open_streams,
                draining=info.draining,
                node=info.node,
            )
            for info in response.workers
        ),
        jobs=tuple(job.name for job in response.jobs),
    )


def _consumer(last: Any) -> Consumer:
    return Consumer(
        job=last.job,
        index=last.index,
        incarnation=last.incarnation,
        epoch=last.epoch,
        rows=last.rows,
        batches=last.batches,
        wait=last.wait_seconds,
        wall=last.wall_seconds,
        buffer=last.buffer_fill,
        mismatches=last.replay_mismatches,
        finished=last.finished,
        useful_workers=last.useful_workers,
        waiting_for=last.waiting_for,
    )
