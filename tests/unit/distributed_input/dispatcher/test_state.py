"""All of the dispatcher's knowledge together.

This module is long because all tests of one module are in one file.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from distributed_input.api.errors import DistributedInputError, ProtocolError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.dispatcher_pb2 import ConsumerHeartbeatResponse
from distributed_input.api.proto.types_pb2 import EntryPoint, Job, Weights
from distributed_input.dispatcher import jobs
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.statuses import InvalidRequestError, NotFoundError
from tests.unit.distributed_input.dispatcher.builders import (
    PARTITIONS,
    SPLITS,
    consumer,
    fact,
    job,
    state,
    worker,
)


def beat(
    known: DispatcherState, now: float, *args: Any, **fields: Any
) -> ConsumerHeartbeatResponse:
    """Send a heartbeat. Return the answer.

    Args:
        known: the dispatcher's state.
        now: time of the heartbeat.
        args: of `consumer`.
        fields: of the heartbeat. Default of `run`: the run of the job.
    """
    sent = consumer(*args, **fields)
    entry = known.jobs.entry(sent.job)
    if entry is not None and "run" not in fields:
        sent.run = entry.job.run
    return known.consumer_beat(now, sent).response


def test_a_worker_learns_the_interval_and_who_answers():
    answer = state(heartbeat=0.5).worker_beat(0.0, worker())
    assert (answer.dispatcher_id, answer.interval_seconds) == ("d", 0.5)


def test_incompatible_versions_are_rejected():
    known = state()
    with pytest.raises(ProtocolError, match="worker w at h:1 uses protocol 9"):
        known.worker_beat(0.0, worker(protocol=9))
    with pytest.raises(ProtocolError, match="consumer 1 of job train uses no protocol"):
        known.consumer_beat(0.0, consumer(1, 2, "1", protocol=0))
    assert not known.status(0.0).workers


def test_a_consumer_without_a_job_gets_the_workers():
    known = state()
    known.worker_beat(0.0, worker("w", "h:1"))
    answer = beat(known, 0.0, name="")
    assert [info.address for info in answer.workers] == ["h:1"]
    assert not answer.job_unknown
    assert not known.status(0.0).consumers


def test_a_consumer_gets_the_workers_of_its_own_pod_and_of_none():
    known = state()
    for worker_id, pod in (("own", "p"), ("other", "q"), ("remote", "")):
        known.worker_beat(
            0.0, worker(worker_id, pod=pod, parallelism=3, permit_seconds=2.5, cpu_seconds=1.5)
        )
    answer = beat(known, 0.0, name="", pod="p")
    assert [one.worker_id for one in answer.workers] == ["own", "remote"]
    assert [(one.pod, one.parallelism, one.permit_seconds) for one in answer.workers] == [
        ("p", 3, 2.5),
        ("", 3, 2.5),
    ]
    workers = known.status(0.0).workers
    assert [(one.worker_id, one.cpu_seconds) for one in workers] == [
        ("other", 1.5), ("own", 1.5), ("remote", 1.5)
    ]  # fmt: skip


def test_an_unknown_job_is_reported_and_not_stored():
    known = state()
    answer = beat(known, 0.0, facts=[fact(0, [3])])
    assert answer.job_unknown
    assert not known.status(0.0).consumers


def test_facts_reach_the_other_consumers():
    known = state()
    known.jobs.register(0.0, job())
    own = [fact(0, [3, 4], rows_seen=9), fact(2, [5])]
    assert not beat(known, 0.0, 0, 2, "a", facts=own).facts
    answer = beat(known, 0.0, 1, 2, "b", facts=[fact(1, [6], rows_seen=6, ended=True)])
    assert list(answer.facts) == [own[0], fact(2, [5], rows_seen=5)]
    assert [f.partition for f in beat(known, 0.1, 0, 2, "a").facts] == [1]


def opened(known: DispatcherState, now: float, incarnation: str, **fields: Any) -> str:
    """Open the job for a consumer. Return its run."""
    return known.jobs.register(now, job(**fields), incarnation).run


def test_trainers_that_open_a_job_join_the_run_of_those_that_read_it():
    known = state()
    run = opened(known, 0.0, "a")
    assert opened(known, 0.1, "b") == run  # the first one has just opened it
    for index, name in enumerate("ab"):
        assert beat(known, 0.2, index, 2, name, run=run).run == run
    assert opened(known, 0.3, "b") == run
    # Alone, or beside a sidecar without a trainer, a trainer begins a new run.
    beat(known, 0.4, 1, 2, "b", run=run, no_trainer=True)
    assert opened(known, 0.5, "a") != run


def test_facts_of_another_run_are_refused_and_not_sent():
    known = state()
    before = opened(known, 0.0, "a")
    beat(known, 0.1, 0, 2, "a", run=before, facts=[fact(0, [3])], no_trainer=True)
    beat(known, 0.1, 1, 2, "b", run=before, facts=[fact(1, [3])], no_trainer=True)
    run = opened(known, 0.2, "a")
    late = beat(known, 0.3, 1, 2, "b", run=before, facts=[fact(1, [3])], no_trainer=True)
    assert (late.run, list(late.facts), late.contradiction) == (run, [], "")
    answer = beat(known, 0.3, 0, 2, "a", run=run, facts=[fact(0, [4])])
    assert (answer.contradiction, list(answer.facts)) == ("", [])
    assert not beat(known, 0.4, 1, 2, "b", run=run, facts=[fact(1, [4])]).contradiction


def test_a_run_survives_the_dispatcher():
    known = state()
    assert opened(known, 0.0, "a", run="r", first_run="q") == "r"
    assert opened(known, 0.1, "b", run="r", first_run="q") == "r"
    entry = known.jobs.entry("train")
    assert entry is not None
    assert entry.job.first_run == "q"


def test_a_run_of_the_past_is_not_continued():
    """Its trainer joins the run of the others, or begins a new one."""
    known = state()
    run = opened(known, 0.0, "a")
    assert opened(known, 0.1, "b", run="past") == run
    beat(known, 0.2, 0, 2, "a", run=run, no_trainer=True)
    beat(known, 0.2, 1, 2, "b", run=run, no_trainer=True)
    assert opened(known, 0.3, "b", run="past") not in (run, "past")


def test_runs_that_overlap_on_a_dataset_share_its_rows():
    known = state()

    def first_run(now: float, name: str, incarnation: str, data: bytes = b"data") -> str:
        return known.jobs.register(now, job(name, data), incarnation).first_run

    first = first_run(0.0, "one", "a")
    assert first_run(0.1, "two", "b") == first
    assert first_run(0.1, "other", "c", b"other") != first
    for name, incarnation in (("one", "a"), ("two", "b")):
        beat(known, 0.2, 0, 1, incarnation, name=name)
    beat(known, 0.3, 0, 1, "a", name="one", no_trainer=True)
    assert first_run(0.4, "one", "a") == first  # the second job still reads
    beat(known, 0.5, 0, 1, "a", name="one", no_trainer=True)
    beat(known, 0.5, 0, 1, "b", name="two", no_trainer=True)
    assert first_run(0.6, "one", "a") != first, "the files may have changed"


def test_a_run_shares_rows_with_the_oldest_by_number():
    known = state()
    for number, name in ((2, "two"), (10, "ten")):
        known.jobs.register(0.0, job(name, run=f"d.{number}"), name)
    assert known.jobs.register(0.1, job("new"), "new").first_run == "d.2"


def test_a_contradiction_ends_the_run_of_every_consumer():
    """Also of one with late heartbeats."""
    known = state(expiry=5.0)
    run = opened(known, 0.0, "a")
    for index, name in enumerate("ab"):
        beat(known, 0.0, index, 2, name, run=run, facts=[fact(index, [3])])
    told = beat(known, 6.0, 1, 2, "b", run=run, facts=[fact(1, [4])]).contradiction
    assert "epoch 0, partition 1: a split has another length" in told
    for _ in range(2):
        assert beat(known, 6.1, 0, 2, "a", run=run, facts=[fact(0, [3])]).contradiction == told
    # The next run: one trainer opens the job again, the other one starts in a new process.
    later = opened(known, 6.2, "a")
    assert later != run
    assert not beat(known, 6.3, 0, 2, "a", run=later, facts=[fact(0, [5])]).contradiction
    assert beat(known, 6.3, 1, 2, "b", run=run, facts=[fact(1, [4])]).contradiction == told
    assert opened(known, 6.4, "c") == later
    answer = beat(known, 6.4, 1, 2, "c", run=later, facts=[fact(1, [6])])
    assert not answer.contradiction
    assert [one.split_rows for one in answer.facts] == [[5]]


def test_trainers_that_set_different_weights_end_the_run():
    known = state()
    sources = [Job(entry_point=EntryPoint(source=name)) for name in ("books", "web")]
    run = known.jobs.register(0.0, job(sources=sources), "a").run
    answers = [
        beat(known, 0.0, index, 2, "ab"[index], run=run, batches=batches, weights=weights)
        for batches in (0, 40, 80)
        for index, weights in enumerate(Weights(step=5, weights=[1, w]) for w in (1, 2))
    ]
    assert not any(one.contradiction for one in answers[:-2])
    told, again = (one.contradiction for one in answers[-2:])
    assert "trainer 1 of 2 has the weights books 1, web 2" in told
    assert again == told


@pytest.mark.parametrize("exhaustion", [types_pb2.STOP, types_pb2.DROP_SOURCE])
def test_weights_without_a_source_are_those_of_the_program_if_it_may_end(exhaustion):
    known = state()
    sources = [Job(entry_point=EntryPoint(source=name)) for name in ("books", "web")]
    run = known.jobs.register(0.0, job(sources=sources, exhaustion=exhaustion), "a").run
    answers = [
        beat(known, 0.0, index, 2, "ab"[index], run=run, batches=batches, weights=weights)
        for batches in (0, 40, 80)
        for index, weights in enumerate(Weights(step=5, weights=[w, 1]) for w in (2, 0))
    ]
    is_error = any(one.contradiction for one in answers)
    assert is_error == (exhaustion == types_pb2.STOP)


def test_a_job_remembers_a_bounded_number_of_contradictions(monkeypatch):
    monkeypatch.setattr(jobs, "_MAX_CONTRADICTED", 2)
    known = state()
    opened(known, 0.0, "a")
    entry = known.jobs.entry("train")
    assert entry is not None
    for _ in range(4):
        known.jobs.end_run(0.0, entry, "rows differ")
    assert len(entry.contradicted) == 2
    assert entry.job.run not in entry.contradicted


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (fact(PARTITIONS), "facts.partition: 4"),
        (fact(0, [1] * (SPLITS + 1)), "facts.split_rows"),
        (fact(0, [1], first_ordinal=SPLITS), "facts.split_rows"),
        (fact(0, [1 << 63]), "2\\*\\*62"),
        (fact(0, rows_seen=1 << 63), "2\\*\\*62"),
    ],
)
def test_an_invalid_fact_names_the_field_and_changes_nothing(bad, field):
    dispatcher = state()
    run = dispatcher.jobs.register(0.0, job()).run
    with pytest.raises(InvalidRequestError, match=field):
        dispatcher.consumer_beat(0.0, consumer(0, facts=[fact(1, [3]), bad], run=run))
    (entry,) = dispatcher.jobs.entries()
    assert not entry.facts.messages(0, lambda partition: True)


def test_contradictions_are_reported():
    known = state()
    run = opened(known, 0.0, "a")
    known.consumer_beat(0.0, consumer(0, 1, "a", facts=[fact(0, [3, 1])], run=run))
    answer = known.consumer_beat(0.1, consumer(0, 1, "a", facts=[fact(0, [4])], run=run))
    assert "epoch 0, partition 0" in answer.conflicts[0]


def test_facts_of_finished_epochs_are_removed():
    known = state()
    known.jobs.register(0.0, job())
    entry = known.jobs.entry("train")
    assert entry is not None
    for epoch in range(5):
        for index in range(2):
            own = [fact(p, [epoch + 1], epoch=epoch) for p in (index, index + 2)]
            beat(known, epoch / 10, index, 2, f"i{index}", epoch=epoch, facts=own)
    everything = entry.facts.messages(0, lambda p: True)
    assert sorted({f.epoch for f in everything}) == [3, 4]


def test_in_parallel_epochs_facts_are_not_shared():
    known = state()
    known.jobs.register(0.0, job(mode=types_pb2.PARALLEL_EPOCHS))
    beat(known, 0.0, 0, 2, "a", facts=[fact(1, [3, 4])])
    assert not beat(known, 0.0, 1, 2, "b", facts=[fact(1, [9])]).facts


def test_a_fenced_consumer_gets_the_reason_and_its_facts_are_ignored():
    known = state()
    known.jobs.register(0.0, job())
    beat(known, 0.0, 0, 1, "2")
    answer = beat(known, 0.0, 0, 1, "1", facts=[fact(0, [3])])
    assert answer.fenced
    assert "incarnation 2" in answer.fenced_by
    entry = known.jobs.entry("train")
    assert entry is not None
    assert entry.facts.messages(0, lambda p: True) == []


def test_a_consumer_that_joins_another_job_leaves_the_first():
    known = state()
    known.jobs.register(0.0, job("a"))
    known.jobs.register(0.0, job("b"))
    beat(known, 0.0, 0, 1, "1", name="a")
    beat(known, 0.1, 0, 1, "1", name="b")
    assert [c.last.job for c in known.status(0.1).consumers] == ["b"]
    beat(known, 0.2, 0, 1, "1", name="")
    assert not known.status(0.2).consumers


def test_status_has_live_processes_and_used_jobs():
    known = state(expiry=5.0, hold=10.0)
    known.worker_beat(0.0, worker(rows=3))
    known.jobs.register(0.0, job())
    beat(known, 1.0, 0, 1, "1", rows=7, wait_seconds=0.5)
    shown = known.status(3.0)
    assert shown.uptime_seconds == 3.0
    assert [w.rows for w in shown.workers] == [3]
    assert [(c.last.rows, c.age_seconds) for c in shown.consumers] == [(7, 2.0)]
    assert [j.name for j in shown.jobs] == ["train"]
    later = known.status(60.0)
    assert not later.workers
    assert not later.consumers
    assert not later.jobs


def test_status_has_jobs_with_live_consumers_or_a_recent_registration():
    known = state(expiry=5.0, hold=10.0)
    known.jobs.register(0.0, job("left"))
    beat(known, 20.0, 0, 1, "1", name="left", finished=True)
    known.jobs.register(20.0, job("new"))
    assert sorted(j.name for j in known.status(20.0).jobs) == ["left", "new"]


def test_expired_entries_use_no_memory():
    known = state(expiry=5.0, hold=10.0, forget=60.0)
    known.worker_beat(0.0, worker())
    known.jobs.register(0.0, job())
    beat(known, 0.0, 0, 1, "1")
    known.expire(100.0)
    assert known.workers.losses == 1
    assert not known.jobs.entries()
    assert not known._joined


def test_datasets_of_jobs_in_use_stay():
    known = state(dataset_bytes=4)
    data = b"data"
    known.datasets.reserve(4, ())
    known.datasets.add(hashlib.sha256(data).hexdigest(), (data,))
    known.jobs.register(0.0, job(data=data))
    assert known.datasets_in_use(0.0) == {hashlib.sha256(data).hexdigest()}
    assert known.datasets_in_use(60.0) == set()


def test_metrics_have_workers_consumers_and_losses():
    known = state()
    known.jobs.register(0.0, job())
    known.worker_beat(0.0, worker())
    known.worker_beat(0.0, worker("x", "h:2", draining=True))
    beat(known, 0.0, 0, 1, "1")

    def values(now: float) -> dict[tuple[str, ...], float]:
        return {(s.definition.name, *s.labels): s.value for s in known.samples(now)}

    prefix = "distributed_input_dispatcher_"
    assert values(1.0)[f"{prefix}workers", "serving"] == 1
    assert values(1.0)[f"{prefix}workers", "draining"] == 1
    assert values(1.0)[f"{prefix}consumers", "train"] == 1
    assert values(1.0)[f"{prefix}heartbeat_age_seconds", "worker"] == 1.0
    assert values(9.0)[f"{prefix}worker_losses_total",] == 1
    assert values(9.0)[f"{prefix}consumer_losses_total", "train"] == 1


def test_skipped_records_are_counted_and_shown_on_request():
    known = state()
    records = [types_pb2.SkippedRecord(dataset="rows", index=index) for index in range(3)]
    known.worker_beat(0.0, worker(skipped=records))
    shown = known.status(0.0)
    assert (shown.skipped_records, list(shown.skipped)) == (3, [])
    assert [one.index for one in known.status(0.0, max_skipped=2).skipped] == [1, 2]
    values = {one.definition.name: one.value for one in known.samples(0.0)}
    assert values["distributed_input_dispatcher_skipped_records_total"] == 3


TRUE_ROWS = [3, 1, 4, 1, 5]
EPOCHS = st.integers(0, 40)


class AnyClients(RuleBasedStateMachine):
    """For any sequence of clients, the dispatcher stays within its limits."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.known = state(workers=3, consumers=4, jobs=2, fact_epochs=3, forget=30.0)
        self.reported: dict[tuple[str, int], Counter[int]] = {}

    @rule(seconds=st.sampled_from([0.1, 1.0, 4.0, 6.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.known.expire(self.now)

    @rule(name=st.sampled_from("abcd"), address=st.sampled_from(["", "h:1", "h:2"]))
    def worker(self, name: str, address: str) -> None:
        try:
            self.known.worker_beat(self.now, worker(name, address))
        except DistributedInputError:
            pass

    @rule(name=st.sampled_from("xyz"), seed=st.integers(0, 1))
    def register(self, name: str, seed: int) -> None:
        try:
            self.known.jobs.register(self.now, job(name, seed=seed))
        except DistributedInputError:
            pass

    @rule(name=st.sampled_from("xyz"))
    def get(self, name: str) -> None:
        try:
            self.known.jobs.get(self.now, name)
        except NotFoundError:
            pass

    @rule(
        name=st.sampled_from(["", "x", "y", "z"]),
        index=st.integers(0, 3),
        count=st.integers(0, 3),
        incarnation=st.sampled_from("123456"),
        epoch=EPOCHS,
        reported=st.lists(
            st.tuples(st.integers(0, PARTITIONS), EPOCHS, st.integers(0, 5)), max_size=4
        ),
        finished=st.booleans(),
    )
    def consumer(self, name, index, count, incarnation, epoch, reported, finished) -> None:
        facts = [fact(p, TRUE_ROWS[:known], epoch=e) for p, e, known in reported]
        sent = consumer(
            index, count, incarnation, name, epoch=epoch, facts=facts, finished=finished
        )
        try:
            answer = self.known.consumer_beat(self.now, sent)
        except DistributedInputError:
            return
        assert answer.conflicts == []
        for got in answer.response.facts:
            assert list(got.split_rows) == TRUE_ROWS[: len(got.split_rows)]
            assert got.partition % count != index
            assert got.epoch + 1 >= epoch
        entry = self.known.jobs.entry(name)
        if entry is not None and not answer.response.fenced:
            lowest = min(c.last.epoch for c in entry.consumers.live(self.now))
            kept = entry.facts.messages(0, lambda p: True)
            assert all(f.epoch >= lowest - 1 for f in kept)

    @invariant()
    def bounded(self) -> None:
        shown = self.known.status(self.now)
        assert len(shown.workers) <= 3
        assert len(self.known.jobs.entries()) <= 2
        for entry in self.known.jobs.entries():
            live = [c.last for c in entry.consumers.live(self.now)]
            assert len(live) <= 4
            assert max(Counter(last.index for last in live).values(), default=0) <= 1
            kept = entry.facts.messages(0, lambda p: True)
            assert len({f.epoch for f in kept}) <= 3
            assert sum(len(f.split_rows) for f in kept) <= 3 * SPLITS * PARTITIONS
        self.known.expire(self.now)
        assert len(self.known._joined) <= 8
        assert list(self.known.samples(self.now))


TestAnyClients = AnyClients.TestCase
TestAnyClients.settings = settings(max_examples=60, stateful_step_count=40)
