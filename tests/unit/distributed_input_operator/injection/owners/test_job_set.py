"""The rank of a trainer pod of a JobSet."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import names
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    jobset,
    jobset_job,
    jobset_pod,
    replicated,
    template,
)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4),
    others=st.booleans(),
)
def test_the_pods_of_a_jobset_are_numbered_without_gap_or_repetition(sizes, others):
    parts = [replicated(f"part{i}", *size) for i, size in enumerate(sizes)]
    if others:  # these do not count: one requests no input, one requests another input
        parts = [replicated("ps", 2, 3, None), replicated("eval", 1, 2, "eval"), *parts]
    whole = jobset(*parts)
    found = [
        rank_of(jobset_pod(f"part{i}", j, k), jobset_job(completions), whole)
        for i, (replicas, completions) in enumerate(sizes)
        for j in range(replicas)
        for k in range(completions)
    ]
    assert found == [(index, len(found)) for index in range(len(found))]


def test_replicated_jobs_that_share_only_some_inputs_are_refused():
    whole = jobset(replicated("a", 1, 2, "train,eval"), replicated("b", 1, 2, "train"))
    message = refusal_of(jobset_pod("b", 0, 0), jobset_job(), whole)
    assert "shares only train" in message


def test_a_jobset_whose_templates_lack_the_label_is_refused():
    whole = jobset(replicated("a", 1, 2, None))
    assert "pod templates" in refusal_of(jobset_pod("a", 0, 0), jobset_job(), whole)


def test_a_job_without_index_is_refused():
    whole = jobset(replicated("a", 2, 1))
    message = refusal_of(jobset_pod("a", 0, 0), jobset_job(1, indexed=False), whole)
    assert "spec.completionMode: Indexed" in message


def test_a_template_of_a_jobset_is_refused():
    assert "use the webhook" in refusal_of(template(), jobset(replicated("a", 1, 2)))


def test_a_jobset_whose_controller_may_create_more_is_refused_without_the_count():
    parts, trainer = replicated("a", 2, 2), jobset_pod("a", 1, 0)
    message = refusal_of(trainer, jobset_job(), jobset(parts, above=("Sweep", "s")))
    assert "JobSet fits belongs to Sweep s, which may create further trainers" in message
    assert rank_of(trainer, jobset_job(), jobset(parts, above=("TrainJob", "fit"))) == (2, 4)
    trainer["metadata"]["annotations"][names.CONSUMERS_ANNOTATION] = "4"
    assert rank_of(trainer, jobset_job(), jobset(parts, above=("Sweep", "s"))) == (2, 4)
