"""Schedules for one guard each, with a verdict of their own where an error is the right answer.

`GUARDS` lists the deliberate bugs that a simulation must report.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from testing.chaos.draw import mixed
from testing.chaos.schedule import Data, Fault, Topology
from testing.delivery.schedule import Delivery, draw_faulty

Judge = Callable[[list[str], float], list[str]]
"""Function from the problems and the virtual seconds of a run to the problems that count."""

_ALONE = Topology(partitions=2, batch=4, proxied=True, determinism="strict")


def draw(seed: int, case: str | None = None) -> Delivery:
    """Return the schedule of a seed. If no case is given, a few seeds draw one."""
    dice = random.Random(f"case {seed}")
    if case is None:
        case = dice.choice(DRAWN) if dice.random() < 0.05 else ""
        if not case and random.Random(f"readers {seed}").random() < 0.2:
            case = "grouped"
        if not case and random.Random(f"store {seed}").random() < 0.1:
            case = "stored"
    drawn = CASES[case](dice, draw_faulty(seed)) if case else draw_faulty(seed)
    ranks = random.Random(f"ranks {seed}").choice((1, 1, drawn.schedule.topology.consumers))
    return replace(drawn, ranks=ranks)


def _plain(drawn: Delivery, topology: Topology, data: Data, *faults: Fault) -> Delivery:
    """Return a schedule with the drawn latencies and interruptions, and no other faults."""
    schedule = replace(
        drawn.schedule, topology=topology, data=data, faults=faults, step_ms=0, timeout=60.0
    )
    return replace(drawn, schedule=schedule, chaos=(), failures=(), prefetch=0, retries=0)


def _flaky(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a dataset whose rows are in another order each time, which a replay must report."""
    data = Data(rows=(12, 9, 5), row_bytes=24, sleep_ms=dice.choice((1, 5)), flaky=True)
    restart = dice.choice(("same", "new"))
    fault = Fault("kill_all_workers", step=dice.randrange(1, 5), restart=restart)
    return replace(_plain(drawn, _ALONE, data, fault), case="flaky")


def _held(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw trainers that take the indices of others that still read; those must be fenced."""
    data = Data(rows=(40, 40), row_bytes=24, sleep_ms=50)
    plain = _plain(drawn, replace(_ALONE, ring_steps=2), data)
    return replace(plain, heartbeat=0.25, case="held")


def _restarted(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a trainer that restarts while its sidecar does not run."""
    when = dice.random() * 0.02
    chaos = ((when, "pause_sidecar", 0, 1.5), (when + dice.random() * 0.1, "crash_trainer", 0, 0.0))
    plain = _plain(drawn, _ALONE, Data(rows=(9, 6, 4), row_bytes=24))
    return replace(plain, chaos=chaos, preempt=0.3)


def _forgotten(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a dispatcher that restarts when one trainer has ended and another needs its facts."""
    topology = replace(
        _ALONE, consumers=2, workers=3, remainder="drop", ring_steps=2, seed=12345, jobs=2
    )
    fault = Fault("kill_dispatcher", step=2, delay_ms=1)
    plain = _plain(drawn, topology, Data(rows=(3, 1, 3, 13), row_bytes=24), fault)
    plain = replace(plain, preempt=0.3, stall=0.01, latency=0.0005, spike=0.03, heartbeat=1.0)
    return replace(plain, window=1000, socket_bytes=600, parallelism=4, share_bytes=1 << 20)


def _resumed(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw long splits whose workers die several times, and that resume from saved states."""
    data = Data(rows=(60, 45, 50), row_bytes=24, sleep_ms=dice.choice((2, 5)))
    restart = dice.choice(("same", "new"))
    steps = sorted(dice.sample(range(3, 24), 3))
    faults = (Fault("kill_all_workers", step=step, restart=restart) for step in steps)
    return _plain(drawn, replace(_ALONE, ring_steps=2), data, *faults)


def _idle(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw an input without workers, with the default timeout.

    Heartbeats are rare, and usually the socket has room for ten minutes of messages: otherwise
    such a schedule would cost as much as forty others.
    """
    plain = _plain(drawn, replace(_ALONE, workers=0), Data(rows=(4, 4)))
    size = dice.choice((drawn.socket_bytes, 1 << 18, 1 << 18, 1 << 18))
    schedule = replace(plain.schedule, timeout=600.0)
    return replace(plain, schedule=schedule, heartbeat=20.0, socket_bytes=size, case="idle")


def _restored(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a loop that restores a position while its iterator runs on, which must be an error."""
    data = Data(rows=(20, 20), row_bytes=24, sleep_ms=dice.choice((0, 5)))
    fault = Fault("rewind_trainer", step=dice.randrange(2, 8))
    return replace(_plain(drawn, _ALONE, data, fault), case="restored")


def _abandoned(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw loops that leave iterators, whose threads read bursts of units ahead of them."""
    data = Data(rows=(40, 40), row_bytes=24)
    faults = (Fault("rewind_trainer", step=step) for step in range(2, 14))
    plain = _plain(drawn, replace(_ALONE, ring_steps=6), data, *faults)
    return replace(plain, prefetch=4, preempt=0.5, stall=0.1)


def _resplit(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a position that is restored with another number of splits, which must be an error."""
    data = Data(rows=(10, 10, 10, 10), row_bytes=24)
    fault = Fault("crash_trainer", step=dice.randrange(2, 8), sidecars="killed")
    return replace(_plain(drawn, _ALONE, data, fault), case="resplit")


def _beside(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw sidecars that read first from the first worker, and any faults."""
    return replace(drawn, pod="own")


def _stored(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw workers that store splits, any faults, and damage of what they stored."""
    jobs, within = dice.choice((1, 2, 2)), dice.choice((0.2, 1.0, 5.0))
    topology = replace(drawn.schedule.topology, epochs=2)
    if not topology.parallel and all(
        fault.sidecars == "stay" and fault.consumers in (0, topology.consumers)
        for fault in drawn.schedule.faults
    ):  # the loops of one job do not start the sidecars of another one again
        topology = replace(topology, jobs=jobs)
    kinds = dice.choices(("damage_store", "fill_disk"), (3, 1), k=dice.choice((0, 2, 6)))
    damage = [
        (dice.random() * within, kind, dice.randrange(1 << 20), dice.random()) for kind in kinds
    ]
    return replace(
        drawn,
        schedule=replace(drawn.schedule, topology=topology),
        chaos=tuple(sorted([*drawn.chaos, *damage])),
        share_bytes=dice.choice((0, drawn.share_bytes)),
        stored=True,
    )


def _mixed(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw a mixture that stops or goes on when a source has ended, and any faults."""
    return replace(drawn, schedule=mixed(dice, drawn.schedule, most=20))


def _grouped(dice: random.Random, drawn: Delivery) -> Delivery:
    """Draw several readers of each consumer, and any faults. Sometimes one reader is slow."""
    if drawn.schedule.topology.whole:
        return drawn  # it is refused
    if dice.random() < 0.15:
        drawn = _mixed(dice, drawn)
    paces = tuple(dice.choice((0, 0, 1, 20, 200)) for _ in range(dice.choice((2, 2, 3))))
    # Such readers cannot change weights, and refuse mixtures that go on.
    epochs = dice.choice((1, 2, 2, 3))
    topology = replace(drawn.schedule.topology, epochs=epochs, changes=(), exhausted="stop")
    return replace(drawn, schedule=replace(drawn.schedule, topology=topology), paces=paces)


CASES: dict[str, Callable[[random.Random, Delivery], Delivery]] = {
    "beside": _beside,
    "flaky": _flaky,
    "held": _held,
    "restarted": _restarted,
    "forgotten": _forgotten,
    "resumed": _resumed,
    "abandoned": _abandoned,
    "stored": _stored,
    "grouped": _grouped,
    "idle": _idle,
    "restored": _restored,
    "resplit": _resplit,
    "mixed": _mixed,
}

DRAWN = ("flaky", "flaky", "held", "restarted", "restarted", "forgotten", *tuple(CASES)[-4:])
"""The cases that some seeds draw."""

GUARDS = {
    "resume_at_row_zero": "",
    "resume_one_late": "",
    "resume_one_early": "",
    "broken_stream_ends_split": "",
    "partitions_of_next_consumer": "",
    "end_without_others": "",
    "drop_without_others": "",
    "position_one_step_late": "",
    "position_one_step_early": "",
    "slots_released_early": "",
    "slots_leak": "",
    "failing_streams_wake_each_other": "",
    "shares_any_epoch": "",
    "shares_any_split": "",
    "shares_whole_blocks": "",
    "stale_units": "",
    "position_of_previous_save": "",
    "loop_takes_steps_of_the_job": "",
    "store_unchecked": "stored",
    "store_any_epoch": "stored",
    "store_any_split": "stored",
    "bursts_of_any_epoch": "abandoned",
    "digest_unchecked": "flaky",
    "shares_unchecked": "flaky",
    "no_fencing": "held",
    "ignore_fencing": "held",
    "first_messages_in_any_order": "restarted",
    "closed_partitions_forget": "forgotten",
    "returning_readers_join_the_pass": "grouped",
    "units_go_to_all_readers": "grouped",
    "first_reader_frees_the_slot": "grouped",
    "closed_readers_are_forgotten": "grouped",
}
"""Bugs of `testing.chaos.mutants`, and the case that shows each; "" for any."""
MOST_SEEDS = 400


def judge(case: str, problems: list[str], seconds: float) -> list[str]:
    """Return the problems that count."""
    if case == "flaky":
        # Without an order only losses and repetitions count, and an error is the right answer.
        if any("ReplayError" in problem for problem in problems):
            return []
        return [problem for problem in problems if "got rows" not in problem]
    if case == "idle":
        if len(problems) == 1 and "UnavailableError" in problems[0] and 590 < seconds < 700:
            return []
        return [f"no worker came, and after {seconds:.0f} s: {problems}"]
    if case == "resplit":
        if len(problems) == 1 and "PositionError" in problems[0]:
            return []
        return ["a position was restored with another number of splits", *problems]
    if case == "restored" and all("PositionError" in problem for problem in problems):
        return []
    return problems
