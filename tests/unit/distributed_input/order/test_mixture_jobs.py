"""The job of a mixture: its sources are jobs, and have one form."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from distributed_input.api.config import DatasetConfig, InputConfig, MixtureConfig
from distributed_input.api.errors import ConfigError, PositionError, SpecError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity, jobs, mixture, mixture_jobs
from distributed_input.order.job_config import job_of_config
from distributed_input.order.jobs import DatasetFacts
from distributed_input.order.share import share_of
from distributed_input.rows.elements import ElementSpec, Leaf

CONFIG = InputConfig(
    dataset=DatasetConfig("corpus:rows"),
    partitions=4,
    mixture=MixtureConfig(
        {"web": 0.75, "books": 0.25},
        "stop",
        ({"step": 10, "weights": {"web": 1, "books": 1}},),
    ),
)


def described(draft: types_pb2.Job, **fields: Any) -> types_pb2.Job:
    """Return a completed draft of a source."""
    facts = DatasetFacts(element_spec(), asked_batch=16, files=8)
    job = jobs.complete(draft, dataclasses.replace(facts, **fields))
    job.definitions.append(len(job.entry_point.source))
    return job


def element_spec(kind: str = "int64") -> ElementSpec:
    return ElementSpec(0, (Leaf("", "dense", kind, (None,)),))


def drafts() -> tuple[types_pb2.Job, list[types_pb2.Job]]:
    draft = job_of_config("train", CONFIG)
    return draft, [mixture_jobs.source_draft(draft, one) for one in draft.sources]


def complete() -> types_pb2.Job:
    draft, sources = drafts()
    return mixture_jobs.combine(draft, [described(one) for one in sources])


def test_weights_that_are_rounded_much_have_a_warning() -> None:
    rounded = dataclasses.replace(CONFIG, mixture=MixtureConfig({"web": 1, "books": 1e-7}))
    (warning,) = job_of_config("train", rounded).warnings
    assert "spec.mixture: the weight of books is rounded" in warning
    assert not complete().warnings


def test_the_draft_has_the_sources_by_name_and_the_weights_by_step() -> None:
    draft, (books, web) = drafts()
    assert [one.entry_point.source for one in draft.sources] == ["books", "web"]
    assert [(one.step, list(one.weights)) for one in draft.weights] == [(0, [1, 3]), (10, [1, 1])]
    assert len({draft.dataset_id, books.dataset_id, web.dataset_id}) == 3
    assert not web.sources
    assert (web.entry_point.target, web.partitions, web.name) == ("corpus:rows", 4, "train")


def test_a_mixture_has_the_splits_and_lists_of_all_sources() -> None:
    job = complete()
    assert (job.num_splits, job.partitions, job.global_batch_size) == (16, 4, 16)
    assert mixture.lists_of(job) == 8
    numbers = [one for own in mixture.deal(job, 3) for one in own]
    assert sorted(numbers) == list(range(16))
    located = [mixture.source_split(16, job.sources, 3, one) for one in range(16)]
    assert {(one.job.entry_point.source, one.split) for one in located} == {
        (name, split) for name in ("books", "web") for split in range(8)
    }
    assert mixture.source_split(16, job.sources, 3, 16 * 2 + 9)[1:] == (5, 1)
    shares = [share_of(job, one, 2) for one in range(2)]
    assert [one.partitions for one in shares] == [(0, 2, 4, 6), (1, 3, 5, 7)]
    assert {(one.batch, one.quota) for one in shares} == {(8, 4)}


@pytest.mark.parametrize(
    ("exhausted", "some", "every"),
    [("repeat", True, True), ("stop", False, True), ("drop", True, True)],
)
def test_a_mixture_may_never_end(exhausted: str, some: bool, every: bool) -> None:
    mixed = dataclasses.replace(CONFIG.mixture, on_exhausted=exhausted)
    draft = job_of_config("train", dataclasses.replace(CONFIG, mixture=mixed))
    books, web = (described(mixture_jobs.source_draft(draft, one)) for one in draft.sources)
    assert mixture_jobs.combine(draft, [books, web]).infinite is (exhausted == "repeat")
    books.infinite = True
    assert mixture_jobs.combine(draft, [books, web]).infinite is some
    web.infinite = True
    assert mixture_jobs.combine(draft, [books, web]).infinite is every


def test_a_mixture_is_a_completion_of_its_draft_alone() -> None:
    draft, job = drafts()[0], complete()
    assert jobs.is_completed(draft, job)
    draft.sources[0].dataset_id = "other"
    assert not jobs.is_completed(draft, job)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"element": element_spec("float32")}, SpecError, "a row of source web .* source books"),
        ({"asked_batch": 32}, ConfigError, "source web has a global batch of 32 rows"),
        ({"asked_batch": None}, ConfigError, "globalBatchSize: a mixture needs"),
        ({"files": 3}, ConfigError, "source web has 3 splits for 4 partitions"),
    ],
)
def test_sources_that_do_not_fit_are_refused(
    fields: dict[str, Any], error: type[Exception], message: str
) -> None:
    draft, (books, web) = drafts()
    with pytest.raises(error, match=message):
        mixture_jobs.combine(draft, [described(books), described(web, **fields)])


def test_a_position_of_other_sources_is_refused() -> None:
    job = complete()
    position = trainer_pb2.Position(
        job="train", partitions=4, global_batch_size=16, consumers=1, base_rows=[1] * 8
    )
    identity.stamp(position, job)
    identity.check(position, job)
    identity.check_form(position, job)
    job.sources[0].entry_point.source = "wiki"
    with pytest.raises(PositionError, match=r"books \(8 splits\).*wiki \(8 splits\)"):
        identity.check(position, job)
    job = complete()
    job.sources[1].definitions[0] += 1
    del job.definitions[:]
    job.definitions.extend(identity.fingerprint(one) for one in job.sources)
    with pytest.raises(PositionError, match="has changed"):
        identity.check(position, job)
    position.base_rows.pop()
    with pytest.raises(PositionError, match="damaged"):
        identity.check_form(position, job)
