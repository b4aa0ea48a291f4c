"""The values of one simulated schedule, as a pure function of its seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from distributed_input.order.splits import divisors
from testing.chaos.schedule import Data, Fault, Schedule, Topology


@dataclass(frozen=True)
class Delivery:
    """A schedule, and what only a simulation decides.

    Attributes:
        schedule: topology, dataset and the faults of `testing.chaos`.
        preempt: probability that a task is interrupted at a lock or a message.
        stall: probability that an interrupted task does not run for a while.
        latency: longest usual delay of a message in seconds.
        spike: probability that a message takes up to half a second more.
        window: bytes of a stream's responses that may be unread.
        socket_bytes: size of the socket buffers between sidecar and trainer.
        heartbeat: seconds between heartbeats.
        parallelism: elements that a worker produces at once.
        cores: elements that a worker can compute at the same time; 0: any number.
        share_bytes: rows that a worker keeps for other jobs.
        failures: errors of the user's dataset: how often (split, row) fails.
        prefetch: units that a trainer's iterator reads ahead of its loop; 0: it has no thread.
        retries: retryable errors after which the trainers may continue.
        paces: for each of the processes that read a consumer's batches the milliseconds of a step
            besides `step_ms`. Several have their data rank in common; see `cases`.
        ranks: consumers of each sidecar, if it divides their number; otherwise each has one.
        pod: id of the pod of all sidecars and of the first worker; "": it is no worker of a pod.
        stored: whether workers store splits, in a folder that all of them use.
        case: name of a case that the training loop or the verdict treats in its own way.
        chaos: faults at random times, as (seconds, kind, target, seconds that it lasts).
    """

    seed: int
    schedule: Schedule
    preempt: float = 0.0
    stall: float = 0.0
    latency: float = 0.001
    spike: float = 0.0
    window: int = 1 << 16
    socket_bytes: int = 1 << 18
    heartbeat: float = 1.0
    parallelism: int = 4
    cores: int = 0
    share_bytes: int = 1 << 20
    failures: tuple[tuple[tuple[int, int], int], ...] = ()
    chaos: tuple[tuple[float, str, int, float], ...] = ()
    prefetch: int = 0
    retries: int = 0
    paces: tuple[int, ...] = (0,)
    ranks: int = 1
    pod: str = ""
    stored: bool = False
    case: str = ""

    @property
    def readers(self) -> int:
        """Number of processes that read the batches of each consumer."""
        return len(self.paces)

    def __str__(self) -> str:
        own = " ".join(
            f"{name}={getattr(self, name)}"
            for name in self.__dataclass_fields__
            if name not in ("seed", "schedule")
        )
        return f"{self.schedule}\n  {own}"


_AT_STEP = {
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
_AT_TIME = {
    "crash_trainer": 3,
    "kill_sidecar": 3,
    "kill_worker": 3,
    "kill_dispatcher": 2,
    "pause_sidecar": 2,
    "pause_trainer": 1,
    "pause_dispatcher": 1,
    "pause_worker": 2,
    "partition_dispatcher": 3,
    "partition_worker": 3,
    "end_sidecar": 1,
}


def draw_faulty(seed: int) -> Delivery:
    """Return the schedule of a seed; some have a short timeout and so retryable errors."""
    drawn = _draw(seed)
    dice = random.Random(f"timeout {seed}")
    if dice.random() < 0.8 or drawn.schedule.topology.replicas > 1:
        return drawn
    schedule = replace(drawn.schedule, timeout=dice.choice((0.5, 2.0)))
    return replace(drawn, schedule=schedule, retries=1000)


def _draw(seed: int) -> Delivery:
    dice = random.Random(f"delivery {seed}")
    topology = _topology(dice)
    data = _data(dice, topology)
    # Without a counter, an iterator returns whole elements one by one.
    counted = topology.whole and topology.replicas > 1
    schedule = Schedule(
        seed=seed,
        topology=topology,
        data=data,
        faults=_faults(dice, topology, data),
        save_every=dice.choice((1, 1, 2, 3)),
        saver=dice.choice((0, 0, 1, 3)),
        step_ms=dice.choice((0, 0, 5, 50)),
        timeout=60.0,
    )
    return Delivery(
        seed=seed,
        schedule=schedule,
        preempt=dice.choice((0.0, 0.02, 0.1, 0.3)),
        stall=dice.choice((0.0, 0.0, 0.01)),
        latency=dice.choice((0.0005, 0.002, 0.02)),
        spike=dice.choice((0.0, 0.0, 0.03)),
        window=dice.choice((1, 200, 1000, 1 << 16)),
        socket_bytes=dice.choice((600, 2000, 1 << 18)),
        heartbeat=dice.choice((0.25, 1.0, 1.0)),
        parallelism=dice.choice((1, 4)),
        share_bytes=dice.choice((0, 500, 1 << 20)),
        failures=_failures(dice, data),
        chaos=_chaos(dice),
        prefetch=dice.choice((1, 1, 4)) if counted else dice.choice((0, 0, 1, 4)),
    )


def _topology(dice: random.Random) -> Topology:
    partitions = dice.choice((1, 2, 2, 2, 3, 4, 4))
    whole = dice.random() < 0.15
    dice.random()  # keeps the schedules of known seeds
    mode = "parallel_epochs" if dice.random() < 0.1 else "distributed_epoch"
    fitting = [n for n in divisors(partitions) if n <= 3]
    if mode == "parallel_epochs":
        fitting = [1, 2]
    consumers = dice.choice(fitting)
    each = partitions * dice.choice((1, 2, 3))
    batch = each * (consumers if mode == "parallel_epochs" else 1)
    replicas = dice.choice((1, 1, 1, 2))
    if not whole and (batch // consumers) % replicas:
        replicas = 1
    return Topology(
        consumers=consumers,
        workers=dice.choice((1, 2, 2, 3)),
        partitions=partitions,
        batch=0 if whole else batch,
        remainder="keep" if whole else dice.choice(("keep", "keep", "drop", "pad")),
        mode=mode,
        determinism=dice.choice(("warn", "strict")),
        epochs=dice.choice((1, 1, 2)),
        replicas=replicas,
        read_ahead=dice.choice((0, 1, None, 2)),
        ring_steps=dice.choice((2, 3, 16)),
        seed=dice.choice((0, 1, 12345)),
        proxied=True,
        slow_worker=dice.choice((0.0, 0.0, 0.0, 20.0)),
        jobs=2 if dice.random() < 0.1 else 1,
    )


def _data(dice: random.Random, topology: Topology) -> Data:
    splits = dice.choice((1, topology.partitions, 2 * topology.partitions, 5))
    most = dice.choice((2, 4, 8))
    empty = dice.choice((0.0, 0.2, 0.5))
    counts = [0 if dice.random() < empty else dice.randint(1, most) for _ in range(splits)]
    counts[0] = max(1, counts[0])
    if dice.random() < 0.2:
        counts[dice.randrange(splits)] += 8
    return Data(
        rows=tuple(counts),
        vary=dice.random() < 0.3,
        row_bytes=dice.choice((8, 24, 100)),
        sleep_ms=dice.choice((0, 0, 2, 20)),
        text=dice.random() < 0.2,
    )


def _faults(dice: random.Random, topology: Topology, data: Data) -> tuple[Fault, ...]:
    rows = sum(data.rows) * topology.epochs
    steps = max(1, rows // (topology.batch or topology.consumers))
    consumers = topology.consumers
    faults = []
    for step in sorted(dice.randint(0, steps) for _ in range(dice.choice((0, 1, 1, 2, 3)))):
        kind = dice.choices(list(_AT_STEP), list(_AT_STEP.values()))[0]
        fault = Fault(
            kind=kind,
            step=step,
            delay_ms=0 if kind.endswith("_trainer") else dice.choice((0, 0, 1, 10, 100)),
            target=dice.randrange(4),
            restart=dice.choice(("new", "same"))
            if kind == "kill_all_workers"
            else dice.choice(("new", "same", "same", "never")),
            seconds=dice.choice((0.0, 0.1, 0.5, 2.0)) if dice.random() < 0.9 else 10.0,
            then_kill=dice.random() < 0.3,
            after_bytes=dice.choice((0, 50, 300, 2000)),
            consumers=_next_consumers(dice, topology, consumers) if kind == "crash_trainer" else 0,
            sidecars=dice.choice(("stay", "killed", "linger")) if topology.jobs == 1 else "stay",
        )
        consumers = fault.consumers or consumers
        faults.append(fault)
    return tuple(faults)


def _next_consumers(dice: random.Random, topology: Topology, now: int) -> int:
    """Return a number of trainers that can restore the position of `now` trainers."""
    alone = topology.parallel or topology.jobs > 1
    if alone or dice.random() < 0.5:
        return now
    fitting = [n for n in divisors(topology.partitions) if n <= 3]
    if not topology.whole:
        fitting = [n for n in fitting if (topology.batch // n) % topology.replicas == 0]
    return dice.choice(fitting)


def _failures(dice: random.Random, data: Data) -> tuple[tuple[tuple[int, int], int], ...]:
    if dice.random() < 0.85:
        return ()
    split = dice.randrange(len(data.rows))
    return (((split, dice.randrange(max(1, data.rows[split]))), dice.choice((1, 2))),)


def _chaos(dice: random.Random) -> tuple[tuple[float, str, int, float], ...]:
    found = []
    within = dice.choice((0.05, 0.2, 0.5, 2.0, 5.0))  # most schedules take about a second
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        kind = dice.choices(list(_AT_TIME), list(_AT_TIME.values()))[0]
        lasts = dice.choice((0.01, 0.2, 1.5, 6.0)) if dice.random() < 0.9 else 12.0
        when = round(dice.random() * within, 4)
        found.append((when, kind, dice.randrange(4), lasts))
    return tuple(sorted(found))
