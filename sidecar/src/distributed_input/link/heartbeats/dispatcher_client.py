"""The calls of the dispatcher's service that a sidecar makes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import grpc

from distributed_input.api.errors import DistributedInputError, RetryableError, UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link import statuses
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import open_channel
from distributed_input.link.stubs import Stub

CALL_SECONDS = 3.0
_DATASET_SECONDS = 60.0
_CHUNK_BYTES = 1 << 20
_RETRY_SECONDS = 0.1


class DispatcherClient:
    """A channel to one dispatcher.

    Attributes:
        address: host:port of the dispatcher.
    """

    def __init__(self, address: str, credentials: Credentials, stopping: threading.Event) -> None:
        self.address = address
        self._stopping = stopping
        self._channel = open_channel(address, credentials)
        service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
        self._stub = Stub(self._channel, service)

    def heartbeat(
        self, request: dispatcher_pb2.ConsumerHeartbeatRequest, timeout: float
    ) -> dispatcher_pb2.ConsumerHeartbeatResponse:
        """Send one heartbeat. Raise grpc.RpcError if it fails."""
        response: dispatcher_pb2.ConsumerHeartbeatResponse = self._stub.ConsumerHeartbeat(
            request, timeout=timeout
        )
        return response

    def register_job(
        self,
        job: types_pb2.Job,
        dataset: bytes,
        incarnation: str,
        deadline: float = float("inf"),
    ) -> types_pb2.Job:
        """Register a job, after its dataset if there is one. Raise grpc.RpcError if it fails.

        Returns:
            The job as the dispatcher has it.
        """
        self.upload(job.dataset_id, dataset, deadline)
        request = dispatcher_pb2.RegisterJobRequest(job=job, incarnation=incarnation)
        registered: types_pb2.Job = self._stub.RegisterJob(request, timeout=CALL_SECONDS).job
        return registered

    def upload(self, dataset_id: str, dataset: bytes, deadline: float = float("inf")) -> None:
        """Send a dataset if there is one. Raise grpc.RpcError if that fails."""
        if dataset:
            left = max(CALL_SECONDS, deadline - time.monotonic())
            chunks = _chunks(dataset_id, dataset)
            self._stub.PutDataset(chunks, timeout=min(_DATASET_SECONDS, left))

    def get_job(self, name: str, other_than: str = "") -> types_pb2.Job:
        """Return a registered job. Raise grpc.RpcError if there is none."""
        request = dispatcher_pb2.GetJobRequest(name=name, other_than=other_than)
        job: types_pb2.Job = self._stub.GetJob(request, timeout=CALL_SECONDS).job
        return job

    def error_of(self, error: grpc.RpcError, action: str) -> DistributedInputError:
        """Return the error of a failed call."""
        return statuses.from_rpc_error(error, f"dispatcher {self.address}: {action}")

    def retry(
        self, call: Callable[[], types_pb2.Job], deadline: float, action: str
    ) -> types_pb2.Job:
        """Make a call until it succeeds.

        Args:
            call: call to make.
            deadline: monotonic time after which a failed call is not retried.
            action: what the call does, for messages.

        Raises:
            TerminalError: the call cannot succeed.
            UnavailableError: it did not succeed before the deadline, or the sidecar stops.
        """
        while True:
            try:
                return call()
            except grpc.RpcError as failed:
                error = self.error_of(failed, action)
                if not isinstance(error, RetryableError):
                    raise error from failed
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"{error} (gave up after spec.sidecar.timeoutSeconds)"
                    ) from failed
            if self._stopping.wait(_RETRY_SECONDS):
                raise UnavailableError("the sidecar is stopping")

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _chunks(dataset_id: str, data: bytes) -> Iterator[dispatcher_pb2.DatasetChunk]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield dispatcher_pb2.DatasetChunk(
            dataset_id=dataset_id if not start else "", data=data[start : start + _CHUNK_BYTES]
        )
