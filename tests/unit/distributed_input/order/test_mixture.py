"""The order of the sources of a mixture, compared with simple models."""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import mixture
from distributed_input.order.mixture import Mixer

WEIGHTS = st.lists(st.integers(0, 12), min_size=1, max_size=8).filter(any).map(tuple)


def job(partitions: int = 4, batch: int = 16, sources: int = 3) -> types_pb2.Job:
    return types_pb2.Job(
        seed=7,
        partitions=partitions,
        global_batch_size=batch,
        sources=[types_pb2.Job(num_splits=partitions) for _ in range(sources)],
    )


def entry(step: int, *weights: int) -> types_pb2.Weights:
    return types_pb2.Weights(step=step, weights=weights)


def check_shares(weights: tuple[int, ...]) -> None:
    rows, period = Counter[int](), sum(weights)
    for j, source in enumerate(mixture.pattern(weights), 1):
        rows[source] += 1
        assert all(abs(rows[s] * period - j * w) < period for s, w in enumerate(weights))
    assert rows == Counter({s: w for s, w in enumerate(weights) if w})


@given(WEIGHTS)
def test_each_source_has_its_share_within_one_row_in_every_prefix(weights: tuple[int, ...]) -> None:
    check_shares(weights)


def test_all_small_patterns_have_the_shares() -> None:
    for weights in itertools.product(range(7), repeat=4):
        if any(weights):
            check_shares(weights)


@given(WEIGHTS, st.integers(0, 300))
def test_taken_rows_are_those_of_the_repeated_pattern(weights: tuple[int, ...], rows: int) -> None:
    first = Counter(itertools.islice(itertools.cycle(mixture.pattern(weights)), rows))
    assert mixture.taken(weights, np.array(rows)).tolist() == [
        first[s] for s in range(len(weights))
    ]


@pytest.mark.parametrize(
    ("weights", "whole"),
    [
        ([0.7, 0.2, 0.1], (7, 2, 1)),
        ([2, 4], (1, 2)),
        ([1, 0], (1, 0)),
        ([1 / 3, 2 / 3], (1, 2)),
        ([0.1234567, 0.8765433], (247, 1753)),  # 1,235 and 8,765 of 10,000
        ([1e-9, 1, 1e9], (1, 1, 9998)),
        ([5_000, 5_000.5], (1, 1)),
    ],
)
def test_weights_become_whole_numbers(weights: list[float], whole: tuple[int, ...]) -> None:
    assert mixture.whole_weights(weights) == whole


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=64).filter(any))
def test_rounded_weights_have_an_error_below_one_part(weights: list[int]) -> None:
    whole, total = mixture.whole_weights(weights), sum(weights)
    assert sum(whole) <= mixture.MOST_PARTS
    assert [one > 0 for one in whole] == [one > 0 for one in weights]
    assert mixture.whole_weights(whole) == whole
    for one, exact in zip(whole, weights, strict=True):
        share = Fraction(one, sum(whole)) - Fraction(exact, total)
        assert abs(share) < Fraction(65, mixture.MOST_PARTS)


@given(WEIGHTS, st.sampled_from([1, 2, 4, 8]), st.integers(1, 6), st.integers(0, 40))
def test_a_step_has_the_next_rows_and_as_many_of_each_partition(
    weights: tuple[int, ...], partitions: int, each: int, step: int
) -> None:
    batch = partitions * each
    mixer = Mixer(job(partitions, batch, len(weights)), [entry(0, *weights)])
    takes = mixer.takes(step).reshape(len(weights), partitions)
    assert takes.sum(0).tolist() == [each] * partitions
    cycle = itertools.cycle(mixture.pattern(weights))
    rows = Counter(itertools.islice(cycle, step * batch, (step + 1) * batch))
    assert takes.sum(1).tolist() == [rows[s] for s in range(len(weights))]


def test_a_partition_gets_its_share_of_each_source_although_the_pattern_fits_the_step() -> None:
    """Row j comes from source j mod 2, and each partition gives one row to a step of 8 rows."""
    mixer, rows = Mixer(job(8, 8, 2), [entry(0, 1, 1)]), np.zeros(16, np.int64)
    rows = mixer.rows_at(4000, 0, rows)
    assert rows.sum() == 32_000
    assert (abs(rows - 2000) < 200).all()


def test_rows_of_lists_add_up_over_steps_and_changes_of_weights() -> None:
    log = [entry(0, 1, 2, 3), entry(10, 5, 0, 1), entry(11, 0, 0, 1)]
    mixer, start = Mixer(job(), log), np.zeros(12, np.int64)
    expected = [start]
    for step in range(20):
        expected.append(expected[-1] + mixer.takes(step))
    for step in (0, 12, 3, 20):
        assert mixer.rows_at(step, 0, start).tolist() == expected[step].tolist()
    other = Mixer(job(), log)
    assert other.rows_at(20, 5, expected[5]).tolist() == expected[20].tolist()
    by_source = (expected[11] - expected[10]).reshape(3, 4).sum(1)
    assert by_source.tolist() in ([13, 0, 3], [14, 0, 2])
    assert (expected[20] - expected[11]).reshape(3, 4).sum(1).tolist() == [0, 0, 144]


@pytest.mark.parametrize("consumers", [1, 2, 4])
def test_the_consumers_together_take_each_list_once_in_a_step(consumers: int) -> None:
    mixer = Mixer(job(), [entry(0, 3, 2, 1)])
    takes, found = mixer.takes(5), Counter[int]()
    for consumer in range(consumers):
        own = range(consumer, 12, consumers)
        taken = list(mixture.turns(own, 3, takes))
        assert sum(rows for _, rows in taken) == 16 // consumers
        assert [one % 4 for one, _ in taken] == sorted(one % 4 for one, _ in taken)
        found.update(dict(taken))
    assert [found[one] for one in range(12)] == takes.tolist()


def test_a_changed_schedule_counts_from_the_step_of_the_restore() -> None:
    log, schedule = (
        [entry(0, 1, 1), entry(4, 3, 1)],
        [entry(0, 1, 2), entry(3, 1, 9), entry(8, 1, 1)],
    )
    changed = mixture.log_after(5, log, schedule)
    assert changed == [entry(0, 1, 1), entry(4, 3, 1), entry(5, 1, 9), entry(8, 1, 1)]
    assert mixture.log_after(4, log, schedule)[1] == entry(4, 1, 9)


def named(*names: str) -> types_pb2.Job:
    sources = [types_pb2.Job(entry_point=types_pb2.EntryPoint(source=name)) for name in names]
    return types_pb2.Job(name="train", sources=sources, weights=[entry(0, 1, 1), entry(9, 1, 2)])


def test_weights_are_set_from_the_next_step_on_and_replace_the_schedule() -> None:
    position = trainer_pb2.Position(step=4)
    mixture.set_weights(position, named("a", "b"), {"b": 3, "a": 0.5})
    assert list(position.weights) == [entry(0, 1, 1), entry(4, 1, 6)]
    assert not mixture.has_other_weights(position, named("a", "b"))
    position.step, position.extra_units = 6, 1
    mixture.set_weights(position, named("a", "b"), {"b": 1, "a": 0})
    assert list(position.weights) == [entry(0, 1, 1), entry(4, 1, 6), entry(7, 0, 1)]
    start = trainer_pb2.Position()
    mixture.set_weights(start, named("a", "b"), {"b": 1, "a": 0})
    assert list(start.weights) == [entry(0, 0, 1)]


@pytest.mark.parametrize(
    ("names", "weights", "message"),
    [
        ("", {"a": 1}, "input train is no mixture"),
        ("ab", {"a": 1}, "the sources are a, b, not a"),
        ("ab", {"a": 1, "b": -1}, "the weight of b is -1"),
        ("ab", {"a": 1, "b": float("nan")}, "the weight of b is nan"),
        ("ab", {"a": 1, "b": "2"}, "the weight of b is 2"),
        ("ab", {"a": 1, 2: 2}, "the sources are a, b, not a, 2"),
        ("ab", ["a", "b"], "pass the weight of each source by its name"),
        ("ab", {"a": 0, "b": 0}, "all weights are 0"),
    ],
)
def test_invalid_weights_are_refused(names: str, weights: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        mixture.set_weights(trainer_pb2.Position(), named(*names), weights)


def test_a_position_needs_no_weights_from_before_its_base() -> None:
    log = [entry(0, 1, 1), entry(3, 1, 2), entry(7, 1, 3)]
    assert [mixture.log_from(step, log) for step in (0, 2, 3, 6, 7, 9)] == [
        *(log, log, log[1:], log[1:], log[2:], log[2:])
    ]


@pytest.mark.parametrize(
    "log",
    [
        [entry(0, 1)],  # of another number of sources
        [entry(6, 1, 1)],  # none in force at the base
        [entry(4, 1, 1), entry(0, 1, 1)],
        [entry(4, 1, 1), entry(4, 1, 2)],
        [entry(0, 0, 0)],
        [entry(0, 1, mixture.MOST_PARTS)],
    ],
)
def test_damaged_weights_of_a_position_are_found(log: list[types_pb2.Weights]) -> None:
    assert not mixture.is_log(log, 2, 5)


def test_weights_of_a_position_are_accepted() -> None:
    assert mixture.is_log([], 2, 5)
    assert mixture.is_log([entry(3, 1, 2), entry(9, 0, 1)], 2, 5)


@given(WEIGHTS, st.integers(0, 30), st.integers(0, 30), st.integers(1, 9))
def test_the_rows_of_several_steps_are_the_sum_of_theirs(
    weights: tuple[int, ...], first: int, steps: int, change: int
) -> None:
    log = [entry(0, *weights), entry(first + change, *reversed(weights))]
    mixer = Mixer(job(4, 12, len(weights)), log)
    expected = sum((mixer.takes(one) for one in range(first, first + steps)), np.zeros(1, int))
    assert (mixer.between(first, first + steps) == expected).all()


def test_sources_are_left_out_from_a_step_on() -> None:
    log = [
        types_pb2.Weights(step=at, weights=weights)
        for at, weights in ((0, [1, 2, 3]), (5, [2, 4, 0]), (9, [0, 0, 1]), (12, [1, 1, 1]))
    ]

    def left(step: int, *sources: int) -> list[tuple[int, list[int]]]:
        return [(one.step, list(one.weights)) for one in mixture.without(log, step, sources)]

    first = (0, [1, 2, 3])
    assert left(3, 2) == [first, (3, [1, 2, 0]), (5, [1, 2, 0]), (12, [1, 1, 0])]
    assert left(5, 0) == [first, (5, [0, 1, 0]), (9, [0, 0, 1]), (12, [0, 1, 1])]
    assert left(3, 1, 2) == [first, (3, [1, 0, 0]), (5, [1, 0, 0]), (12, [1, 0, 0])]
    assert left(10, 0) == [
        *(first, (5, [2, 4, 0]), (9, [0, 0, 1])),
        *((10, [0, 0, 1]), (12, [0, 1, 1])),
    ]
    assert left(10, 2) == []
    assert left(3, 0, 1, 2) == []


def test_many_steps_are_computed_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    mixer = Mixer(job(), [entry(0, 1, 2, 3)])
    expected = mixer.between(3, 40)
    monkeypatch.setattr(mixture, "_MOST_STEPS", 5)
    assert mixer.between(3, 40).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("weights", "name", "share"),
    [
        ({"a": 1, "b": 1e-7}, "b", "0.0001 and not 1e-07"),
        ({"a": 0.9, "b": 0.09985, "c": 0.00015}, "c", "0.0001 and not 0.00015"),
    ],
)
def test_weights_that_are_rounded_much_are_named(weights, name, share) -> None:
    assert f"the weight of {name} is rounded: its share is {share}" in mixture.rounding(weights)


@pytest.mark.parametrize(
    "weights", [{"a": 1}, {"a": 0.2, "b": 0.8}, {"a": 0, "b": 3}, {"a": 1 / 3, "b": 2 / 3}]
)
def test_weights_that_keep_their_shares_are_not_named(weights) -> None:
    assert mixture.rounding(weights) == ""
