"""The rank of a trainer pod from its Job, JobSet or StatefulSet."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import names
from distributed_input_operator.injection.workloads import COMPLETION_INDEX, POD_INDEX, owners_of
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    job,
    jobset,
    jobset_pod,
    pod,
    replicated,
)

COMPLETION_FIELD = f"metadata.annotations['{COMPLETION_INDEX}']"


def test_an_indexed_job_has_index_and_count():
    assert rank_of(pod(owner=("Job", "fit")), Job=job(4)) == (COMPLETION_FIELD, 4)


def test_a_job_of_one_pod_needs_no_index():
    assert rank_of(pod(owner=("Job", "fit")), Job=job(1, indexed=False)) == (0, 1)
    assert rank_of(pod(owner=("Job", "fit")), Job=job(None, 1, indexed=False)) == (0, 1)


def test_a_job_without_index_is_refused():
    assert "spec.completionMode: Indexed" in refusal_of(pod(), Job=job(4, indexed=False))


def test_a_job_that_does_not_run_all_pods_together_is_refused():
    message = refusal_of(pod(), Job=job(4, 2))
    assert "2 of its 4 pods" in message
    assert "spec.parallelism: 4" in message


def test_trainers_that_read_the_whole_input_may_run_one_after_the_other():
    assert rank_of(pod(annotations={names.CONSUMERS_ANNOTATION: "1"}), Job=job(4, 2)) == (0, 1)


def test_the_default_parallelism_of_a_job_template_is_1():
    spec = {"completionMode": "Indexed", "completions": 4}
    assert "1 of its 4 pods" in refusal_of(pod(), Job={"metadata": {"name": "fit"}, "spec": spec})


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
        rank_of(jobset_pod(f"part{i}", j, k), Job=job(completions), JobSet=whole)
        for i, (replicas, completions) in enumerate(sizes)
        for j in range(replicas)
        for k in range(completions)
    ]
    assert found == [(index, len(found)) for index in range(len(found))]


def test_replicated_jobs_that_share_only_some_inputs_are_refused():
    whole = jobset(replicated("a", 1, 2, "train,eval"), replicated("b", 1, 2, "train"))
    message = refusal_of(jobset_pod("b", 0, 0), Job=job(2), JobSet=whole)
    assert "shares only train" in message


def test_a_jobset_whose_templates_lack_the_label_is_refused():
    whole = jobset(replicated("a", 1, 2, None))
    assert "pod templates" in refusal_of(jobset_pod("a", 0, 0), Job=job(2), JobSet=whole)


def stateful_set(**spec: Any) -> Any:
    return {"kind": "StatefulSet", "metadata": {"name": "fit"}, "spec": spec}


def test_a_stateful_set_has_index_and_count():
    index, count = rank_of(pod(), StatefulSet=stateful_set(replicas=3))
    assert (index, count) == (f"metadata.labels['{POD_INDEX}']", 3)


def test_the_index_is_relative_to_the_first_ordinal():
    trainer = pod(labels={POD_INDEX: "7"})
    owner = stateful_set(replicas=3, ordinals={"start": 5})
    assert rank_of(trainer, StatefulSet=owner) == (2, 3)


def test_without_its_label_the_ordinal_is_in_the_pods_name():
    trainer = pod()
    trainer["metadata"]["name"] = "fit-6"
    owner = stateful_set(replicas=3, ordinals={"start": 5})
    assert rank_of(trainer, StatefulSet=owner) == (1, 3)


def test_a_template_without_ordinal_is_refused_if_ordinals_do_not_start_at_0():
    owner = stateful_set(replicas=3, ordinals={"start": 5})
    assert "use the webhook, or start at 0" in refusal_of(pod(), StatefulSet=owner)


def test_a_stateful_set_with_a_controller_is_refused():
    parent = [{"kind": "LeaderWorkerSet", "name": "fits", "uid": "u", "controller": True}]
    owner = stateful_set(replicas=2)
    owner["metadata"]["ownerReferences"] = parent
    assert "LeaderWorkerSet fits" in refusal_of(pod(), StatefulSet=owner)


def test_the_owners_of_a_pod_are_its_controller_and_the_jobset_above():
    assert [(one.kind, one.name) for one in owners_of(jobset_pod("a", 0, 0))] == [
        ("Job", "fit"),
        ("JobSet", "fits"),
    ]
    assert [one.name for one in owners_of(pod(owner=("StatefulSet", "fit")))] == ["fit"]
    assert owners_of(pod(owner=("ReplicaSet", "fit"))) == []
    assert owners_of(pod()) == []
