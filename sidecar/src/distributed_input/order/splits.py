"""Which rows a consumer gets, and when: pure functions, without I/O and clock.

The chain is split -> partition -> consumer -> step. Every link is a function of the job and the
epoch alone. So every process can compute it, and no process has to store it:

- `deal` permutes an epoch's splits by (seed, epoch) and deals them to P partitions.
- Consumer c of n owns the partitions p with p mod n == c (`partitions_of`).
- A step takes the same number of rows (`quota`) from every partition. So a global step has the same
  rows for every n that divides P. After a partition ends, its consumer continues with its other
  partitions (`batch_turns`).
- `consumed_rows` computes, from the number of steps, how many rows of each partition were consumed.
  With the lengths of completed splits, that is the whole delivery state.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

import numpy as np

from distributed_input.api.errors import ConfigError
from distributed_input.api.hashing import mix, mix_each
from distributed_input.api.topology import default_partitions as default_partitions
from distributed_input.api.topology import divisors as divisors

_ENDLESS = 1 << 62


def check_topology(rows_per_step: int, partitions: int, consumers: int) -> None:
    """Raise ConfigError with valid numbers unless n divides P and P divides G.

    Args:
        rows_per_step: G, rows in a global step.
        partitions: P.
        consumers: n, trainer processes.

    Raises:
        ConfigError: P does not divide G, or n does not divide P.
    """
    if rows_per_step % partitions:
        raise ConfigError(
            f"spec.partitions: {partitions} does not divide the global batch of {rows_per_step} "
            f"rows. Use one of {divisors(rows_per_step)}"
        )
    if partitions % consumers:
        raise ConfigError(
            f"spec.partitions: {consumers} trainers cannot divide {partitions} partitions. Use one "
            f"of {divisors(partitions)} trainers, or one of the partitions "
            f"{[d for d in divisors(rows_per_step) if d % consumers == 0] or '(none is valid)'}"
        )


def deal(seed: int, epoch: int, num_splits: int, partitions: int) -> list[list[int]]:
    """Return the splits of each partition in an epoch, in order of delivery.

    Law: the P lists together contain each split id 0..num_splits-1 exactly once, and their lengths
    differ by at most one.
    """
    key = mix(seed, epoch)
    order = sorted(range(num_splits), key=lambda split: (mix(key, split), split))
    return [order[p::partitions] for p in range(partitions)]


def place(turns: Sequence[Sequence[int]], workers: Sequence[int]) -> dict[int, int]:
    """Return the worker of each split.

    Every consumer of every job computes the same result, so that jobs with the same dataset meet at
    the same workers. The algorithm is rendezvous hashing with bounded load: a split goes to the
    worker with the highest hash among those with the fewest splits, in its turn and in total.

    Law: of m splits, no worker gets more than ceil(m / workers), neither of a turn nor in total.

    Args:
        turns: keys of the splits that are read at about the same time, by turn. Steps wait for
            the slowest split of a turn.
        workers: keys of the workers; at least one.

    Returns:
        Worker keys by split key.
    """
    found: dict[int, int] = {}
    keys = np.array(workers, np.uint64)
    total = np.zeros(len(workers), np.int64)
    for turn in turns:
        most = -(-len(turn) // len(workers))
        taken = np.zeros_like(total)
        for split in turn:
            load = np.where(taken < most, total, _ENDLESS)
            least = np.flatnonzero(load == load.min())
            best = least[mix_each(split, keys[least]).argmax()]
            found[split] = workers[best]
            taken[best] += 1
            total[best] += 1
    return found


def partitions_of(consumer: int, consumers: int, partitions: int) -> list[int]:
    """Return the partitions of consumer `consumer` of `consumers`, ascending.

    Law: the consumers together own each partition exactly once.
    """
    return list(range(consumer, partitions, consumers))


def batch_turns(
    live: Sequence[int], need: int, quota: int
) -> Generator[tuple[int, int], int, None]:
    """Yield the turns that fill one batch: (partition, requested rows).

    Send the number of rows received. Fewer rows than requested mean that the partition has ended.

    Law: while no partition ends and need == quota * len(live), each provides exactly `quota` rows.
    """
    live = list(live)
    while need and live:
        for partition in list(live):
            if not need:
                return
            requested = min(quota, need)
            got = yield partition, requested
            need -= got
            if got < requested:
                live.remove(partition)


def _take_batch(
    left: dict[int, int], live: list[int], need: int, quota: int
) -> list[tuple[int, int]]:
    """Subtract one batch from the rows `left`, and remove partitions that end from `live`.

    Returns:
        (partition, rows) of each turn, in order.
    """
    takes: list[tuple[int, int]] = []
    turns = batch_turns(live, need, quota)
    got: int | None = None
    while True:
        try:
            partition, requested = next(turns) if got is None else turns.send(got)
        except StopIteration:
            return takes
        got = min(requested, left[partition])
        left[partition] -= got
        takes.append((partition, got))
        if got < requested:
            live.remove(partition)


def consumed_rows(
    base: Mapping[int, int],
    totals: Mapping[int, int | None],
    steps: int,
    batch: int,
    quota: int,
    extra: int = 0,
) -> dict[int, int]:
    """Return the rows of each partition that a consumer has consumed after `steps` more batches.

    Law: consuming k steps and then m steps gives the same result as consuming k + m steps.

    Args:
        base: rows of each of the consumer's partitions consumed before these steps.
        totals: rows of each partition in this epoch; None if unknown, which counts as endless.
        steps: batches taken since `base`.
        batch: rows in the consumer's batch.
        quota: rows that a turn takes from a partition.
        extra: consumed rows of the next batch, whose other rows are not consumed.
    """
    left = {}
    for p in sorted(base):
        total = totals.get(p)
        left[p] = _ENDLESS if total is None else max(0, total - base[p])
    start = dict(left)
    live = list(left)
    while steps and live:
        endless = dict.fromkeys(live, _ENDLESS)
        _take_batch(endless, list(live), batch, quota)
        takes = {p: _ENDLESS - rows for p, rows in endless.items()}
        # While no partition ends, every batch takes the same rows. Subtract many batches at once.
        run = min(steps, *(left[p] // take for p, take in takes.items() if take))
        for p, take in takes.items():
            left[p] -= take * run
        steps -= run
        if steps:
            _take_batch(left, live, batch, quota)
            steps -= 1
    _take_batch(left, live, extra, quota)
    return {p: base[p] + start[p] - left[p] for p in base}


def batch_takes(
    consumed: Mapping[int, int], totals: Mapping[int, int | None], batch: int, quota: int
) -> list[tuple[int, int, int]]:
    """Return what a consumer takes as its next batch: (partition, rows before, rows), in order.

    Law: it has what `consumed_rows` adds for one more step.

    Args:
        consumed: rows of each of the consumer's partitions consumed before, as by `consumed_rows`.
        totals: see `consumed_rows`.
        batch: see `consumed_rows`.
        quota: see `consumed_rows`.
    """
    left = {}
    for p in sorted(consumed):
        total = totals.get(p)
        left[p] = _ENDLESS if total is None else max(0, total - consumed[p])
    before, found = dict(consumed), []
    for p, rows in _take_batch(left, list(left), batch, quota):
        if rows:
            found.append((p, before[p], rows))
            before[p] += rows
    return found
