"""Compute steps again that trainers got under faults: `python -m testing.chaos.replay`.

Each run has a dataset with random values, which is mixed, packed, with bad records, or none of
these. Processes of every kind are killed. Then steps of its epochs are drawn, and their rows are
computed from positions as `distributed-input rows --replay` does. They must have the same bytes.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import PositionError
from distributed_input.trainer import position_log
from testing.chaos.consumers import Rows
from testing.chaos.fleet import spec
from testing.chaos.ledger import Verdict
from testing.chaos.run import Loop, Outcome, run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks

KINDS = ("plain", "mixed", "packed", "skipped")
_ROWS, _SPLITS, _PARTITIONS = 640, 8, 4  # of an epoch; of a source, in a mixture
_STEPS = 60  # about, of the shortest run
Sections = dict[str, Any]


class Delivered:
    """What the trainers got, in place of a ledger: rows by epoch and step, and positions.

    Attributes:
        units: the rows of each trainer.
        positions: those that were saved before a step.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self.units: dict[tuple[int, int], list[Rows]] = {}
        self.positions: dict[tuple[int, int], bytes] = {}
        self._ended: set[int] = set()

    @property
    def steps(self) -> int:
        """Number of steps of the current epoch."""
        return sum(epoch == self.epoch for epoch, _ in self.units)

    def begin_epoch(self) -> None:
        """Begin the next epoch, or continue the restored one."""
        self.epoch += self.epoch in self._ended

    def commit(self, units: Sequence[list[Rows] | None]) -> None:
        """Record a step."""
        self.units[self.epoch, self.steps] = [one for unit in units for one in unit or ()]

    def restore(self, epoch: int, steps: int, ended: bool) -> None:
        """Remove everything after this point."""
        self.units = {at: rows for at, rows in self.units.items() if at < (epoch, steps)}
        self.positions = {at: one for at, one in self.positions.items() if at <= (epoch, steps)}
        self._ended = {one for one in self._ended if one < epoch} | ({epoch} if ended else set())
        self.epoch = epoch

    def end_epoch(self, _: int) -> None:
        """Record the end of the epoch."""
        self._ended.add(self.epoch)

    def close(self) -> Verdict:
        """Return an empty verdict."""
        return Verdict()


class _Loop(Loop):
    """A training loop that keeps what it gets.

    The positions that it keeps are of trainers in turn.
    """

    def __init__(self, *arguments: Any, kept: list[Delivered]) -> None:
        super().__init__(*arguments)
        self._kept = Delivered()
        self.ledger: Any = self._kept
        kept.append(self._kept)

    def _save(self, ended: bool) -> None:
        super()._save(ended)
        saved = self._checkpoint
        if saved is not None and not ended:
            one = saved.positions[saved.steps % len(saved.positions)]
            self._kept.positions[saved.epoch, saved.steps] = one


@dataclass
class Compared:
    """Results of comparisons.

    Attributes:
        steps: steps whose rows have the same order and bytes as those that were delivered.
        rows: their rows.
        verified: rows that were also compared with a digest in the position.
        others: steps with the same rows, from any other position of the epoch.
        refused: steps that another position does not show; it says so.
        differences: descriptions.
    """

    steps: int = 0
    rows: int = 0
    verified: int = 0
    others: int = 0
    refused: int = 0
    differences: list[str] = field(default_factory=list)


def schedule_of(seed: int) -> tuple[str, Schedule, Sections]:
    """Return the kind of the run of a seed, its schedule and its sections."""
    dice, kind = random.Random(f"replay {seed}"), KINDS[seed % len(KINDS)]
    topology = Topology(
        consumers=dice.choice((1, 2, 4)),
        workers=dice.choice((2, 3)),
        partitions=_PARTITIONS,
        batch=8,
        remainder="drop" if kind == "mixed" else "keep",
        epochs=2,
        ring_steps=2,
        seed=dice.choice((0, 7)),
        weights=(5, 3, 2) if kind == "mixed" else (),
        exhausted="stop",
        changes=((dice.randrange(5, 40), (1, 1, 4)),) if kind == "mixed" else (),
    )
    kinds = ["kill_worker", "kill_sidecar", "kill_dispatcher", "crash_trainer", "crash_trainer"]
    dice.shuffle(kinds)
    steps = sorted(dice.sample(range(3, _STEPS), len(kinds)))
    faults = tuple(
        Fault(
            one,
            step,
            target=dice.randrange(4),
            restart=dice.choice(("new", "same")),
            consumers=dice.choice((1, 2, 4)) if one == "crash_trainer" else 0,
            sidecars=dice.choice(("stay", "killed", "linger")),
        )
        for one, step in zip(kinds, steps, strict=True)
    )
    data = Data(rows=(_ROWS // _SPLITS,) * _SPLITS * max(1, len(topology.weights)), row_bytes=2100)
    schedule = Schedule(
        seed, topology, data, faults, save_every=1, step_ms=5.0, timeout=90.0, deadline=240.0
    )
    return kind, schedule, _sections(kind)


def _sections(kind: str) -> Sections:
    function, args = "records", {"rows": _ROWS, "bad": kind == "skipped"}
    found: Sections = {}
    if kind == "packed":
        function, args = "documents", {"rows": 4 * _ROWS}
        found["packing"] = {"length": 64, "openSequences": 5, "balanceWindow": 12}
    if kind == "skipped":
        found["badRecords"] = {"onError": "skip"}
    entry = f"testing.chaos.replayed_rows:{function}"
    return {**found, "dataset": {"entryPoint": entry, "args": args}}


def deliver(
    schedule: Schedule, sections: Sections, forks: Forks, mutants: Mapping[str, str] | None = None
) -> tuple[Outcome, Delivered]:
    """Run a schedule; return its outcome, and what its trainers got."""
    kept: list[Delivered] = []
    loop: Any = functools.partial(_Loop, kept=kept)
    outcome = run(schedule, forks, mutants, sections=sections, loop=loop)
    return outcome, kept[0]


def compare(
    schedule: Schedule, sections: Sections, delivered: Delivered, count: int, found: Compared
) -> None:
    """Compute `count` steps again, each from the position behind it and from another one."""
    from distributed_input.worker.replay import EpochRows

    dice = random.Random(schedule.seed)
    config = InputConfig.from_json({**spec(schedule), **sections})
    lengths: dict[int, dict[int, int]] = {}  # of the splits of an epoch: each runs once for them
    runners: list[Any] = []

    def opened(saved: bytes) -> EpochRows:
        position = position_log.parse(saved)
        made = EpochRows(position, config)
        made._lengths = lengths.setdefault(position.epoch, {})
        runners.append(made._runner)
        made._runner = runners[0]  # it keeps the graphs of splits
        return made

    # The position behind a step is of the trainers that read it.
    usable = [(e, s) for e, s in sorted(delivered.units) if (e, s + 1) in delivered.positions]
    for epoch, step in dice.sample(usable, min(count, len(usable))):
        units = delivered.units[epoch, step]
        given = [row for unit in units for row in _rows(unit)]
        near = opened(delivered.positions[epoch, step + 1])
        ranges = [one for c in range(len(units)) for one in near.ranges(step, c)]
        if _computed(near, ranges) == given:
            found.steps += 1
            found.rows += len(given)
            found.verified += sum(one.rows for one in ranges if near.is_verified(one))
        else:
            found.differences.append(f"seed {schedule.seed} epoch {epoch} step {step}")
        # One before it does not have the weights and the number of trainers of the step.
        others = [saved for (e, s), saved in delivered.positions.items() if e == epoch and s > step]
        other = opened(dice.choice(others))
        try:
            if sorted(_computed(other, other.ranges(step))) == sorted(given):
                found.others += 1
            else:
                found.differences.append(f"seed {schedule.seed} epoch {epoch} step {step}, far")
        except PositionError:
            found.refused += 1


def _computed(epoch: Any, ranges: Sequence[Any]) -> list[bytes]:
    from distributed_input.worker.replay_process import arrays_of

    return _rows(arrays_of(epoch.row, sum(one.rows for one in ranges), epoch.read(ranges)))


def _rows(unit: Mapping[str, Any]) -> list[bytes]:
    """Return the bytes of each row."""
    columns = [unit[name] for name in sorted(unit)]
    return [b"|".join(map(_bytes, row)) for row in zip(*columns, strict=True)]


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else np.asarray(value).tobytes()


def main(argv: Iterable[str] | None = None) -> int:
    """Run the schedules and return 0 if all steps have the same rows again."""
    parser = argparse.ArgumentParser(prog="python -m testing.chaos.replay", description=__doc__)
    parser.add_argument("--n", type=int, default=8, help="number of runs. Default: 8")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first one. Default: 0")
    parser.add_argument("--steps", type=int, default=25, help="steps of a run. Default: 25")
    args = parser.parse_args(None if argv is None else list(argv))
    found, problems = Compared(), []
    with Forks() as forks:
        for seed in range(args.seed, args.seed + args.n):
            kind, schedule, sections = schedule_of(seed)
            outcome, delivered = deliver(schedule, sections, forks)
            problems += outcome.problems
            compare(schedule, sections, delivered, args.steps, found)
            faults = " ".join(one.kind for one in outcome.applied)
            print(f"seed {seed}: {kind}, {len(delivered.units)} steps; {faults}", flush=True)
    print(
        f"{found.steps} steps with {found.rows} rows are those that were delivered, "
        f"{found.verified} of these compared with digests; {found.others} steps also from another "
        f"position, which does not show {found.refused} others"
    )
    problems += [f"other rows: {one}" for one in found.differences]
    for one in problems:
        print(one)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
