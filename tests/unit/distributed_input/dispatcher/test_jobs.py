"""The registry of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.errors import JobConflictError, RetryableError, TerminalError
from distributed_input.api.proto import types_pb2
from distributed_input.dispatcher.jobs import JobRegistry, differences
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.link.statuses import InvalidRequestError, NotFoundError
from tests.unit.distributed_input.dispatcher.builders import consumer, fact, job, without_run

LIMITS = DispatcherLimits(heartbeat=1.0, expiry=5.0, hold=10.0, forget=100.0, jobs=2)


@pytest.fixture
def jobs():
    return JobRegistry(LIMITS)


def beat(jobs: JobRegistry, now: float, **fields: Any) -> None:
    entry = jobs.entry("train")
    assert entry is not None
    assert entry.consumers.beat(now, consumer(0, 1, "1", **fields)) is None
    entry.used = now


def test_the_first_registration_is_returned_to_all(jobs):
    first = job(warnings=["slow"])
    registered = jobs.register(0.0, first)
    assert without_run(registered) == first
    assert jobs.register(1.0, job(warnings=["else"]), "another") == registered
    assert jobs.get(1.0, "train") == registered


def test_the_registry_stores_a_copy(jobs):
    mine = job()
    jobs.register(0.0, mine)
    mine.seed = 7
    assert jobs.get(0.0, "train").seed == 0


def test_a_different_job_conflicts_while_consumers_are_live(jobs):
    jobs.register(0.0, job())
    other = job(data=b"other", global_batch_size=8, remainder=types_pb2.DROP)
    for now in (1.0, 2.0, 3.0):
        beat(jobs, now)
        with pytest.raises(RetryableError, match="Waiting for the running trainers to end"):
            jobs.register(now, other)
    beat(jobs, 4.0)
    with pytest.raises(JobConflictError) as caught:
        jobs.register(4.0, other)
    text = str(caught.value)
    for part in ("global_batch_size: 0 -> 8", "remainder: KEEP -> DROP", "dataset_id: "):
        assert part in text
    assert "seed" not in text
    assert without_run(jobs.get(4.0, "train")) == job()


@pytest.mark.parametrize("name", ["train/copy-1", "train/copy-12"])
def test_jobs_that_must_read_the_same_rows_are_equal(jobs, name):
    jobs.register(0.0, job())
    beat(jobs, 1.0)
    same, other = job(), job(data=b"other")
    same.name = other.name = name
    with pytest.raises(RetryableError, match="job train is already registered and differs in: dat"):
        jobs.register(1.0, other)
    assert jobs.register(1.0, same).name == name
    jobs.register(30.0, other)  # the consumers of the first have expired


def test_jobs_of_other_names_may_differ(jobs):
    jobs.register(0.0, job())
    beat(jobs, 1.0)
    other = job(data=b"other")
    other.name = "train/eval.copy-1"
    jobs.register(1.0, other)


def test_another_job_may_replace_one_whose_consumers_expired(jobs):
    jobs.register(0.0, job())
    beat(jobs, 20.0)
    other = job(data=b"other")
    for now in (21.0, 24.0):
        with pytest.raises(RetryableError):
            jobs.register(now, other)
    assert without_run(jobs.register(25.1, other)) == other
    assert without_run(jobs.get(25.1, "train")) == other


def test_another_job_may_replace_one_whose_consumers_finished(jobs):
    jobs.register(0.0, job())
    beat(jobs, 20.0, finished=True)
    jobs.register(20.1, job(data=b"other"))


def test_a_short_run_holds_its_job_only_until_its_end(jobs):
    jobs.register(0.0, job())
    beat(jobs, 1.0)
    beat(jobs, 2.0, finished=True)
    with pytest.raises(NotFoundError):
        jobs.get(2.0, "train")
    other = job(data=b"other")
    assert without_run(jobs.register(2.0, other)) == other
    assert without_run(jobs.get(2.0, "train")) == other


def test_one_finished_consumer_does_not_end_the_job_for_the_others(jobs):
    jobs.register(0.0, job())
    consumers = jobs.entry("train").consumers
    consumers.beat(1.0, consumer(0, 2, "1", finished=True))
    assert without_run(jobs.get(1.0, "train")) == job()
    consumers.beat(2.0, consumer(1, 2, "2"))
    consumers.beat(3.0, consumer(1, 2, "2", finished=True))
    with pytest.raises(NotFoundError):
        jobs.get(3.0, "train")
    jobs.register(4.0, job())  # the next run, before its first heartbeat
    assert without_run(jobs.get(5.0, "train")) == job()


def test_without_consumers_a_conflict_is_retryable(jobs):
    jobs.register(0.0, job())
    with pytest.raises(RetryableError):
        jobs.register(5.0, job(seed=1))
    jobs.register(10.0, job(seed=1))


def test_an_old_challenge_is_ignored(jobs):
    jobs.register(0.0, job())
    beat(jobs, 1.0)
    with pytest.raises(RetryableError):
        jobs.register(1.0, job(seed=1))
    beat(jobs, 60.0)
    with pytest.raises(RetryableError):
        jobs.register(60.0, job(seed=1))


def facts_of(jobs):
    return jobs.entry("train").facts.messages(0, lambda p: True)


def test_an_unused_job_is_hidden_and_its_next_run_begins_without_facts(jobs):
    """The files may have changed."""
    jobs.register(0.0, job())
    jobs.entry("train").facts.merge([fact(0, [3])])
    assert without_run(jobs.get(9.9, "train")) == job()
    with pytest.raises(NotFoundError, match="train is not registered"):
        jobs.get(10.0, "train")
    jobs.register(50.0, job())
    assert without_run(jobs.get(50.0, "train")) == job()
    assert not facts_of(jobs)


def test_a_job_that_only_the_asking_consumer_uses_is_not_in_use(jobs):
    """A trainer that starts again beside its old sidecar begins a new run."""
    jobs.register(0.0, job(), "a")
    with pytest.raises(NotFoundError):
        jobs.get(1.0, "train", other_than="a")
    assert jobs.get(1.0, "train", other_than="b").run  # another one has just registered it
    consumers = jobs.entry("train").consumers
    consumers.beat(15.0, consumer(0, 2, "a"))
    assert without_run(jobs.get(15.0, "train")) == job()
    with pytest.raises(NotFoundError):
        jobs.get(15.0, "train", other_than="a")
    consumers.beat(15.0, consumer(1, 2, "b", no_trainer=True))
    with pytest.raises(NotFoundError):
        jobs.get(15.0, "train", other_than="a")
    consumers.beat(15.0, consumer(1, 2, "b"))
    assert without_run(jobs.get(15.0, "train", other_than="a")) == job()


def test_a_consumer_that_waited_for_a_job_has_opened_its_run(jobs):
    """The one that registered it starts again before the first heartbeat of the other."""
    run = jobs.register(0.0, job(), "a").run
    assert jobs.get(1.0, "train", other_than="b").run == run
    jobs.entry("train").opening.pop("a")  # with a heartbeat
    assert jobs.register(2.0, job(), "c").run == run


def test_a_replaced_job_leaves_no_facts(jobs):
    jobs.register(0.0, job())
    before = jobs.entry("train")
    jobs.register(50.0, job(seed=1))
    assert jobs.entry("train").facts is not before.facts
    assert jobs.entry("train").consumers is not before.consumers


def test_a_heartbeat_makes_a_job_used_again(jobs):
    jobs.register(0.0, job())
    beat(jobs, 50.0)
    assert without_run(jobs.get(50.0, "train")) == job()


def test_unused_jobs_are_removed_after_a_long_time(jobs):
    jobs.register(0.0, job())
    jobs.forget(100.0)
    assert jobs.entry("train") is not None
    jobs.forget(100.1)
    assert jobs.entry("train") is None


def test_idle_jobs_are_removed_at_the_limit(jobs):
    jobs.register(0.0, job("a"))
    jobs.register(1.0, job("b"))
    with pytest.raises(TerminalError, match="more than 2 jobs"):
        jobs.register(2.0, job("c"))
    jobs.register(11.0, job("b"))
    jobs.register(11.0, job("c"))
    assert [jobs.entry(name) is None for name in "abc"] == [True, False, False]


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("job.name", job("")),
        ("job.partitions", job(partitions=0)),
        ("job.num_splits", job(num_splits=0)),
        ("job.dataset_id", types_pb2.Job(name="x", partitions=1, num_splits=1)),
    ],
)
def test_the_error_of_an_incomplete_job_names_the_field(jobs, field, bad):
    with pytest.raises(InvalidRequestError, match=field):
        jobs.register(0.0, bad)


def test_differences_are_short_and_ignore_warnings():
    plain = job(row_spec="x" * 1000)
    assert differences(plain, job(row_spec="x" * 1000, warnings=["w"], read_amplification=2)) == []
    other = job(row_spec="y" * 1000, entry_point={"target": "a:b"})
    changed = differences(plain, other)
    assert [text.split(":")[0] for text in changed] == ["entry_point", "row_spec"]
    assert all(len(text) < 250 for text in changed)
    assert "(empty) -> target" in changed[0]
