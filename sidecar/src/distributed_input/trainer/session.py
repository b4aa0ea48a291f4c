"""The connection life cycle of one consumer: connect, handshake, open the job, reconnect, close.

A session outlives its sidecar. When the channel ends, `connect` waits for the next sidecar process
in the same folder, and `open_job` opens the same job there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    ReplayWarning,
    UnavailableError,
    from_kind,
)
from distributed_input.api.files import DATASET_PREFIX
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.api.protocol import FAILURE_CHARACTERS, PROTOCOL, check_protocol, too_old
from distributed_input.link.trainer.trainer_end import Channel, SidecarDisconnected
from distributed_input.order import identity
from distributed_input.order.jobs import set_run
from distributed_input.order.share import loop_units
from distributed_input.trainer import launchers
from distributed_input.trainer.epoch_state import without_traceback
from distributed_input.trainer.progress import WaitMeter, totals_of

_CONNECT_SECONDS = 5.0
_log = logging.getLogger(__name__)  # without a handler, Python prints warnings on stderr
_SLOW_START_SECONDS = 15.0
_NOTICE_SECONDS = 5.0  # after which a user is told what the program waits for
_REMEDY = (
    "start the trainer with `distributed-input run FILE -- COMMAND`, call "
    "distributed_input.local(FILE) first, as in a notebook, or label its pod "
    'distributed-input.dev/inject: "true"'
)
_RETRY_SECONDS = 0.05
_POLL_SECONDS = 2.0
_CLOSED_SECONDS = 0.5  # until the next attempt after a sidecar that closed the connection
_GRACE_SECONDS = 30.0  # beyond the sidecar's own deadline, whose error message has the details


class SidecarSession:
    """The current channel to a sidecar, and the handshake that every new sidecar gets.

    The consumer serializes calls. Only `start` and `report` may come from another thread.

    Attributes:
        job: the name of the job; empty: the input's own job.
        lineage: whether each unit names its rows.
        timeout: seconds to wait for a sidecar.
        channel: the current connection.
        welcome: the sidecar's answer to the handshake.
        opened: the sidecar's answer to the opened job.
        generation: of the epoch that was started last; 0 before the first.
        meter: the waits of this connection.
        error: the error of a closed session; None while it is open.
    """

    channel: Channel

    def __init__(
        self,
        folder: Path,
        input_name: str,
        timeout: float,
        job: str = "",
        rank: trainer_pb2.Rank | None = None,
        lineage: bool = False,
    ) -> None:
        self._folder = folder
        self._input_name = input_name
        self._rank = rank or launchers.rank_of_process()
        self.job = job
        self.lineage = lineage
        self.timeout = timeout
        self.welcome = trainer_pb2.Welcome()
        self.opened = trainer_pb2.Opened()
        self.generation = 0
        self.meter = WaitMeter(totals_of(folder, input_name, job, self.process))
        self.error: DistributedInputError | None = None
        self._open_request: trainer_pb2.Open | None = None
        self._dataset = b""
        self._has_connected = False
        self._is_joined = False  # a sidecar has answered `_open_request`
        self._is_slow = False  # the first batch takes long
        self._opening_since: float | None = None  # if the job is being opened now
        self._opened_channel: Channel | None = None  # the channel on which the job is open
        self._logged: set[str] = set()  # warnings
        self._warned_generation = 0  # the newest epoch whose rows differed

    @property
    def process(self) -> int:
        """The rank of this process among those that connect to the sidecar; 0 if it has none."""
        return launchers.process_of(self._rank)

    def connect(self, timeout: float) -> None:
        """Connect to a sidecar and exchange Hello and Welcome.

        Raises:
            UnavailableError: no sidecar answered in time.
            DistributedInputError: the sidecar rejected the connection, or the session is closed.
        """
        began = time.monotonic()
        deadline, has_warned = began + timeout, False
        while True:
            self.check_open()
            try:
                self._handshake(deadline)
                return
            except (UnavailableError, SidecarDisconnected, FileNotFoundError) as error:
                now = time.monotonic()
                self._check_folder(now - began, timeout)
                if now > deadline:
                    raise UnavailableError(
                        f"no sidecar at {self._folder} for {timeout:.0f} s ({error}): {_REMEDY}"
                    ) from error
                if now - began > _NOTICE_SECONDS and not has_warned:
                    has_warned = True
                    _log.warning(
                        "waiting for a sidecar at %s, for %.0f s at most. If none starts: %s",
                        self._folder, timeout, _REMEDY,
                    )  # fmt: skip
                time.sleep(_RETRY_SECONDS)

    def _check_folder(self, waited: float, timeout: float) -> None:
        """Raise UnavailableError if no sidecar can come any more: its run has removed the folder.

        A sidecar that starts beside the trainer may create the folder. It has a quarter of the
        timeout, so that a user can make it longer, and who forgot the sidecar soon gets the error.
        """
        if self._folder.is_dir():
            return
        if self._has_connected:
            raise UnavailableError(
                f"the run that served input {self.welcome.input} has ended: its folder "
                f"{self._folder} is gone. Start the run again, in a notebook with "
                "distributed_input.local(FILE), and then call connect() again. If it ended by "
                "itself, the method close() of what local() returned raises the cause"
            ) from None
        if waited > timeout / 4:
            raise UnavailableError(
                f"no sidecar: folder {self._folder} does not exist: {_REMEDY}"
            ) from None

    def _handshake(self, deadline: float) -> None:
        channel = Channel(self._folder, _CONNECT_SECONDS)
        hello = trainer_pb2.Hello(
            protocol=PROTOCOL, input=self._input_name, job=self.job, rank=self._rank
        )
        channel.send(hello=hello)
        self.channel = channel
        self.meter.restart()
        # A `close` before this line could not shut down the new channel.
        self.check_open()
        welcome = self._answer(deadline).welcome
        check_protocol(welcome.protocol, "the sidecar")
        if (rank := self._rank) is not None:
            if rank.requested and not welcome.ranks:
                raise too_old(rank.source, "ranks")
            if rank.readers > 1 and not welcome.readers:
                raise too_old(rank.source, "meshes")
        channel.map_slots(welcome.slots_file, welcome.slots_bytes)
        self.welcome, self._has_connected = welcome, True
        if self.job and welcome.ranks <= 1 and (remedy := launchers.remedy(os.environ)):
            self._log_once(f"job {self.job} reads all rows, as each job does. {remedy}")

    def define_job(self, draft: types_pb2.Job, dataset: bytes, replicas: int) -> None:
        """Set the job that `open_job` opens, on this sidecar and on later ones."""
        request = trainer_pb2.Open(draft=draft, replicas=replicas, lineage=self.lineage)
        if dataset:
            request.dataset_id = hashlib.sha256(dataset).hexdigest()
            request.draft.dataset_id = request.dataset_id
        self._open_request, self._dataset = request, dataset
        self._is_joined = False

    def open_job(self) -> None:
        """Open the job on the current channel and wait for the answer.

        Raises:
            SidecarDisconnected: the channel ended.
            DistributedInputError: the sidecar rejected the job, or did not answer in time.
        """
        assert self._open_request is not None
        request = trainer_pb2.Open()
        request.CopyFrom(self._open_request)
        if self._is_joined:  # another sidecar continues the run
            set_run(request.draft, self.opened.job)
        if self._dataset:
            request.dataset_file = f"{DATASET_PREFIX}{uuid.uuid4().hex}"
            self.channel.write_file(request.dataset_file, self._dataset)
        self.channel.send(open=request)
        deadline, self._opening_since = self.answer_deadline(), time.monotonic()
        while (message := self._answer(deadline)).WhichOneof("message") != "opened":
            pass  # of what the connection read before
        if self.lineage and not message.opened.lineage:
            raise too_old("connect(lineage=True)", "lineage")
        self.opened, self._is_joined, self._opening_since = message.opened, True, None
        if self.opened.job.HasField("entry_point"):  # the export prints those of a dataset
            for warning in self.opened.job.warnings:
                self._log_once(warning)

    def _log_once(self, warning: str) -> None:
        if warning not in self._logged:
            self._logged.add(warning)
            _log.warning("input %s: %s", self.welcome.input, warning)

    def _answer(self, deadline: float) -> trainer_pb2.FromSidecar:
        """Return the next message as `receive`, but raise a failure."""
        message = self.receive(deadline)
        self.check_failure(message)
        return message

    def mark_open(self) -> None:
        """Let epochs start on the current channel."""
        self._opened_channel = self.channel

    @property
    def is_open(self) -> bool:
        """Whether epochs can start on the current channel."""
        return self._opened_channel is self.channel

    @property
    def units_per_step(self) -> int:
        """The number of units in one step of the job: what a position counts."""
        return max(1, self.opened.units_per_step)

    @property
    def replicas(self) -> int:
        """The number of units in one step of the loop: what one `get_next` returns."""
        request = self._open_request
        return loop_units(self.opened.job, request.replicas if request is not None else 1)

    def epoch_start(self, epoch: int) -> trainer_pb2.Position:
        """Return the position at the start of an epoch."""
        job = self.opened.job
        position = trainer_pb2.Position(
            job=job.name,
            epoch=epoch,
            consumers=max(1, self.welcome.consumers),
            consumer=self.welcome.consumer,
            partitions=job.partitions,
            global_batch_size=job.global_batch_size,
            seed=job.seed,
        )
        identity.stamp(position, job)
        return position

    # Messages.

    def start(self, epoch: trainer_pb2.StartEpoch) -> None:
        """Start an epoch, or record its generation for the sidecar that is being connected to."""
        self.generation = epoch.generation
        if self.is_open:
            try:
                self.channel.send(start=epoch)
            except SidecarDisconnected:
                # It may only have read nothing for a while. The epoch starts on a new connection.
                self._opened_channel = None

    def resume(self, epoch: trainer_pb2.StartEpoch) -> None:
        """Start a running epoch on a new sidecar, and let later epochs start there.

        Raises:
            SidecarDisconnected: the new channel ended as well.
        """
        self.generation = epoch.generation
        self.channel.send(start=epoch)
        self.mark_open()

    def reconnect_deadline(self) -> float:
        """Return the monotonic time at which to stop looking for another sidecar."""
        return time.monotonic() + max(self.timeout, self.welcome.timeout_seconds)

    def wait_for_next(self, deadline: float, error: SidecarDisconnected) -> None:
        """Wait before the next attempt, because a new sidecar has closed the connection as well.

        Raises:
            UnavailableError: the deadline has passed.
        """
        if time.monotonic() > deadline:
            raise UnavailableError(
                f"the sidecar at {self._folder} keeps closing the connection: see its log"
            ) from error
        time.sleep(_CLOSED_SECONDS)

    def answer_deadline(self) -> float:
        """Return the monotonic time at which a sidecar that sends nothing has failed."""
        return time.monotonic() + self.welcome.timeout_seconds + _GRACE_SECONDS

    def receive(
        self, deadline: float, requested: Callable[[], bool] = lambda: True
    ) -> trainer_pb2.FromSidecar:
        """Return the next message that is not about waiting. It may be a failure.

        The deadline moves when the sidecar reports what it waits for: it has its own deadline.

        Args:
            deadline: a monotonic time.
            requested: whether the loop waits for a unit, and does not work meanwhile.

        Raises:
            UnavailableError: no message arrived by the deadline.
            SidecarDisconnected: the channel ended.
        """
        seconds = deadline - time.monotonic()
        while True:
            message = self.channel.receive(_POLL_SECONDS)
            if message is None:
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"the sidecar at {self._folder} sent nothing in time: check whether it is "
                        "stopped or has no CPU time, and see its log"
                    )
                self.meter.continue_wait(requested=requested())
                if self.meter.wait_due:
                    self.channel.send(progress=self.meter.waiting(self.generation))
                continue
            self._warn_of_difference(message)
            self._log_slow_start(message)
            if message.WhichOneof("message") not in ("waiting", "difference"):
                return message
            deadline = time.monotonic() + seconds

    def _log_slow_start(self, message: trainer_pb2.FromSidecar) -> None:
        """Log what the first batch waits for, once."""
        began = self._opening_since
        waits = time.monotonic() - began if began else self.meter.seconds_before_first
        if message.HasField("waiting") and waits > _SLOW_START_SECONDS and not self._is_slow:
            self._is_slow = True
            _log.warning(
                "input %s: no batch after %.0f s: waiting for %s. `distributed-input explain` and "
                "`logs` have more",
                self.welcome.input, waits, message.waiting.what or "rows",
            )  # fmt: skip

    def check_failure(self, message: trainer_pb2.FromSidecar) -> None:
        """Raise the failure in a message, unless it belongs to an epoch that is not being read."""
        if not message.HasField("failure"):
            return
        failure = message.failure
        if failure.generation not in (0, self.generation):
            return
        # A variable would be a cycle with the traceback, whose frames may hold batches.
        raise launchers.with_remedy(
            from_kind(failure.kind, failure.message), os.environ, self.welcome
        )

    def _warn_of_difference(self, message: trainer_pb2.FromSidecar) -> None:
        """Warn once per epoch that a replay made other rows."""
        difference = message.difference
        if difference.generation > self._warned_generation:
            self._warned_generation = difference.generation
            warnings.warn(
                f"input {self.welcome.input}: {difference.message}. To stop instead, set "
                "spec.determinism: Strict",
                ReplayWarning,
                stacklevel=2,
            )

    def drain(self) -> Iterator[trainer_pb2.FromSidecar]:
        """Yield the messages that arrived before the channel ended."""
        for message in self.channel.drain():
            self._warn_of_difference(message)
            yield message

    def report(self, generation: int, units: int, failed: str = "") -> None:
        """Report delivered units of a generation, and an error with which the loop ends."""
        progress = self.meter.report(generation, units)
        progress.failed = failed[:FAILURE_CHARACTERS]
        try:
            self.channel.send(progress=progress)
        except SidecarDisconnected:
            pass

    # Closing.

    def check_open(self) -> None:
        """Raise the error with which the session was closed, if it was."""
        if self.error is not None:
            raise without_traceback(self.error)

    def disown(self) -> DistributedInputError:
        """In a fork of the trainer: close the session here only, and return its error."""
        self.error = self.error or ConfigError(
            f"input {self.welcome.input} was connected in process {self.channel.pid}, of which "
            f"process {os.getpid()} is a fork: both would take batches from one connection. "
            f"Iterate in process {self.channel.pid} (with PyTorch: DataLoader(..., "
            "num_workers=0)), or call connect() in the process that iterates"
        )
        self.channel.disown()
        return self.error
