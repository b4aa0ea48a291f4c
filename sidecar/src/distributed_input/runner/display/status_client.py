"""A client of a dispatcher's Status call, for threads and for the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import Any

import grpc
import psutil

from distributed_input.api.errors import UnavailableError
from distributed_input.api.names import DISPATCHER_PORT
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.stalls import KILLED, failure_text, stall_text
from distributed_input.link import serving, statuses, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.runner.display.stats import (
    ConsumerSample,
    HostCpus,
    StatusSample,
    WorkerSample,
)

_SERVICE = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]


class StatusClient:
    """A channel to one dispatcher.

    Args:
        address: host:port.
        credentials: of its input.
        is_local: all processes of the input run on this machine.
    """

    def __init__(self, address: str, credentials: Credentials, is_local: bool = False) -> None:
        self.address = address
        self._is_local = is_local
        self._channel = serving.open_channel(address, credentials)
        self._status: Any = stubs.Stub(self._channel, _SERVICE).Status

    def status(self, timeout: float) -> StatusSample:
        """Request the status, and wait at most `timeout` seconds.

        Raises:
            UnavailableError: the dispatcher did not respond in time.
            DistributedInputError: the call failed; see `statuses.from_rpc_error`.
        """
        try:
            response = self._status(
                dispatcher_pb2.StatusRequest(), timeout=timeout, wait_for_ready=True
            )
        except grpc.RpcError as error:
            if isinstance(error, grpc.Call) and error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise UnavailableError(
                    f"the dispatcher at {self.address} did not respond within {timeout:g} s. Check "
                    "that it is running, and that this machine reaches its address. In a cluster, "
                    "forward the port of its Service first: kubectl port-forward "
                    f"service/NAME-dispatcher {DISPATCHER_PORT}"
                ) from error
            raise statuses.from_rpc_error(
                error, f"requesting the status of the dispatcher at {self.address}"
            ) from error
        sample = from_message(response)
        return replace(sample, host=host_cpus()) if self._is_local else sample

    async def status_or_none(
        self, timeout: float, *, wait_for_ready: bool = False
    ) -> StatusSample | None:
        """Request the status on the event loop; return None if the call fails.

        With `wait_for_ready`, an unreachable dispatcher may become reachable within the timeout.
        """
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        call = self._status.future(
            dispatcher_pb2.StatusRequest(), timeout=timeout, wait_for_ready=wait_for_ready
        )

        def wake(_: object) -> None:  # on a thread of gRPC, perhaps after the loop is closed
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


def host_cpus() -> HostCpus | None:
    """Return the counters of this machine. None: it has none for each CPU that a process uses."""
    try:
        usable, every = set(psutil.Process().cpu_affinity()), psutil.cpu_times(percpu=True)
        if max(usable) >= len(every):  # some CPUs are offline, so places are not numbers
            return None
        times = [one for i, one in enumerate(every) if i in usable]
    except (AttributeError, OSError, psutil.Error):  # not Linux, or a sandbox
        return None
    # Guest time, behind the first eight counters, is also user time.
    total = sum(sum(one[:8]) for one in times)
    return HostCpus(total - sum(one.idle + one.iowait for one in times), total)


def busy_share(seconds: float) -> float:
    """Wait some seconds, and return the share of the CPUs that was in use; 0 if it is unknown."""
    before = host_cpus()
    time.sleep(seconds)
    after = host_cpus()
    return after.busy_since(before) if before and after else 0.0


def from_message(response: Any) -> StatusSample:
    """Return the values of a StatusResponse."""
    return StatusSample(
        consumers=tuple(_consumer(info.last) for info in response.consumers),
        workers=tuple(
            WorkerSample(
                worker_id=info.worker_id,
                address=info.address,
                rows=info.rows,
                busy=info.busy_seconds,
                streams=info.open_streams,
                draining=info.draining,
                node=info.node,
                parallelism=info.parallelism,
                permit_seconds=info.permit_seconds,
                cpu=info.cpu_seconds,
                capacity=info.capacity,
                stalled=tuple(stall_text(one) for one in info.stalled if one.crash != KILLED),
                failure=failure_text(info.failure) if info.HasField("failure") else "",
            )
            for info in response.workers
        ),
        jobs=tuple(job.name for job in response.jobs),
        amplification={
            job.name: job.read_amplification for job in response.jobs if job.read_amplification > 1
        },
        split_bytes={job.name: job.split_bytes for job in response.jobs if job.split_bytes},
        whole=tuple(job.name for job in response.jobs if not job.global_batch_size),
        warnings={job.name: tuple(job.warnings) for job in response.jobs if job.warnings},
    )


def _consumer(last: Any) -> ConsumerSample:
    # A sidecar counts from its own start, and a trainer that reports its counts from the trainer's.
    counts = last.received if last.HasField("received") else last
    return ConsumerSample(
        job=last.job,
        index=last.index,
        incarnation=last.incarnation,
        trainer=last.received.trainer,
        epoch=last.epoch,
        rows=counts.rows,
        batches=counts.batches,
        wait=counts.wait_seconds,
        wall=counts.wall_seconds,
        buffer=last.buffer_fill,
        mismatches=last.replay_mismatches,
        finished=last.finished,
        useful_workers=last.useful_workers,
        useful_limit=last.useful_limit,
        count=last.count,
        no_trainer=last.no_trainer,
        pauses=last.pauses,
        waiting_for=last.waiting_for,
    )
