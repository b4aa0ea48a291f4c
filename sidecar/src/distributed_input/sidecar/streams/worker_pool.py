"""The workers that a sidecar may open streams on.

A worker of the sidecar's own pod comes first: it uses CPUs that the trainer leaves idle, and its
rows do not cross the network. It gets a share of the streams (see `local_share`).
`order.splits.place` chooses the worker of every other split from the other workers. Every
consumer of every job of a dataset makes the same choice, so these workers produce a split once for
all of them.

This module is long because the membership is one state, with one lock.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import grpc

from distributed_input.api import identity
from distributed_input.api.errors import UnavailableError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.api.stalls import KILLED, crash_text, dataset_name, stall_text
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.blocks.reader import WorkerConnection
from distributed_input.link.credentials import Credentials
from distributed_input.link.errors import Cancelled
from distributed_input.link.reachability import ANSWER_SECONDS, host_answers
from distributed_input.link.serving import open_channel
from distributed_input.link.stubs import Stub
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.order.splits import place
from distributed_input.sidecar.streams.local_share import LocalShare, WorkerCounters

_DIRECT_RETRY_SECONDS = 60.0  # only gRPC is used for this time
_MOST_CRASHES = 2  # workers that one split may end
_MOST_KILLS = 3  # at one row: a kill may come from outside, and have hit the row by chance
_PROBE_SECONDS, _MOST_PROBE_SECONDS = 1.0, 60.0
"""Between two questions whether a worker's host answers: doubles while the worker sends nothing."""
_RETRY_SECONDS = 2.0  # a worker that failed is used again after this, or if no other is left


@dataclass
class _Member:
    info: dispatcher_pb2.WorkerInfo
    channel: grpc.Channel
    stub: Stub
    key: int
    may_transfer: bool
    certificates: CertificateFolder | None
    open_streams: int = 0
    failed_at: float = float("-inf")
    lost: bool = False
    unreachable: bool = False  # its host does not answer
    probing: bool = False
    probed_at: float = float("-inf")
    probe_seconds: float = _PROBE_SECONDS  # until it may be asked for again
    link: WorkerConnection | None = None
    direct: DirectTransfer | None = None  # the last one

    def open_link(self) -> WorkerConnection:
        """Return a link that works, as far as this process knows."""
        if self.link is None or self.link.is_broken:
            self.link = self._new_link()
        return self.link

    def _new_link(self) -> WorkerConnection:
        failed_at = self.direct.failed_at if self.direct is not None else float("-inf")
        if not self.may_transfer or time.monotonic() - failed_at < _DIRECT_RETRY_SECONDS:
            return WorkerConnection(self.stub, self.info.worker_id)
        self.direct = DirectTransfer(self.info.address, self.certificates)
        return WorkerConnection(self.stub, self.info.worker_id, self.direct)

    @property
    def is_local(self) -> bool:
        # The dispatcher does not report workers of other pods.
        return bool(self.info.pod)

    @property
    def cpus(self) -> int:
        return self.info.parallelism or 1  # 0: unknown


_DESCRIPTION = -1  # in place of a split's number
_Split = tuple[str, str, int, int]
"""A split: its first run, dataset, epoch and number. Of a description, a consumer's incarnation."""


def _key(crash: types_pb2.StalledSplit) -> _Split:
    split = _DESCRIPTION if crash.step else crash.split
    return crash.first_run, crash.dataset, crash.epoch, split


def _is_cause(crashes: Sequence[types_pb2.StalledSplit]) -> bool:
    """Return whether one split was the cause of these crashes, and not there by chance."""
    killed = Counter(one.row for one in crashes if one.crash == KILLED)
    others = len(crashes) - killed.total()
    return others >= _MOST_CRASHES or max(killed.values(), default=0) >= _MOST_KILLS


# All streams that are opened together have the same arguments.
_placed = functools.lru_cache(maxsize=64)(place)


def _worker_stub(channel: grpc.Channel) -> Stub:
    """Return a stub of the worker service. Blocks stay bytes, to be decoded without a copy."""
    service = worker_pb2.DESCRIPTOR.services_by_name["Worker"]
    return Stub(channel, service)


class WorkerPool:
    """The workers that the dispatcher last reported. Thread-safe.

    Args:
        credentials: credentials of the input.
        may_transfer: whether workers may send rows over direct connections.

    Attributes:
        lost_workers: number of workers that broke streams without draining.
        size: number of workers that take new streams.
        capacity: number of splits that those can compute at the same time.
    """

    def __init__(self, credentials: Credentials, may_transfer: bool = True) -> None:
        self.lost_workers = self.size = self.capacity = 0
        self._credentials, self._may_transfer = credentials, may_transfer
        self._members: dict[str, _Member] = {}
        self._local_share = 1.0
        self._reports = 0
        self._closed = False
        self._crashes: defaultdict[_Split, list[types_pb2.StalledSplit]] = defaultdict(list)
        self._buffers: list[int] = []
        self._delayed: list[tuple[float, int, Callable[[], None]]] = []
        self._timer: threading.Thread | None = None
        self._changed = threading.Condition()

    def update(self, infos: Iterable[dispatcher_pb2.WorkerInfo]) -> None:
        """Replace the membership. The channel of a worker that left is closed once unused."""
        present = {info.worker_id: info for info in infos}
        with self._changed:
            for worker_id in self._members.keys() - present.keys():
                member = self._members[worker_id]
                member.info.draining = True
                if not member.open_streams:
                    member.channel.close()
                    del self._members[worker_id]
        self.add(present.values())

    def add(self, infos: Iterable[dispatcher_pb2.WorkerInfo]) -> None:
        """Add workers, or replace the information about known ones."""
        with self._changed:
            for info in infos:
                known = self._members.get(info.worker_id)
                if known:
                    known.info = info
                    continue
                for one in info.stalled:
                    if one.crash:  # of the process before this worker
                        self._crashes[_key(one)].append(one)
                channel = open_channel(info.address, self._credentials, server=identity.WORKER)
                certificates = self._credentials.certificates
                key = mix(*info.worker_id.encode())
                stub = _worker_stub(channel)
                self._members[info.worker_id] = _Member(
                    info, channel, stub, key, self._may_transfer, certificates
                )
            usable = [m.info for m in self._members.values() if not m.info.draining]
            self.size = len(usable)
            self.capacity = sum(max(1, info.capacity) for info in usable)
            buffers = [info.buffer_bytes for info in usable]
            self._buffers = buffers if all(buffers) else []
            self._reports += 1
            self._changed.notify_all()

    def room(self, split_bytes: int) -> int | None:
        """Return for how many open splits the workers have memory; None if that is unknown.

        Args:
            split_bytes: what the buffers of an open split hold; 0: nothing.
        """
        with self._changed:
            if not split_bytes or not self._buffers:
                return None
            return sum(size // split_bytes for size in self._buffers)

    def acquire(
        self, concurrent_keys: tuple[tuple[int, ...], ...], key: int
    ) -> tuple[str, WorkerConnection] | None:
        """Return the id and link of the worker for a split, or None if there is no worker.

        The worker counts one more open stream until `release`.

        Args:
            concurrent_keys: keys of the splits that are read at about the same time.
            key: key of the split, which is one of those.
        """
        with self._changed:
            now = time.monotonic()
            usable = [m for m in self._members.values() if not m.info.draining]
            usable = [m for m in usable if not m.unreachable] or usable
            healthy = [m for m in usable if now - m.failed_at > _RETRY_SECONDS]
            candidates = {m.key: m for m in self._by_share(healthy or usable)}
            if not candidates:
                return None
            chosen = candidates[_placed(concurrent_keys, tuple(sorted(candidates)))[key]]
            link = chosen.open_link()
            chosen.open_streams += 1
            return chosen.info.worker_id, link

    def _by_share(self, members: list[_Member]) -> list[_Member]:
        """Return the local workers if they have less than their share, or else the others."""
        local = [m for m in members if m.is_local]
        others = [m for m in members if not m.is_local]
        if not local or not others:
            return members
        streams = 1 + sum(m.open_streams for m in self._members.values())
        is_below = sum(m.open_streams for m in local) < self._local_share * streams
        return local if is_below else others

    def share_locally(self, measured: LocalShare, consumers: int, ranks: int = 1) -> None:
        """Set the share of the streams that the pod's own worker gets from now on.

        Streams that are open stay where they are.

        Args:
            measured: demand of the trainer, and rate of the own worker.
            consumers: number of consumers, which share the other workers.
            ranks: number of consumers of this pod, which share the own worker.
        """
        with self._changed:
            usable = [m for m in self._members.values() if not m.info.draining]
            own = sum(m.cpus for m in usable if m.is_local)
            others = sum(m.cpus for m in usable if not m.is_local)
            self._local_share = measured.share(own / ranks, others / consumers)

    def local_counters(self) -> dict[str, WorkerCounters]:
        """Return the counters that the workers of this pod last reported, by id."""
        with self._changed:
            return {
                worker_id: WorkerCounters(member.info.rows, member.info.busy_seconds)
                for worker_id, member in self._members.items()
                if member.is_local
            }

    def release(self, worker_id: str, failed: bool) -> None:
        """Count one open stream less, and record whether it failed.

        This does not end `wait` or `later`: streams that fail would end each other's back-off.
        """
        with self._changed:
            member = self._members.get(worker_id)
            if member is None:
                return
            member.open_streams -= 1
            if failed:
                member.failed_at = time.monotonic()

    def record_loss(self, worker_id: str) -> None:
        """Record that a worker broke a stream. It is lost once, and not if it is draining."""
        with self._changed:
            member = self._members.get(worker_id)
            if member is not None and not (member.lost or member.info.draining):
                member.lost = True
                self.lost_workers += 1

    def suspect(self, worker_id: str) -> None:
        """Find out whether the host of a worker answers, which sends nothing although it may.

        It does not wait. If the host does not answer, all streams of the worker break, and it gets
        no new one until the host answers. A worker that is slow, or that stands still, stays.
        """
        with self._changed:
            member, now = self._members.get(worker_id), time.monotonic()
            if member is None or member.probing:
                return
            if member.link is not None and member.link.received_at > member.probed_at:
                member.probe_seconds = _PROBE_SECONDS
            if now - member.probed_at < member.probe_seconds:
                return
            member.probing = True
            member.probe_seconds = min(2 * member.probe_seconds, _MOST_PROBE_SECONDS)
        threading.Thread(target=self._probe, args=(member,), name="probe", daemon=True).start()

    def _probe(self, member: _Member) -> None:
        """Break the link of a worker whose host does not answer, and wait until it does."""
        try:
            while not self._answers(member):
                pass
        finally:
            with self._changed:
                member.unreachable = member.probing = False
                member.probed_at = time.monotonic()

    def _answers(self, member: _Member) -> bool:
        """Return whether a host answers, or does not matter any more. If not, it takes a while."""
        worker_id, began = member.info.worker_id, time.monotonic()
        if host_answers(member.info.address):
            return True
        with self._changed:
            link, was_reachable = member.link, not member.unreachable
            is_silent = link is None or link.received_at < began
            member.unreachable = is_silent
        # Later connections to the only worker may work although no new one of ours does.
        if link is not None and is_silent and was_reachable:
            error = f"worker {worker_id}: its host has not answered for {ANSWER_SECONDS} s"
            link.abandon(UnavailableError(error))
        with self._changed:
            if self._members.get(worker_id) is not member:
                return True
            # An answer that there is no route comes at once.
            self._changed.wait(max(0.0, began + ANSWER_SECONDS - time.monotonic()))
        return False

    def is_draining(self, worker_id: str) -> bool:
        """Return whether a worker takes no new streams, or has left."""
        with self._changed:
            member = self._members.get(worker_id)
            return member is None or member.info.draining

    def stalled(self, worker_id: str, dataset: str, epoch: int, split: int) -> str:
        """Return what the worker reported about a split that it computes for long, or ""."""
        with self._changed:
            member = self._members.get(worker_id)
            for one in member.info.stalled if member else ():
                if one.crash or one.step:
                    continue
                if (one.dataset, one.epoch, one.split) == (dataset, epoch, split):
                    text = f"the worker has computed its row {one.row} for {one.seconds:.0f} s"
                    return f"{text}, {one.at}" if one.at else text
        return ""

    def crash(self, job: types_pb2.Job, epoch: int, split: int) -> str:
        """Return the error of a split that has ended several workers, and forget it; "" if none.

        Crashes of an earlier run do not count: the user may have replaced a file since.
        """
        return self._crash((job.first_run, dataset_name(job), epoch, split))

    def description_crash(self, draft: types_pb2.Job, consumer: str) -> str:
        """Return the error of a description that has ended several workers; "" if it has not.

        Args:
            draft: job whose dataset is described.
            consumer: incarnation of the consumer that requests the description.
        """
        return self._crash((consumer, dataset_name(draft), 0, _DESCRIPTION))

    def _crash(self, key: _Split) -> str:
        with self._changed:
            if not _is_cause(self._crashes.get(key, ())):
                return ""
            crashes = self._crashes.pop(key)
        return crash_text(crashes[-1], len(crashes))

    def slow_description(self, dataset: str) -> str:
        """Return what a worker reported about a description that takes long, or ""."""
        with self._changed:
            infos = [member.info for member in self._members.values()]
        found = (one for info in infos for one in info.stalled if one.step and not one.crash)
        return next((stall_text(one) for one in found if one.dataset == dataset), "")

    @property
    def open_streams(self) -> int:
        """Number of streams that were acquired and not yet released."""
        with self._changed:
            return sum(member.open_streams for member in self._members.values())

    def wait(self, seconds: float) -> None:
        """Wait until the dispatcher reports the membership, for at most `seconds`.

        Raises:
            Cancelled: the pool is closed. A caller that tries again would not wait.
        """
        with self._changed:
            reports, end = self._reports, time.monotonic() + seconds
            while not self._closed and self._reports == reports:
                left = end - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)
            if self._closed:
                raise Cancelled

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` when the dispatcher reports the membership, or after `seconds`.

        It is called in another thread, one action after the other. A closed pool calls none.
        """
        with self._changed:
            if self._closed:
                return
            self._delayed.append((time.monotonic() + seconds, self._reports, action))
            if self._timer is None:
                self._timer = threading.Thread(target=self._run_delayed, name="later", daemon=True)
                self._timer.start()
            self._changed.notify_all()

    def _run_delayed(self) -> None:
        while (actions := self._next_due()) is not None:
            while actions:
                actions.pop(0)()  # no reference to a stream stays here

    def _next_due(self) -> list[Callable[[], None]] | None:
        """Wait for actions that are due, and return them. None if there are none left."""
        with self._changed:
            while self._delayed:
                now, reports = time.monotonic(), self._reports
                due = [one for one in self._delayed if one[0] <= now or one[1] != reports]
                if due:
                    self._delayed = [one for one in self._delayed if one not in due]
                    return [action for _, _, action in due]
                self._changed.wait(min(at for at, _, _ in self._delayed) - now)
            self._timer = None
            return None

    def any_stub(self) -> Stub | None:
        """Return the stub of the worker whose last failure is longest ago, or None."""
        with self._changed:
            usable = [m for m in self._members.values() if not m.info.draining]
            return min(usable, key=lambda m: (m.unreachable, m.failed_at)).stub if usable else None

    def close(self) -> None:
        """Close all channels. Open streams end with an error."""
        with self._changed:
            for member in self._members.values():
                member.channel.close()
            self._members.clear()
            self._delayed.clear()
            self._closed = True
            self._changed.notify_all()
