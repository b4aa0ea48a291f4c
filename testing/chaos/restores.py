"""What restoring a position costs and gives: `python -m testing.chaos.restores`.

Trainers read an epoch to its end and note every step's bytes. Others read half of it; the first
one's position, alone, restores trainers in other numbers, beside new sidecars: what they read must
be the rest of the first, byte for byte where there are as many of them.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from distributed_input.api.proto import trainer_pb2
from testing.chaos.consumers import Consumers, Rows
from testing.chaos.document import write_section
from testing.chaos.fleet import Fleet
from testing.chaos.schedule import Data, Schedule, Topology
from testing.chaos.table import quantile
from testing.processes.forks import Forks

_PATIENCE_SECONDS = 120.0
STATE_BYTES = 64 << 10
"""What a position may take at most."""


@dataclass(frozen=True)
class Case:
    """How many trainers save, how many restore.

    Attributes:
        rows: of each split; or of each one its own.
        sleep_ms: that making a row takes.
        workers: that serve those who restore, instead of those before; 0: the same.
    """

    before: int
    after: int
    partitions: int = 8
    splits: int = 32
    rows: int | tuple[int, ...] = 60
    sleep_ms: float = 1.0
    workers: int = 0

    def schedule(self, consumers: int) -> Schedule:
        """The run with so many trainers."""
        topology = Topology(
            consumers=consumers, partitions=self.partitions, batch=2 * self.partitions, read_ahead=0
        )
        rows = (self.rows,) * self.splits if isinstance(self.rows, int) else self.rows
        data = Data(rows=rows, row_bytes=4000, sleep_ms=self.sleep_ms)
        return Schedule(0, topology, data, deadline=_PATIENCE_SECONDS, timeout=_PATIENCE_SECONDS)


@dataclass(frozen=True)
class Step:
    """One step of all trainers: digest of each one's bytes, and the numbers of the rows."""

    digests: tuple[bytes, ...]
    rows: frozenset[int]
    count: int


@dataclass(frozen=True)
class Restore:
    """What came of one.

    Attributes:
        state_bytes: of the position.
        seconds: from the trainers' connect to the first batch of all of them.
        replay_seconds: of that, what making the longest open split's rows again takes.
        identical: each trainer got the bytes that it would have got without the restore; None where
            there are not as many as before.
        same_steps: every step had the rows that it would have had.
        lost: rows of the rest of the epoch that did not come.
        repeated: rows that came twice, or before.
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
    """Save at a part of the epoch, and go on from there; `mutants`: see `Fleet`."""
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
    """So many others in the place of all that serve."""
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
    return Consumers(folders, case.schedule(count), time.monotonic() + _PATIENCE_SECONDS)


def _steps(consumers: Consumers, most: int | None) -> list[Step]:
    """So many steps, or all to the epoch's end."""
    taken: list[Step] = []
    while most is None or len(taken) < most:
        units = consumers.step()
        if units[0] is None:
            break
        taken.append(_noted([each or [] for each in units]))
    return taken


def _noted(units: Sequence[Sequence[Rows]]) -> Step:
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
    wanted = whole[half:]
    missing = frozenset().union(*(step.rows for step in wanted))
    came = frozenset().union(*(step.rows for step in rest))
    position = trainer_pb2.Position.FromString(saved)
    return Restore(
        state_bytes=len(saved),
        seconds=seconds,
        replay_seconds=max((p.rows for p in position.prefixes), default=0) * case.sleep_ms / 1000,
        identical=(
            [step.digests for step in wanted] == [step.digests for step in rest]
            if case.before == case.after
            else None
        ),
        same_steps=[step.rows for step in wanted] == [step.rows for step in rest],
        lost=len(missing - came),
        repeated=sum(step.count for step in rest) - len(came & missing),
    )


def row(case: Case, found: Sequence[Restore]) -> str:
    """A line of the table."""
    same = all(restore.same_steps for restore in found)
    bytes_too = all(restore.identical for restore in found) if case.before == case.after else same
    told = "the same bytes" if case.before == case.after else "the same rows in every step"
    seconds = [restore.seconds for restore in found]
    return (
        f"| {case.before} → {case.after} | {case.partitions}, {case.splits} | {len(found)} "
        f"| {max(restore.state_bytes for restore in found):,} bytes "
        f"| {quantile(seconds, 0.5):.2f} s | {max(seconds):.2f} s "
        f"| {max(restore.replay_seconds for restore in found):.2f} s "
        f"| {told if same and bytes_too else 'DIFFERENT'} "
        f"| {sum(r.lost for r in found)}, {sum(r.repeated for r in found)} |"
    )


HEAD = (
    "| trainers | partitions, splits | runs | state | to the first batch, p50 | longest "
    "| replay in it, at most | from then on | lost, repeated |\n"
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
    """Print the table, or write it into a document; 0 where all is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m testing.chaos.restores", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each case, at other steps")
    parser.add_argument("--out", type=Path, help="Markdown file whose section is replaced")
    args = parser.parse_args()
    lines = [HEAD]
    with Forks() as forks:
        for case in CASES:
            at = [(i + 1) / (args.runs + 1) for i in range(args.runs)]
            lines.append(row(case, [restore(case, forks, part) for part in at]))
            print(lines[-1], flush=True)
    if args.out:
        write_section(args.out, "restores", "\n".join(lines))
    return any("DIFFERENT" in line or "| 0, 0 |" not in line for line in lines[1:])


if __name__ == "__main__":
    sys.exit(main())
