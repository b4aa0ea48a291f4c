"""Which trainer a pod is, by what runs it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import names
from distributed_input_operator.injection.consumers import consumer
from distributed_input_operator.injection.trainers import RefusedError
from distributed_input_operator.injection.workloads import COMPLETION_INDEX, POD_INDEX, owners_of
from tests.unit.distributed_input_operator.injection.trainerpods import (
    job,
    jobset,
    jobset_pod,
    pod,
    replicated,
    tf_config,
)


def known(of: Any, **owners: Any) -> tuple[Any, int]:
    """The index, a number or the field it is read from, and the count."""
    found = consumer(of, owners)
    assert found is not None
    assert found.count is not None
    if "value" in found.index:
        return int(found.index["value"]), found.count
    return found.index["valueFrom"]["fieldRef"]["fieldPath"], found.count


def refusal(of: Any, **owners: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        consumer(of, owners)
    return str(caught.value)


COMPLETION_FIELD = f"metadata.annotations['{COMPLETION_INDEX}']"


def test_a_pod_that_nothing_runs_is_alone():
    assert known(pod()) == (0, 1)


def test_an_indexed_job_tells_index_and_count():
    assert known(pod(owner=("Job", "fit")), Job=job(4)) == (COMPLETION_FIELD, 4)


def test_a_job_of_one_pod_needs_no_index():
    assert known(pod(owner=("Job", "fit")), Job=job(1, indexed=False)) == (0, 1)
    assert known(pod(owner=("Job", "fit")), Job=job(None, 1, indexed=False)) == (0, 1)


def test_a_job_without_index_is_refused():
    assert "completionMode: Indexed" in refusal(pod(), Job=job(4, indexed=False))


def test_a_job_that_does_not_run_its_trainers_together_is_refused():
    told = refusal(pod(), Job=job(4, 2))
    assert "2 of its 4 pods" in told
    assert "parallelism: 4" in told


def test_trainers_that_each_read_alone_may_run_one_after_the_other():
    assert known(pod(annotations={names.CONSUMERS_ANNOTATION: "1"}), Job=job(4, 2)) == (0, 1)


def test_a_job_template_without_defaults_is_refused_as_the_job_would_run():
    spec = {"completionMode": "Indexed", "completions": 4}  # parallelism is 1 then
    assert "1 of its 4 pods" in refusal(pod(), Job={"metadata": {"name": "fit"}, "spec": spec})


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=4),
    strangers=st.booleans(),
)
def test_the_pods_of_a_jobset_are_numbered_without_gap_or_repetition(sizes, strangers):
    parts = [replicated(f"part{i}", *size) for i, size in enumerate(sizes)]
    if strangers:  # neither counts
        parts = [replicated("ps", 2, 3, None), replicated("eval", 1, 2, "eval"), *parts]
    whole = jobset(*parts)
    found = [
        known(jobset_pod(f"part{i}", j, k), Job=job(completions), JobSet=whole)
        for i, (replicas, completions) in enumerate(sizes)
        for j in range(replicas)
        for k in range(completions)
    ]
    assert found == [(index, len(found)) for index in range(len(found))]


def test_a_jobset_whose_parts_share_some_inputs_only_is_refused():
    whole = jobset(replicated("a", 1, 2, "train,eval"), replicated("b", 1, 2, "train"))
    assert "shares train" in refusal(jobset_pod("b", 0, 0), Job=job(2), JobSet=whole)


def test_a_jobset_that_knows_nothing_of_the_pods_label_is_refused():
    whole = jobset(replicated("a", 1, 2, None))
    assert "pod templates" in refusal(jobset_pod("a", 0, 0), Job=job(2), JobSet=whole)


def stateful_set(**spec: Any) -> Any:
    return {"kind": "StatefulSet", "metadata": {"name": "fit"}, "spec": spec}


def test_a_stateful_set_tells_index_and_count():
    index, count = known(pod(), StatefulSet=stateful_set(replicas=3))
    assert (index, count) == (f"metadata.labels['{POD_INDEX}']", 3)


def test_ordinals_that_start_elsewhere_are_counted_from_there():
    here = pod(labels={POD_INDEX: "7"})
    assert known(here, StatefulSet=stateful_set(replicas=3, ordinals={"start": 5})) == (2, 3)


def test_a_pods_name_tells_its_ordinal_where_the_label_is_missing():
    here = pod()
    here["metadata"]["name"] = "fit-6"
    assert known(here, StatefulSet=stateful_set(replicas=3, ordinals={"start": 5})) == (1, 3)


def test_a_stateful_set_that_may_be_one_of_several_is_refused():
    above = [{"kind": "LeaderWorkerSet", "name": "fits", "uid": "u", "controller": True}]
    part = stateful_set(replicas=2)
    part["metadata"]["ownerReferences"] = above
    assert "LeaderWorkerSet fits" in refusal(pod(), StatefulSet=part)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (tf_config("worker", 2, worker=4), (2, 4)),
        (tf_config("chief", 0, chief=1, worker=3), (0, 4)),
        (tf_config("worker", 0, chief=1, worker=3), (1, 4)),
        (tf_config("worker", 2, chief=1, worker=3, ps=2, evaluator=1), (3, 4)),
    ],
)
def test_tf_config_tells_index_and_count(env, expected):
    assert known(pod(env=env)) == expected
    assert known(pod(env=env), Job=job(8)) == expected  # it goes before the Job


@pytest.mark.parametrize("task", ["ps", "evaluator"])
def test_tf_configs_evaluator_and_ps_read_no_input(task):
    assert consumer(pod(env=tf_config(task, 0, chief=1, worker=3, ps=2)), {}) is None


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {"worker": ["$(HOST):1"]}, "task": {}}'])
def test_a_tf_config_that_says_nothing_yet_leaves_it_to_the_owner(text):
    assert known(pod(env={"TF_CONFIG": text}), Job=job(4)) == (COMPLETION_FIELD, 4)


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"TF_CONFIG": "{"}, "not what TensorFlow reads"),
        ({"TF_CONFIG": "[1]"}, "not what TensorFlow reads"),
        (tf_config("trainer", 0, worker=2), '"trainer"'),
        (tf_config("worker", "0", worker=2), '"0"'),
        (tf_config("worker", -1, worker=2), "-1"),
        (tf_config("worker", 2, worker=2), "lists 2 of type worker"),
        (tf_config("worker", 0, worker={"1": "host:1"}), names.CONSUMERS_ANNOTATION),
    ],
)
def test_a_tf_config_that_makes_no_sense_is_refused(env, told):
    assert told in refusal(pod(env=env))


def test_a_tpu_slice_tells_index_and_count():
    env = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}
    assert known(pod(env=env)) == (1, 4)


def test_several_tpu_slices_are_counted_through():
    env = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
    env |= {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2"}
    assert known(pod(env=env)) == (5, 6)
    del env["MEGASCALE_SLICE_ID"]
    assert "MEGASCALE_SLICE_ID" in refusal(pod(env=env))


def test_a_tpu_worker_id_from_elsewhere_is_read_from_there():
    here = pod(env={"TPU_WORKER_HOSTNAMES": "a,b"})
    source = {"fieldRef": {"fieldPath": "metadata.labels['worker']"}}
    here["spec"]["containers"][0]["env"].append({"name": "TPU_WORKER_ID", "valueFrom": source})
    assert known(here) == ("metadata.labels['worker']", 2)


def test_a_tpu_slice_of_unknown_size_is_refused():
    assert names.CONSUMERS_ANNOTATION in refusal(pod(env={"TPU_WORKER_ID": "1"}))
    stated = {names.CONSUMERS_ANNOTATION: "4"}
    assert known(pod(env={"TPU_WORKER_ID": "1"}, annotations=stated)) == (1, 4)


@pytest.mark.parametrize("kind", ["ReplicaSet", "PyTorchJob"])
def test_an_owner_that_does_not_tell_is_refused_with_the_remedy(kind):
    told = refusal(pod(owner=(kind, "fit-1")))
    assert f"{kind} fit-1" in told
    assert names.CONSUMERS_ANNOTATION in told
    assert names.CONSUMER_INDEX_ANNOTATION in told


def test_annotations_state_what_no_owner_tells():
    owner = ("ReplicaSet", "fit-1")
    assert known(pod(owner=owner, annotations={names.CONSUMERS_ANNOTATION: "1"})) == (0, 1)
    both = {names.CONSUMERS_ANNOTATION: "3", names.CONSUMER_INDEX_ANNOTATION: "2"}
    assert known(pod(owner=owner, annotations=both)) == (2, 3)


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({names.CONSUMERS_ANNOTATION: "two"}, "'two' is not a whole number"),
        ({names.CONSUMERS_ANNOTATION: "0"}, "'0' is less than 1"),
        ({names.CONSUMERS_ANNOTATION: "-1"}, "'-1' is not a whole number"),
        ({names.CONSUMERS_ANNOTATION: "²"}, "'²' is not a whole number"),
        ({names.CONSUMERS_ANNOTATION: "2", names.CONSUMER_INDEX_ANNOTATION: "2"}, "from 0 to 1"),
        ({names.CONSUMER_INDEX_ANNOTATION: "2"}, names.CONSUMERS_ANNOTATION),
    ],
)
def test_annotations_that_make_no_sense_are_refused(annotations, told):
    assert told in refusal(pod(annotations=annotations))


def test_a_stated_count_corrects_the_owners():
    here = pod(annotations={names.CONSUMERS_ANNOTATION: "8"})
    assert known(here, Job=job(4)) == (COMPLETION_FIELD, 8)


def test_the_owners_to_look_at_are_named():
    assert [(one.kind, one.name) for one in owners_of(jobset_pod("a", 0, 0))] == [
        ("Job", "fit"),
        ("JobSet", "fits"),
    ]
    assert [one.name for one in owners_of(pod(owner=("StatefulSet", "fit")))] == ["fit"]
    assert owners_of(pod(owner=("ReplicaSet", "fit"))) == []
    assert owners_of(pod()) == []
