from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations

from distributed_input.sidecar.steps.partition_facts import PartitionFacts, PartitionKnowledge
from tests.unit.distributed_input.dispatcher.builders import fact


def test_facts_in_any_order_give_the_same_knowledge() -> None:
    reports = [
        fact(0, [3], rows_seen=5, remade=2),
        fact(0, [4, 2], rows_seen=9, first_ordinal=1, first_rows=3),
        fact(0, rows_seen=9, ended=True, first_ordinal=3, first_rows=9),
    ]
    results = []
    for order in permutations(reports):
        known = PartitionKnowledge()
        for report in order:
            known.merge(report)
        results.append(known)
    borders = {0: 0, 1: 3, 2: 7, 3: 9}
    assert results == [PartitionKnowledge(borders, 9, True, 2)] * len(results)


def test_the_rows_of_known_splits_are_a_lower_bound() -> None:
    known = PartitionKnowledge()
    known.merge(fact(0, [3, 4], rows_seen=1))
    assert (known.rows_seen, known.ended) == (7, False)


def test_the_last_border_is_at_or_before_the_rows() -> None:
    known = PartitionKnowledge()
    known.merge(fact(0, [3, 4]))
    borders = [known.last_border(rows) for rows in (0, 2, 3, 6, 7, 100)]
    assert borders == [(0, 0), (0, 0), (1, 3), (1, 3), (2, 7), (2, 7)]


def test_facts_of_other_epochs_and_partitions_are_separate() -> None:
    facts = PartitionFacts()
    facts.merge([fact(0, [3]), fact(1, [4]), fact(0, [5], epoch=1)])
    seen = [facts.of(epoch, p).rows_seen for epoch, p in ((0, 0), (0, 1), (1, 0), (1, 1))]
    assert seen == [3, 4, 5, 0]
    facts.forget_before(1)
    assert [facts.of(epoch, 0).rows_seen for epoch in (0, 1)] == [0, 5]
    facts.clear()
    assert facts.of(1, 0) == PartitionKnowledge()


def test_a_snapshot_does_not_change_with_later_facts() -> None:
    facts = PartitionFacts()
    facts.merge([fact(0, [3])])
    before = facts.of(0, 0)
    facts.merge([fact(0, [3, 4])])
    assert before.borders == {0: 0, 1: 3}
    assert facts.of(0, 0).borders == {0: 0, 1: 3, 2: 7}


def test_the_first_border_of_a_report_is_known() -> None:
    known = PartitionKnowledge()
    known.merge(fact(0, first_ordinal=2, first_rows=7))
    assert known.borders == {0: 0, 2: 7}


def test_a_merge_is_counted_and_ends_a_wait() -> None:
    facts, waiting = PartitionFacts(), threading.Event()

    def wait() -> bool:
        with facts.changed:
            waiting.set()
            return facts.changed.wait(10)

    with ThreadPoolExecutor(1) as executor:
        ended = executor.submit(wait)
        assert waiting.wait(10)
        assert facts.merged == 0
        facts.merge([])
        assert ended.result()
    assert facts.merged == 1
