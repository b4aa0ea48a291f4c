"""A client of a dispatcher's Status call, and the CPUs of this machine."""

from __future__ import annotations

import time
from typing import Any, TypeVar

import grpc
import psutil
from google.protobuf.message import Message

from distributed_input.api.errors import UnavailableError
from distributed_input.api.names import DISPATCHER_PORT
from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link import serving, statuses, stubs
from distributed_input.link.credentials import Credentials
from distributed_input.runner.display.stats import Consumer, HostCpus, StatusSample

_SERVICE = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]


class StatusClient:
    """A channel to one dispatcher. `is_local`: all processes of the input run on this machine."""

    def __init__(self, address: str, credentials: Credentials, is_local: bool = False) -> None:
        self.address = address
        self._is_local = is_local
        self._channel = serving.open_channel(address, credentials)
        self._status: Any = stubs.Stub(self._channel, _SERVICE).Status

    def status(
        self, timeout: float, *, wait_for_ready: bool = True, max_skipped: int = 0
    ) -> StatusSample:
        """Request the status, with the last skipped records. Wait at most `timeout` seconds.

        With `wait_for_ready`, an unreachable dispatcher may become reachable within the timeout.

        Raises:
            UnavailableError: the dispatcher did not respond in time.
            DistributedInputError: the call failed; see `statuses.from_rpc_error`.
        """
        try:
            response = self._status(
                dispatcher_pb2.StatusRequest(max_skipped=max_skipped),
                timeout=timeout,
                wait_for_ready=wait_for_ready,
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
        return StatusSample(
            [_counted_by_trainer(_copy(one.last)) for one in response.consumers],
            list(map(_copy, response.workers)),
            response.jobs,
            response.skipped,
            response.skipped_records,
            host_cpus() if self._is_local else None,
        )

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


_Message = TypeVar("_Message", bound=Message)


def _copy(part: _Message) -> _Message:
    """Return a copy of a part of a response, which would keep the memory of the whole response."""
    copy = type(part)()
    copy.CopyFrom(part)
    return copy


def _counted_by_trainer(last: Consumer) -> Consumer:
    """Replace the sidecar's counts, which begin at its own start, if the trainer reports its."""
    if last.HasField("received"):
        for name in ("rows", "batches", "wait_seconds", "wall_seconds"):
            setattr(last, name, getattr(last.received, name))
    return last
