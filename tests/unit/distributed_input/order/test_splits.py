"""Laws of the assignment of rows to consumers and steps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.order import splits as assignment

Row = tuple[int, int]  # partition, index


def deliver(
    lengths: list[int], consumers: int, batch: int, start: dict[int, int] | None = None
) -> list[list[list[Row]]]:
    """Return the delivered rows by consumer and step, computed step by step."""
    partitions = len(lengths)
    quota = batch * consumers // partitions
    out = []
    for consumer in range(consumers):
        own = assignment.partitions_of(consumer, consumers, partitions)
        at = {p: (start or {}).get(p, 0) for p in own}
        live, steps = list(own), []
        while True:
            rows: list[Row] = []
            turns = assignment.batch_turns(live, batch, quota)
            got: int | None = None
            while True:
                try:
                    p, want = next(turns) if got is None else turns.send(got)
                except StopIteration:
                    break
                got = min(want, lengths[p] - at[p])
                rows += [(p, at[p] + i) for i in range(got)]
                at[p] += got
                if got < want:
                    live = [q for q in live if q != p]
            if not rows:
                break
            steps.append(rows)
        out.append(steps)
    return out


@st.composite
def topologies(draw: st.DrawFn) -> tuple[list[int], int, int]:
    """(rows of each partition, consumers, rows in a consumer's batch)."""
    consumers = draw(st.sampled_from([1, 2, 4]))
    partitions = consumers * draw(st.integers(1, 3))
    quota = draw(st.integers(1, 4))
    lengths = draw(st.lists(st.integers(0, 30), min_size=partitions, max_size=partitions))
    return lengths, consumers, quota * partitions // consumers


@given(st.integers(0, 2**63), st.integers(0, 100), st.integers(1, 300), st.integers(1, 16))
def test_deal_returns_every_split_once(seed: int, epoch: int, splits: int, parts: int) -> None:
    dealt = assignment.deal(seed, epoch, splits, parts)
    assert len(dealt) == parts
    assert sorted(s for partition in dealt for s in partition) == list(range(splits))
    sizes = [len(partition) for partition in dealt]
    assert max(sizes) - min(sizes) <= 1


def test_deal_differs_by_epoch_and_seed() -> None:
    deals = [assignment.deal(s, e, 64, 8) for s in (0, 1) for e in (0, 1, 2)]
    assert len({str(deal) for deal in deals}) == len(deals)


def test_deal_is_the_same_in_every_version() -> None:
    assert assignment.deal(7, 3, 12, 4) == [[5, 10, 9], [11, 0, 4], [8, 6, 2], [1, 3, 7]]


@given(st.integers(1, 16), st.integers(1, 64))
def test_every_partition_has_one_owner(consumers: int, partitions: int) -> None:
    owned = [assignment.partitions_of(c, consumers, partitions) for c in range(consumers)]
    assert sorted(p for own in owned for p in own) == list(range(partitions))


@given(topologies())
def test_every_row_is_delivered_once(topology: tuple[list[int], int, int]) -> None:
    lengths, consumers, batch = topology
    rows = Counter(
        row for steps in deliver(lengths, consumers, batch) for step in steps for row in step
    )
    assert rows == Counter((p, i) for p, n in enumerate(lengths) for i in range(n))


@given(topologies())
def test_only_the_last_batch_of_a_consumer_is_partial(topology: tuple[list[int], int, int]) -> None:
    lengths, consumers, batch = topology
    for steps in deliver(lengths, consumers, batch):
        assert all(len(step) == batch for step in steps[:-1])


@given(topologies(), st.data())
def test_a_step_is_the_same_set_of_rows_on_any_topology(
    topology: tuple[list[int], int, int], data: st.DataObject
) -> None:
    lengths, consumers, batch = topology
    partitions, rows = len(lengths), batch * consumers
    quota = rows // partitions
    other = data.draw(st.sampled_from(assignment.divisors(partitions)))
    here = deliver(lengths, consumers, batch)
    there = deliver(lengths, other, rows // other)
    for step in range(min(lengths) // quota):
        ours = {row for steps in here for row in steps[step]}
        theirs = {row for steps in there for row in steps[step]}
        assert ours == theirs
        assert len(ours) == rows


@given(topologies(), st.integers(0, 40), st.booleans())
@settings(max_examples=300)
def test_consumed_rows_are_a_function_of_the_step(
    topology: tuple[list[int], int, int], steps: int, all_known: bool
) -> None:
    lengths, consumers, batch = topology
    quota = batch * consumers // len(lengths)
    for consumer, delivered in enumerate(deliver(lengths, consumers, batch)):
        own = assignment.partitions_of(consumer, consumers, len(lengths))
        gone = Counter(row[0] for step in delivered[:steps] for row in step)
        ended = {p for p in own if gone[p] == lengths[p]}
        totals = {p: lengths[p] if all_known or p in ended else None for p in own}
        if steps > len(delivered) and not all_known:
            continue
        base = dict.fromkeys(own, 0)
        assert assignment.consumed_rows(base, totals, steps, batch, quota) == {
            p: gone[p] for p in own
        }


@given(topologies(), st.integers(0, 20), st.data())
def test_a_restored_run_delivers_exactly_the_rest_on_any_topology(
    topology: tuple[list[int], int, int], steps: int, data: st.DataObject
) -> None:
    lengths, consumers, batch = topology
    partitions, rows = len(lengths), batch * consumers
    quota = rows // partitions
    totals: dict[int, int | None] = dict(enumerate(lengths))
    start: dict[int, int] = {}
    before: Counter[Row] = Counter()
    for consumer, delivered in enumerate(deliver(lengths, consumers, batch)):
        own = assignment.partitions_of(consumer, consumers, partitions)
        base = dict.fromkeys(own, 0)
        start |= assignment.consumed_rows(base, totals, steps, batch, quota)
        before.update(row for step in delivered[:steps] for row in step)
    other = data.draw(st.sampled_from(assignment.divisors(partitions)))
    after = Counter(
        row
        for delivered in deliver(lengths, other, rows // other, start)
        for step in delivered
        for row in step
    )
    assert before + after == Counter((p, i) for p, n in enumerate(lengths) for i in range(n))


@given(topologies(), st.integers(0, 20), st.data())
def test_rows_of_a_partial_step_are_counted_in_order(
    topology: tuple[list[int], int, int], steps: int, data: st.DataObject
) -> None:
    lengths, consumers, batch = topology
    quota = batch * consumers // len(lengths)
    extra = data.draw(st.integers(0, batch - 1))
    for consumer, delivered in enumerate(deliver(lengths, consumers, batch)):
        own = assignment.partitions_of(consumer, consumers, len(lengths))
        rows = [row for step in delivered[:steps] for row in step]
        rows += [row for step in delivered[steps : steps + 1] for row in step][:extra]
        gone = Counter(p for p, _ in rows)
        totals: dict[int, int | None] = {p: lengths[p] for p in own}
        base = dict.fromkeys(own, 0)
        counted = assignment.consumed_rows(base, totals, steps, batch, quota, extra)
        assert counted == {p: gone[p] for p in own}


@pytest.mark.parametrize(
    ("rows", "expected"), [(64, 8), (32, 8), (100, 5), (7, 7), (97, 1), (1, 1), (12, 6)]
)
def test_default_partitions(rows: int, expected: int) -> None:
    assert assignment.default_partitions(rows) == expected


def test_an_error_has_the_valid_numbers() -> None:
    with pytest.raises(ConfigError, match=r"spec\.partitions: 5 .* \[1, 2, 4, 8, 16, 32, 64\]"):
        assignment.check_topology(64, 5, 1)
    with pytest.raises(ConfigError, match=r"3 trainers .* one of \[1, 2, 4, 8\] trainers"):
        assignment.check_topology(64, 8, 3)


keys = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=12, unique=True)


@given(
    st.lists(st.none() | st.integers(0, 30), min_size=1, max_size=4),
    st.integers(1, 12),
    st.integers(0, 5),
    st.integers(0, 5),
)
def test_consumed_rows_of_two_stretches_of_steps_add_up(
    totals: list[int | None], batch: int, first: int, second: int
) -> None:
    known = dict(enumerate(totals))
    base, quota = dict.fromkeys(known, 0), max(1, batch // len(known))
    half = assignment.consumed_rows(base, known, first, batch, quota)
    assert assignment.consumed_rows(half, known, second, batch, quota) == assignment.consumed_rows(
        base, known, first + second, batch, quota
    )


turns = st.lists(st.integers(0, 999), unique=True, max_size=60).flatmap(
    lambda splits: st.integers(1, 8).map(
        lambda parts: [splits[at : at + parts] for at in range(0, len(splits), parts)]
    )
)


@given(turns, keys, st.randoms())
def test_splits_are_placed_evenly_and_equally_for_every_caller(
    turns: list[list[int]], workers: list[int], shuffled: Any
) -> None:
    found = assignment.place(turns, workers)
    assert sorted(found) == sorted(split for turn in turns for split in turn)
    for some in [*turns, list(found)]:
        loads = Counter(found[split] for split in some)
        counts = [loads[key] for key in workers]
        assert max(counts) - min(counts) <= 1 or some in turns[1:]
        assert max(counts) <= -(-len(some) // len(workers))
    others = list(workers)
    shuffled.shuffle(others)
    assert assignment.place(turns, others) == found


@given(turns, keys)
def test_placement_does_not_depend_on_later_turns(
    turns: list[list[int]], workers: list[int]
) -> None:
    found = assignment.place(turns, workers)
    before = assignment.place(turns[:-1], workers)
    assert all(found[split] == worker for split, worker in before.items())
