"""The time and exactness of restores: `python -m testing.chaos.measurements.restores`.

Trainers read an epoch to its end and record the bytes of every step. Other trainers read half of
it. The first trainer's position alone then restores another number of trainers, with new sidecars.
They must read the rest of the epoch, with the same bytes if the number of trainers is the same.
"""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distributed_input.api.proto import trainer_pb2
from testing.chaos.consumers import Consumers, Rows
from testing.chaos.fleet import Fleet
from testing.chaos.measurements import document
from testing.chaos.schedule import Data, Schedule, Topology
from testing.chaos.summary import quantile
from testing.processes.forks import Forks

_DEADLINE_SECONDS = 120.0
STATE_BYTES = 64 << 10
"""Maximum size of a position."""


@dataclass(frozen=True)
class Case:
    """The numbers of trainers before and after a restore.

    Attributes:
        rows: rows of each split: one number, or a number for each split.
        sleep_ms: milliseconds to compute a row.
        workers: number of new workers that serve the restored trainers; 0 to keep the workers.
    """

    before: int
    after: int
    partitions: int = 8
    splits: int = 32
    rows: int | tuple[int, ...] = 60
    sleep_ms: float = 1.0
    workers: int = 0

    def schedule(self, consumers: int) -> Schedule:
        """Return the schedule with this number of trainers."""
        topology = Topology(
            consumers=consumers, partitions=self.partitions, batch=2 * self.partitions, read_ahead=0
        )
        rows = (self.rows,) * self.splits if isinstance(self.rows, int) else self.rows
        data = Data(rows=rows, row_bytes=4000, sleep_ms=self.sleep_ms)
        return Schedule(0, topology, data, deadline=_DEADLINE_SECONDS, timeout=_DEADLINE_SECONDS)


@dataclass(frozen=True)
class Step:
    """One step of all trainers: a digest of each trainer's bytes, and the numbers of the rows."""

    digests: tuple[bytes, ...]
    rows: frozenset[int]
    count: int


@dataclass(frozen=True)
class Restore:
    """The result of one restore.

    Attributes:
        state_bytes: size of the position.
        seconds: time from the trainers' connect to the first batch of all of them.
        replay_seconds: part of that time for the replay of the longest open split.
        identical: whether each trainer got the same bytes as without the restore; None if the
            number of trainers differs.
        same_steps: whether every step had the same rows as without the restore.
        lost: missing rows of the rest of the epoch.
        repeated: rows that arrived twice, or before the restore.
    """

    state_bytes: int
    seconds: float
    replay_seconds: float
    identical: bool | None
    same_steps: bool
    lost: int
    repeated: int


def restore(
    case: Case, forks: Forks, at: float = 0.5, mutants: Mapping[str, str] | None = None
) -> Restore:
    """Save a position in the middle of an epoch and restore it. `mutants`: see `Fleet`."""
    whole = _uninterrupted(case, forks)
    half = int(at * len(whole))
    fleet = Fleet(forks, case.schedule(case.before), mutants)
    try:
        consumers = _consumers(fleet, case, case.before)
        consumers.connect(None)
        consumers.begin()
        _steps(consumers, half)
        saved = consumers.positions()[0]
        consumers.crash()
        for process in fleet.sidecars:
            fleet.kill(process)
        _replace_workers(fleet, case.workers)
        fleet.start_sidecars(case.after)
        consumers = _consumers(fleet, case, case.after)
        began = time.monotonic()
        consumers.connect([saved] * case.after)
        consumers.begin()
        rest = _steps(consumers, 1)
        seconds = time.monotonic() - began
        rest += _steps(consumers, None)
        consumers.close()
        consumers.end()
    finally:
        _close(fleet)
    return _compare(case, saved, seconds, whole, rest, half)


def _replace_workers(fleet: Fleet, count: int) -> None:
    """Replace all workers by this number of new ones."""
    gone = fleet.live_workers() if count else []
    for _ in range(count):
        fleet.add_worker()
    for worker in gone:
        fleet.kill(worker.process)


def _uninterrupted(case: Case, forks: Forks) -> list[Step]:
    fleet = Fleet(forks, case.schedule(case.before))
    try:
        consumers = _consumers(fleet, case, case.before)
        consumers.connect(None)
        consumers.begin()
        steps = _steps(consumers, None)
        consumers.close()
        consumers.end()
        return steps
    finally:
        _close(fleet)


def _close(fleet: Fleet) -> None:
    fleet.close()
    fleet.remove()


def _consumers(fleet: Fleet, case: Case, count: int) -> Consumers:
    folders = [fleet.folder_of(c) for c in range(count)]
    return Consumers(folders, case.schedule(count), time.monotonic() + _DEADLINE_SECONDS)


def _steps(consumers: Consumers, limit: int | None) -> list[Step]:
    """Take steps up to this number, or to the end of the epoch."""
    taken: list[Step] = []
    while limit is None or len(taken) < limit:
        units = consumers.step()
        if units[0] is None:
            break
        taken.append(_digest_step([each or [] for each in units]))
    return taken


def _digest_step(units: Sequence[Sequence[Rows]]) -> Step:
    digests = []
    numbers: list[int] = []
    for each in units:
        digest = hashlib.sha256()
        for unit in each:
            numbers += unit["id"].tolist()
            for name in sorted(unit):
                digest.update(unit[name].tobytes())
        digests.append(digest.digest())
    return Step(tuple(digests), frozenset(numbers), len(numbers))


def _compare(
    case: Case, saved: bytes, seconds: float, whole: list[Step], rest: list[Step], half: int
) -> Restore:
    expected = whole[half:]
    missing = frozenset().union(*(step.rows for step in expected))
    received = frozenset().union(*(step.rows for step in rest))
    position = trainer_pb2.Position.FromString(saved)
    return Restore(
        state_bytes=len(saved),
        seconds=seconds,
        replay_seconds=max((p.rows for p in position.prefixes), default=0) * case.sleep_ms / 1000,
        identical=(
            [step.digests for step in expected] == [step.digests for step in rest]
            if case.before == case.after
            else None
        ),
        same_steps=[step.rows for step in expected] == [step.rows for step in rest],
        lost=len(missing - received),
        repeated=sum(step.count for step in rest) - len(received & missing),
    )


def row(case: Case, found: Sequence[Restore]) -> str:
    """Return a line of the table."""
    same = all(restore.same_steps for restore in found)
    bytes_too = all(restore.identical for restore in found) if case.before == case.after else same
    following = "same bytes" if case.before == case.after else "same rows in every step"
    seconds = [restore.seconds for restore in found]
    return (
        f"| {case.before} → {case.after} | {case.partitions}, {case.splits} | {len(found)} "
        f"| {max(restore.state_bytes for restore in found):,} bytes "
        f"| {quantile(seconds, 0.5):.2f} s | {max(seconds):.2f} s "
        f"| {max(restore.replay_seconds for restore in found):.2f} s "
        f"| {following if same and bytes_too else 'DIFFERENT'} "
        f"| {sum(r.lost for r in found)}, {sum(r.repeated for r in found)} |"
    )


HEAD = (
    "| Trainers | Partitions, splits | Runs | State | First batch, p50 | Longest "
    "| Longest replay | Following rows | Lost, repeated |\n"
    "|---|---|---|---|---|---|---|---|---|"
)
CASES = (
    Case(1, 1),
    Case(4, 4),
    Case(4, 2),
    Case(4, 8),
    Case(4, 4, partitions=64, splits=1024, rows=3, sleep_ms=0.0),
)


def main() -> int:
    """Print the table or write it into a document. Return 0 if all rows are exact."""
    parser = document.parser("restores", __doc__, runs=5)
    args = parser.parse_args()
    lines = [HEAD]
    with Forks() as forks:
        for case in CASES:
            at = [(i + 1) / (args.runs + 1) for i in range(args.runs)]
            lines.append(row(case, [restore(case, forks, part) for part in at]))
            print(lines[-1], flush=True)
    if args.out:
        document.write_section(args.out, "restores", "\n".join(lines))
    return any("DIFFERENT" in line or "| 0, 0 |" not in line for line in lines[1:])


if __name__ == "__main__":
    sys.exit(main())
