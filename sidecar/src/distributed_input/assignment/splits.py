"""Which rows a consumer gets, and when: pure functions, no I/O, no clock.

The chain is split -> partition -> consumer -> step. Every link is a function of the
job and the epoch alone, so that any process can compute it and none has to remember it:

- `deal` permutes an epoch's splits by (seed, epoch) and deals them to P partitions;
- consumer c of n owns the partitions p with p mod n == c (`partitions_of`);
- a step takes the same number of rows (`quota`) from every partition, so a global step is
  the same set of rows for every n that divides P; where a partition has ended, its
  consumer goes on with its other ones (`batch_turns`);
- `consumed_rows` says, from the number of steps alone, how many rows of each partition
  have gone: with the lengths of completed splits that is the whole delivery state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence

from distributed_input.api.errors import ConfigError
from distributed_input.api.hashing import mix

_ENDLESS = 1 << 62


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def default_partitions(rows_per_step: int) -> int:
    """P where the user names none: the largest divisor of the global batch that is at most 8.

    Eight serves 1, 2, 4 and 8 trainers; more partitions cost more open splits.
    """
    return max(d for d in divisors(rows_per_step) if d <= 8)


def check_topology(rows_per_step: int, partitions: int, consumers: int) -> None:
    """Refuse a number that does not fit, naming those that do.

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
            f"rows; choose one of {divisors(rows_per_step)}, or set spec.order: any"
        )
    if partitions % consumers:
        raise ConfigError(
            f"{consumers} trainers do not divide the job's {partitions} partitions; run one of "
            f"{divisors(partitions)} trainers, or choose spec.partitions among "
            f"{[d for d in divisors(rows_per_step) if d % consumers == 0] or 'none that fits'}, "
            f"or set spec.order: any"
        )


def deal(seed: int, epoch: int, num_splits: int, partitions: int) -> list[list[int]]:
    """The splits of each partition in an epoch, in order of delivery.

    Returns:
        P lists that together hold each split id 0..num_splits-1 exactly once; their
        lengths differ by at most one.
    """
    key = mix(seed, epoch)
    order = sorted(range(num_splits), key=lambda split: (mix(key, split), split))
    return [order[p::partitions] for p in range(partitions)]


def place(turns: Sequence[Sequence[int]], workers: Sequence[int]) -> dict[int, int]:
    """Which worker makes which split: the same for every consumer of every job, so that jobs of
    one dataset meet at the same worker, and no worker gets two more than another.

    Rendezvous hashing with bounded load: a split goes to the worker of the highest hash among
    those that have the fewest of its turn, and of all.

    Args:
        turns: keys of the splits that are read at about the same time, by turn: lockstep waits for
            the slowest of a turn.
        workers: keys; at least one.

    Returns:
        A worker's key for each split's.
    """
    found: dict[int, int] = {}
    total: Counter[int] = Counter()
    for turn in turns:
        most = -(-len(turn) // len(workers))
        taken: Counter[int] = Counter()
        for split in turn:
            free = [key for key in workers if taken[key] < most]
            least = min(total[key] for key in free)
            best = max(
                (key for key in free if total[key] <= least), key=lambda key: mix(split, key)
            )
            found[split] = best
            taken[best] += 1
            total[best] += 1
    return found


def partitions_of(consumer: int, consumers: int, partitions: int) -> list[int]:
    """The partitions that consumer `consumer` of `consumers` owns, ascending."""
    return list(range(consumer, partitions, consumers))


def batch_turns(
    live: Sequence[int], need: int, quota: int
) -> Generator[tuple[int, int], int, None]:
    """The turns that fill one batch: yields (partition, rows wanted), is sent the rows got.

    Fewer rows than wanted mean that the partition has ended. While all partitions live and
    need == quota * len(live), each gives exactly `quota` rows.
    """
    live = list(live)
    while need and live:
        for partition in list(live):
            if not need:
                return
            want = min(quota, need)
            got = yield partition, want
            need -= got
            if got < want:
                live.remove(partition)


def _take_batch(left: dict[int, int], live: list[int], need: int, quota: int) -> None:
    """Take one batch out of the rows `left`; a partition that ends leaves `live`."""
    turns = batch_turns(live, need, quota)
    got: int | None = None
    while True:
        try:
            partition, want = next(turns) if got is None else turns.send(got)
        except StopIteration:
            return
        got = min(want, left[partition])
        left[partition] -= got
        if got < want:
            live.remove(partition)


def consumed_rows(
    base: Mapping[int, int],
    totals: Mapping[int, int | None],
    steps: int,
    batch: int,
    quota: int,
    extra: int = 0,
) -> dict[int, int]:
    """Rows of each partition that one consumer has consumed after `steps` more batches.

    Args:
        base: rows of each of the consumer's partitions consumed before these steps.
        totals: rows that each has in this epoch, or None where that is not known; such a
            partition counts as endless.
        steps: batches taken since `base`.
        batch: rows in the consumer's batch.
        quota: rows that a turn takes from a partition.
        extra: rows of one batch more, whose rest is not consumed.
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
        # While nothing ends every batch takes the same, so whole runs of them go at once.
        run = min(steps, *(left[p] // take for p, take in takes.items() if take))
        for p, take in takes.items():
            left[p] -= take * run
        steps -= run
        if steps:
            _take_batch(left, live, batch, quota)
            steps -= 1
    _take_batch(left, live, extra, quota)
    return {p: base[p] + start[p] - left[p] for p in base}
