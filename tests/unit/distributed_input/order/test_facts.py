"""Merging of facts: independent of the order, growing, and without contradictions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.order.facts import FactStore, PartitionKnowledge
from tests.unit.distributed_input.dispatcher.builders import PARTITIONS, SPLITS, fact


def all_of(known: FactStore) -> list[PartitionFact]:
    return known.messages(0, lambda partition: True)


def test_the_longest_prefix_and_the_most_rows_are_kept():
    known = FactStore()
    assert known.merge([fact(0, [5, 6], rows_seen=12)]) == []
    assert known.merge([fact(0, [5], rows_seen=7)]) == []
    assert known.merge([fact(0, [5, 6, 7], rows_seen=18)]) == []
    assert all_of(known) == [fact(0, [5, 6, 7], rows_seen=18)]


def test_the_end_of_a_partition_is_kept():
    known = FactStore()
    known.merge([fact(0, [5], rows_seen=5, ended=True)])
    known.merge([fact(0, [5], rows_seen=5)])
    assert all_of(known) == [fact(0, [5], rows_seen=5, ended=True)]


def test_the_maximum_of_remade_rows_is_kept_and_returned():
    known = FactStore()
    for remade in (3, 9, 0):
        found = fact(0, [5], rows_seen=7)
        found.remade = remade
        known.merge([found])
    assert [found.remade for found in all_of(known)] == [9]


def test_ranges_join_when_the_splits_between_them_are_known():
    known = FactStore()
    known.merge([fact(0, [1, 2], rows_seen=3)])
    known.merge([fact(0, [5], first_ordinal=4, first_rows=10, rows_seen=20)])
    assert all_of(known) == [
        fact(0, [1, 2], rows_seen=20),
        fact(0, [5], first_ordinal=4, first_rows=10, rows_seen=20),
    ]
    known.merge([fact(0, [3, 4], first_ordinal=2, first_rows=3)])
    assert all_of(known) == [fact(0, [1, 2, 3, 4, 5], rows_seen=20)]


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (fact(0, [5, 7]), "length"),
        (fact(0, [5, 6, 1], first_rows=1), "length"),
        (fact(0, [], first_ordinal=4, first_rows=10), "order"),
        (fact(0, [5, 6], rows_seen=11, ended=True), "number of rows"),
    ],
)
def test_a_contradicting_report_is_rejected_as_a_whole(second, problem):
    known = FactStore()
    known.merge([fact(0, [5, 6], rows_seen=12)])
    (reported,) = known.merge([second])
    assert problem in reported
    assert "epoch 0, partition 0" in reported
    assert all_of(known) == [fact(0, [5, 6], rows_seen=12)]


@pytest.mark.parametrize(
    "second",
    [
        fact(0, [5], rows_seen=6),
        fact(0, [5], rows_seen=4, ended=True),
        fact(0, [5], rows_seen=9, ended=True),
        fact(0, [5, 1]),
    ],
)
def test_rows_after_the_end_are_a_contradiction(second):
    known = FactStore()
    known.merge([fact(0, [5], rows_seen=5, ended=True)])
    assert len(known.merge([second])) == 1
    assert all_of(known) == [fact(0, [5], rows_seen=5, ended=True)]


def test_facts_of_epochs_that_are_over_are_forgotten():
    known = FactStore()
    known.merge([fact(0, [e + 1], epoch=e) for e in range(8)])
    assert len(all_of(known)) == 8
    known.forget(5)
    assert len(known._messages) == 3, "no memory is used for the others"
    assert [f.epoch for f in all_of(known)] == [5, 6, 7]
    assert [f.epoch for f in known.messages(6, lambda p: True)] == [6, 7]
    assert known.messages(6, lambda p: p != 0) == []


def test_the_number_of_epochs_is_bounded():
    known = FactStore()
    for epoch in range(100):
        known.merge([fact(0, [1], epoch=epoch)])
        known.forget(0, most_epochs=3)
    assert [f.epoch for f in all_of(known)] == [97, 98, 99]


@st.composite
def true_reports(draw: st.DrawFn) -> tuple[list[int], list[PartitionFact]]:
    """Draw the lengths of a partition's splits, and true reports about them."""
    lengths = draw(st.lists(st.integers(0, 9), max_size=SPLITS))
    total = sum(lengths)
    reports = []
    for _ in range(draw(st.integers(0, 12))):
        first = draw(st.integers(0, len(lengths)))
        last = draw(st.integers(first, len(lengths)))
        ended = draw(st.booleans()) and last == len(lengths)
        before = sum(lengths[:last])
        reports.append(
            PartitionFact(
                first_ordinal=first,
                first_rows=sum(lengths[:first]),
                split_rows=lengths[first:last],
                rows_seen=total if ended else draw(st.integers(0, total)),
                ended=ended,
            )
        )
        assert before <= total
    return lengths, reports


@given(true_reports(), st.randoms(use_true_random=False))
def test_true_reports_merge_to_the_same_facts_in_any_order(drawn, random):
    lengths, reports = drawn
    known, shuffled = FactStore(), FactStore()
    borders: set[tuple[int, int]] = set()
    rows, ended = 0, False
    for report in reports:
        assert known.merge([report]) == []
        found = all_of(known)
        now = {
            (f.first_ordinal + i, f.first_rows + sum(f.split_rows[:i]))
            for f in found
            for i in range(len(f.split_rows) + 1)
        }
        assert now >= borders
        assert now <= {(i, sum(lengths[:i])) for i in range(len(lengths) + 1)}
        assert all(f.rows_seen >= rows and (f.ended or not ended) for f in found)
        borders, rows, ended = now, found[0].rows_seen, found[0].ended
    for report in random.sample(reports * 2, len(reports) * 2):
        assert shuffled.merge([report]) == []
    assert all_of(shuffled) == all_of(known)


@given(
    st.lists(
        st.builds(
            PartitionFact,
            partition=st.integers(0, PARTITIONS - 1),
            epoch=st.integers(0, 5),
            first_ordinal=st.integers(0, 4),
            first_rows=st.integers(0, 20),
            split_rows=st.lists(st.integers(0, 9), max_size=4),
            rows_seen=st.integers(0, 40),
            ended=st.booleans(),
        )
    )
)
def test_returned_facts_are_consistent_for_any_reports(reports):
    """Another store can merge all returned facts without a contradiction."""
    known, other = FactStore(), FactStore()
    for report in reports:
        known.merge([report])
        assert other.merge(all_of(known)) == []
    assert all_of(other) == all_of(known)


def test_the_last_border_is_at_or_before_the_rows() -> None:
    known = PartitionKnowledge().merge(fact(0, [3, 4]))
    borders = [known.last_border(rows) for rows in (0, 2, 3, 6, 7, 100)]
    assert borders == [(0, 0), (0, 0), (1, 3), (1, 3), (2, 7), (2, 7)]


def test_facts_of_other_epochs_and_partitions_are_separate() -> None:
    known = FactStore()
    known.merge([fact(0, [3]), fact(1, [4]), fact(0, [5], epoch=1)])
    seen = [known.of(epoch, p).rows_seen for epoch, p in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert seen == [3, 4, 5, 0]


def test_a_snapshot_does_not_change_with_later_facts() -> None:
    known = FactStore()
    known.merge([fact(0, [3])])
    before = known.of(0, 0)
    known.merge([fact(0, [3, 4])])
    assert before.borders == {0: 0, 1: 3}
    assert known.of(0, 0).borders == {0: 0, 1: 3, 2: 7}


def test_facts_behind_a_contradiction_are_merged() -> None:
    known = FactStore()
    known.merge([fact(0, [3])])
    assert len(known.merge([fact(0, [4]), fact(1, [5])])) == 1
    assert known.of(0, 1).rows_seen == 5
