"""The inputs that a sidecar serves, and those of their jobs that trainers have opened."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence

from distributed_input.api.errors import ConfigError
from distributed_input.api.sidecar_memory import PROCESS_BYTES
from distributed_input.link.errors import Cancelled
from distributed_input.order.jobs import check_name
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import JobSession
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.reader_group import ReaderGroup

_MAX_JOBS = 8  # of one input at once, because each has its own buffer
_ROOM_SECONDS = 2.0  # limit of the wait for a job that is being closed
_ROOM_POLL_SECONDS = 0.02
_LEAVE_SECONDS = 5.0  # limit of the wait for closed jobs when the sidecar stops


class InputRegistry:
    """The jobs of all inputs. An input's own job exists from the start, others once opened.

    Each rank of the trainer has jobs of its own, with their own sessions, slots and link.

    Args:
        create: function that creates a job from the names of its input and itself, and the rank.
        names: names of the inputs.
        memory_bytes: memory limit of the sidecar. None: no limit.
        ranks: ranks of the trainer.

    Attributes:
        names: names of the inputs, sorted.
        ranks: ranks of the trainer.
    """

    def __init__(
        self,
        create: Callable[[str, str, int], JobInput],
        names: Sequence[str],
        memory_bytes: int | None = None,
        ranks: TrainerRanks = TrainerRanks(),  # noqa: B008 - it is frozen
    ) -> None:
        self.names = sorted(names)
        self._create = create
        self._memory_bytes = memory_bytes
        self._lock = threading.Condition(threading.RLock())
        self.ranks = ranks
        self._jobs = {
            (name, "", rank): create(name, "", rank) for name in names for rank in range(ranks.each)
        }
        self._closing = threading.Event()
        self._leaving: list[threading.Thread] = []  # of closed jobs

    def start(self) -> None:
        """Start the links to the dispatchers."""
        for job in self.all():
            job.link.start()

    def all(self) -> list[JobInput]:
        """Return the jobs that exist now."""
        with self._lock:
            return list(self._jobs.values())

    def attach(self, name: str, job: str, session: JobSession, rank: int = 0) -> JobInput:
        """Make a session the reader of a job, and return the job; see `find`.

        Raises:
            Cancelled: the sidecar stops.
        """
        with self._lock:  # `release` must not close the job before the session reads it
            found = self._find_open(name, job, rank)
            found.sessions.attach(session)
            return found

    def join(
        self, name: str, job: str, session: JobSession, rank: int, readers: int
    ) -> ReaderGroup:
        """Return the group of a number of readers that a session may join; see `attach`."""
        with self._lock:
            found = self._find_open(name, job, rank)
            group = found.sessions.current
            if isinstance(group, ReaderGroup):
                if group.is_over:  # a session that connected before its last one may still join
                    found.sessions.leave(group, group.facts())
                elif group.readers == readers:
                    return group
            group = ReaderGroup(found, readers, session.number)
            found.sessions.attach(group)
            return group

    def find(self, name: str, job: str, rank: int = 0) -> JobInput:
        """Return a job of an input. Create it if it does not exist yet.

        Args:
            name: name of the input, or "" for the only one.
            job: name of the job, or "" for the input's own job.
            rank: rank in this trainer of the process that reads it.

        Raises:
            ConfigError: there is no such input, the job's name is invalid, or there is no room for
                another job.
        """
        name = name or self._only()
        if name not in self.names:
            known = ", ".join(self.names)
            raise ConfigError(f"this sidecar serves no input {name!r}; it serves {known}")
        deadline = time.monotonic() + _ROOM_SECONDS
        with self._lock:
            while (found := self._jobs.get((name, job, rank))) is None:
                check_name(job)
                try:
                    self._make_room(name, rank)
                except ConfigError:
                    # A job that the trainer has just closed is released by another thread.
                    if time.monotonic() > deadline:
                        raise
                    self._lock.wait(_ROOM_POLL_SECONDS)
                    continue
                found = self._jobs[name, job, rank] = self._create(name, job, rank)
                found.link.start()
            return found

    def _find_open(self, name: str, job: str, rank: int) -> JobInput:
        """Return a job that `close` has not closed, and will close with its session."""
        found = self.find(name, job, rank)
        if self._closing.is_set():
            raise Cancelled
        return found

    def release(self, job: JobInput) -> None:
        """Close a job that its trainer has closed, unless another one reads it.

        An input's own job stays.

        Return once the buffer is released. A thread reports the end to the dispatcher.
        """
        with self._lock:
            key = job.name, job.job, job.rank
            if not job.job or self._jobs.get(key) is not job or not job.sessions.is_idle:
                return
            del self._jobs[key]
            job.slots.retire()
            thread = threading.Thread(
                target=job.leave, args=(self._closing,), name="leave", daemon=True
            )
            thread.start()
            self._leaving = [one for one in self._leaving if one.is_alive()] + [thread]

    def _only(self) -> str:
        if len(self.names) == 1:
            return self.names[0]
        known = ", ".join(self.names)
        raise ConfigError(f"this sidecar serves {known}: connect() needs the name of one")

    def _make_room(self, name: str, rank: int) -> None:
        """Close an idle job of a rank if it has too many of an input.

        An idle job is kept for as long as possible, because other consumers may need its facts.
        """
        own = self._jobs[name, "", rank].slots
        buffers = sum(job.slots.size for job in self._jobs.values()) + own.size
        if buffers > shutil.disk_usage(own.path.parent).total:
            raise ConfigError(
                f"no room for another job of input {name}: the volume that the trainer shares with "
                "its sidecar has room for the buffers of two jobs. Lower spec.sidecar.buffer"
            )
        if self._memory_bytes is not None and buffers + PROCESS_BYTES > self._memory_bytes:
            raise ConfigError(
                f"no room for another job of input {name}: its buffer counts to the memory of the "
                f"sidecar, whose limit is {self._memory_bytes >> 20} MiB. Raise "
                "spec.sidecar.resources.limits.memory, or lower spec.sidecar.buffer"
            )
        others = [key for key in self._jobs if key[0] == name and key[1] and key[2] == rank]
        if len(others) < _MAX_JOBS - 1:
            return
        idle = [key for key in others if self._jobs[key].sessions.is_idle]
        if not idle:
            raise ConfigError(
                f"{_MAX_JOBS} jobs of input {name} are being read through one sidecar. Close one "
                "before you open another"
            )
        self._jobs.pop(idle[0]).close()

    def close(self) -> None:
        """Close all jobs. Their trainers get a retryable error."""
        with self._lock:
            self._closing.set()
        for job in self.all():
            job.close()
        with self._lock:
            leaving = self._leaving
        deadline = time.monotonic() + _LEAVE_SECONDS
        for thread in leaving:
            thread.join(max(0.0, deadline - time.monotonic()))
