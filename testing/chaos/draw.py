"""The schedule of a seed: a pure function, so that a failure can be repeated."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from distributed_input.order.splits import divisors
from testing.chaos import rows
from testing.chaos.reference import mixed_steps
from testing.chaos.schedule import Data, Fault, Schedule, Topology

_WEIGHTS = {
    "kill_worker": 5,
    "stop_worker": 2,
    "drain_worker": 2,
    "kill_all_workers": 1,
    "add_worker": 1,
    "cut_connection": 3,
    "delay_connection": 1,
    "kill_dispatcher": 3,
    "kill_sidecar": 3,
    "crash_trainer": 4,
    "rewind_trainer": 2,
}
_SHARED = 0.2  # part of the seeds with two jobs
_MIXED = 0.2  # part of the seeds with a mixture
_WORK_SECONDS = 1.2  # maximum time to compute the rows of an epoch


def draw(seed: int) -> Schedule:
    """Return the schedule of a seed. Some schedules have a mixture, and some have two jobs."""
    drawn = _draw(seed)
    # Separate generators keep the other values of each seed unchanged.
    dice = random.Random(f"mixture 60: {seed}")  # none of tests.chaos' REGRESSION_SEEDS
    if dice.random() < _MIXED:
        drawn = _at_other_steps(drawn, mixed(dice, drawn, most=40))
    return _shared(drawn) if random.Random(f"two jobs {seed}").random() < _SHARED else drawn


def mixed(dice: random.Random, schedule: Schedule, most: int) -> Schedule:
    """Return the schedule with a mixture that ends, whose weights change up to three times.

    Its splits have up to `most` rows.
    """
    old = schedule.topology
    partitions = old.consumers * dice.choice((1, 2)) if old.parallel else old.partitions
    weights = dice.choice(((1, 1), (3, 1), (5, 3, 2), (1, 2, 1, 9)))
    topology = replace(
        old,
        partitions=partitions,
        batch=partitions * dice.choice((1, 2, 3, 5)),
        remainder="drop",
        mode="distributed_epoch",
        replicas=1,
        weights=weights,
        exhausted=dice.choice(("stop", "drop")),
    )
    splits = partitions * dice.choice((1, 2))  # of a source
    counts = [dice.randrange(1, most) for _ in range(len(weights) * splits)]
    counts[::splits] = [max(3, first) for first in counts[::splits]]  # see `_data`
    data = replace(schedule.data, rows=tuple(counts), graph=False, flaky=False)
    for _ in range(dice.choice((0, 1, 2, 3))):
        first = topology.changes[-1][0] + 1 if topology.changes else 1
        steps = min(mixed_steps(topology, data))
        if first < steps:
            change = dice.randrange(first, steps), (*dice.choices(range(5), k=len(weights) - 1), 1)
            topology = replace(topology, changes=(*topology.changes, change))
    return replace(schedule, topology=topology, data=data)


def _at_other_steps(schedule: Schedule, mixture: Schedule) -> Schedule:
    """Return the mixture with faults at the same parts of its steps."""
    before = expected_steps(schedule.topology, schedule.data)
    after = sum(mixed_steps(mixture.topology, mixture.data))
    faults = (replace(fault, step=fault.step * after // before) for fault in mixture.faults)
    return replace(mixture, faults=tuple(faults))


def _shared(schedule: Schedule) -> Schedule:
    """Return the schedule with two jobs, neither of which replaces the sidecars of the other."""
    faults = (
        replace(fault, sidecars="stay", consumers=0) if fault.kind == "crash_trainer" else fault
        for fault in schedule.faults
    )
    topology = replace(schedule.topology, jobs=2)
    return replace(schedule, topology=topology, faults=tuple(faults))


def _draw(seed: int) -> Schedule:
    dice = random.Random(seed)
    topology = _topology(dice)
    data = _data(dice, topology)
    step_ms = dice.choice([0, 0, 2, 5, 10])
    return Schedule(
        seed=seed,
        topology=topology,
        data=data,
        faults=_faults(dice, topology, data),
        save_every=dice.choice([1, 2, 3, 5]),
        saver=dice.choice([0, 0, 1, 3]),
        step_ms=step_ms,
    )


def _topology(dice: random.Random) -> Topology:
    partitions = dice.choice([1, 2, 3, 4, 4, 4, 6, 8])
    whole = dice.random() < 0.2
    dice.random()  # keeps the schedules of known seeds
    mode = "parallel_epochs" if dice.random() < 0.15 else "distributed_epoch"
    fitting = [n for n in divisors(partitions) if n <= 4]
    if mode == "parallel_epochs":
        fitting = [1, 2, 3]
    consumers = dice.choice([*fitting, *fitting[1:]])
    each = partitions * dice.choice([1, 2, 3, 5])
    batch = each * (consumers if mode == "parallel_epochs" else 1)
    replicas = dice.choice([1, 1, 1, 2])
    if whole or (batch // consumers) % replicas:
        replicas = 1
    return Topology(
        consumers=consumers,
        workers=dice.choice([1, 2, 2, 3, 4]),
        partitions=partitions,
        batch=0 if whole else batch,
        remainder="keep" if whole else dice.choice(["keep", "keep", "drop", "pad"]),
        mode=mode,
        determinism=dice.choice(["warn", "strict"]),
        epochs=dice.choice([1, 1, 2, 3]),
        replicas=replicas,
        read_ahead=dice.choice([0, 1, None, 2]),
        ring_steps=dice.choice([2, 3, 4, 16]),
        seed=dice.choice([0, 1, 12345]),
        proxied=dice.random() < 0.4,
        slow_worker=dice.choice([0.0, 0.0, 0.0, 3.0]),
    )


def _data(dice: random.Random, topology: Topology) -> Data:
    splits = dice.choice([1, topology.partitions, 2 * topology.partitions, 13])
    most = dice.choice([6, 20, 60])
    empty = dice.choice([0.0, 0.2, 0.6])
    counts = [0 if dice.random() < empty else dice.randint(1, most) for _ in range(splits)]
    counts[0] = max(3, counts[0])  # the first split defines the element's structure
    if dice.random() < 0.25:  # make one partition much longer
        counts[dice.randrange(splits)] += 3 * most
    graph = dice.random() < 0.15
    total = sum(counts) * (topology.consumers if topology.parallel else 1)
    at_once = min(4 * topology.workers, topology.partitions)
    slowest = 1000 * _WORK_SECONDS * at_once / total
    return Data(
        rows=tuple(counts),
        vary=dice.random() < 0.3,
        row_bytes=dice.choice([8, 24, 1000, 30_000]),
        sleep_ms=0.0 if graph else round(min(dice.choice([0, 0.3, 1, 3, 8]), slowest), 2),
        text=dice.random() < 0.3,
        graph=graph,
    )


def _faults(dice: random.Random, topology: Topology, data: Data) -> tuple[Fault, ...]:
    steps = expected_steps(topology, data)
    kinds = [k for k in _WEIGHTS if topology.proxied or not k.endswith("connection")]
    weights = [_WEIGHTS[k] for k in kinds]
    faults: list[Fault] = []
    consumers = topology.consumers
    at = sorted(_when(dice, steps) for _ in range(dice.choice([1, 2, 2, 3, 4])))
    for i, step in enumerate(at):
        if i and dice.random() < 0.25:
            step = at[i - 1]  # several faults at once
        kind = dice.choices(kinds, weights)[0]
        fault = _fault(dice, kind, step, topology, consumers)
        consumers = fault.consumers or consumers
        faults.append(fault)
    return tuple(sorted(faults, key=lambda f: f.step))


def _when(dice: random.Random, steps: int) -> int:
    """Return a step; often one near the end of an epoch."""
    part = dice.uniform(0.8, 1.0) if dice.random() < 0.3 else dice.random()
    return int(part * steps)


def _fault(dice: random.Random, kind: str, step: int, topology: Topology, consumers: int) -> Fault:
    long = dice.random() < 0.06  # longer than the detection of a dead peer takes
    return Fault(
        kind=kind,
        step=step,
        delay_ms=0 if kind.endswith("_trainer") else dice.choice([0, 0, 5, 30, 150]),
        target=dice.randrange(4),
        restart=dice.choice(["new", "same", "same", "never"])
        if kind != "kill_all_workers"
        else dice.choice(["new", "same"]),
        seconds=11.0
        if long and kind in {"stop_worker", "delay_connection"}
        else round(dice.choice([0.0, 0.1, 0.5, 1.5, 2.5]), 2),
        then_kill=kind == "stop_worker" and dice.random() < 0.5,
        after_bytes=dice.choice([0, dice.randrange(1, 2000), dice.randrange(1, 300_000)]),
        consumers=_next_consumers(dice, topology, consumers) if kind == "crash_trainer" else 0,
        sidecars=dice.choice(["stay", "killed", "linger"]),
    )


def _next_consumers(dice: random.Random, topology: Topology, now: int) -> int:
    """Return a number of trainers that can restore the position of `now` trainers."""
    if topology.parallel or dice.random() < 0.5:
        return now
    fitting = [n for n in divisors(topology.partitions) if n <= 4]
    if not topology.whole:
        fitting = [n for n in fitting if (topology.batch // n) % topology.replicas == 0]
    return dice.choice(fitting)


def expected_steps(topology: Topology, data: Data) -> int:
    """Return the approximate number of steps of all epochs."""
    per_step = topology.consumers if topology.whole else topology.batch
    total = sum(_epoch_rows(topology, data.rows, data.vary, e) for e in range(topology.epochs))
    return max(1, -(-total // per_step))


def _epoch_rows(topology: Topology, counts: Sequence[int], vary: bool, epoch: int) -> int:
    rows_once = sum(rows.rows_in(counts, vary, epoch, split) for split in range(len(counts)))
    return rows_once * (topology.consumers if topology.parallel else 1)
