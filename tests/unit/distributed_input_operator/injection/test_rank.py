"""The rank of a trainer pod: the order of sources, annotations, and checks."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.owners import COMPLETION_INDEX
from distributed_input_operator.injection.rank import reads_no_input, trainer_rank
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import job, pod, tf_config

COMPLETION_FIELD = f"metadata.annotations['{COMPLETION_INDEX}']"


def test_a_pod_without_owner_is_the_only_trainer():
    assert rank_of(pod()) == (0, 1)


def test_tf_config_takes_precedence_over_the_job():
    assert rank_of(pod(env=tf_config("worker", 2, worker=4)), job(8)) == (2, 4)


@pytest.mark.parametrize("task", ["ps", "evaluator"])
def test_tf_configs_evaluator_and_ps_have_no_rank(task):
    assert trainer_rank(pod(env=tf_config(task, 0, chief=1, worker=3, ps=2)), []) is None


@pytest.mark.parametrize("kind", ["ReplicaSet", "XGBoostJob"])
def test_a_pod_of_another_owner_is_refused_with_the_remedy(kind):
    message = refusal_of(pod(owner=(kind, "fit-1")))
    assert f"trainer index and count from its owner {kind} fit-1" in message
    assert names.CONSUMERS_ANNOTATION in message
    assert f"{names.CONSUMER_INDEX_ANNOTATION}: metadata.labels['KEY']" in message


def test_an_annotation_sets_the_number_of_processes_that_read():
    found = trainer_rank(pod(annotations={names.RANKS_ANNOTATION: "4"}), ())
    assert found is not None
    assert (found.count, found.ranks, found.consumers) == (1, 4, 4)
    # torchrun may be started with another number, or only one of its processes reads.
    alone = trainer_rank(pod(env={"PET_NPROC_PER_NODE": "8"}), ())
    assert alone is not None
    assert alone.ranks == 1
    for text in ("0", "auto", "2/3"):
        refused = refusal_of(pod(annotations={names.RANKS_ANNOTATION: text}))
        assert f"annotation {names.RANKS_ANNOTATION}: '{text}' is neither" in refused


def test_an_annotation_sets_the_number_of_trainers_that_read_the_same_rows():
    annotations = {names.RANKS_ANNOTATION: "1/2", names.CONSUMERS_ANNOTATION: "4"}
    annotations[names.CONSUMER_INDEX_ANNOTATION] = "3"
    found = trainer_rank(pod(annotations=annotations), ())
    assert found is not None
    assert (found.count, found.ranks, found.span, found.consumers) == (4, 1, 2, 2)
    annotations[names.CONSUMERS_ANNOTATION] = "5"
    assert "5 trainers (from annotations) cannot be divided" in refusal_of(
        pod(annotations=annotations)
    )


def test_annotations_give_a_pod_of_any_owner_its_rank():
    owner = ("ReplicaSet", "fit-1")
    assert rank_of(pod(owner=owner, annotations={names.CONSUMERS_ANNOTATION: "1"})) == (0, 1)
    both = {names.CONSUMERS_ANNOTATION: "3", names.CONSUMER_INDEX_ANNOTATION: "2"}
    assert rank_of(pod(owner=owner, annotations=both)) == (2, 3)


def numbered_by(field: str, **metadata: Any) -> Any:
    """Return a pod of an unknown owner with three trainers. A field has its index."""
    annotations = {names.CONSUMERS_ANNOTATION: "3", names.CONSUMER_INDEX_ANNOTATION: field}
    annotations |= metadata.pop("annotations", {})
    return pod(owner=("Sweep", "s"), annotations=annotations, **metadata)


def test_a_shared_template_names_the_field_with_the_index_of_each_pod():
    label, annotation = "metadata.labels['example.com/n']", "metadata.annotations['example.com/n']"
    assert rank_of(numbered_by(label, labels={"example.com/n": "2"})) == (2, 3)
    assert rank_of(numbered_by(annotation, annotations={"example.com/n": "1"})) == (1, 3)
    # A template has the field only in its pods.
    shared = numbered_by(label)
    del shared["metadata"]["ownerReferences"]
    assert rank_of(shared, job(9, indexed=False)) == (label, 3)


@pytest.mark.parametrize("labels", [{}, {"example.com/n": ""}, {"example.com/n": "x"}])
def test_a_pod_without_the_number_in_its_field_is_refused(labels):
    message = refusal_of(numbered_by("metadata.labels['example.com/n']", labels=labels))
    assert "metadata.labels['example.com/n'] of the pod" in message
    assert "is not a non-negative integer" in message


@pytest.mark.parametrize("field", ["metadata.name", "metadata.labels", "spec.nodeName", "-1"])
def test_another_field_is_no_index(field):
    assert names.CONSUMER_INDEX_ANNOTATION in refusal_of(numbered_by(field))


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({names.CONSUMERS_ANNOTATION: "two"}, "'two' is not a non-negative integer"),
        ({names.CONSUMERS_ANNOTATION: "0"}, "'0' is less than 1"),
        ({names.CONSUMERS_ANNOTATION: "-1"}, "'-1' is not a non-negative integer"),
        ({names.CONSUMERS_ANNOTATION: "²"}, "'²' is not a non-negative integer"),
        ({names.CONSUMERS_ANNOTATION: "2", names.CONSUMER_INDEX_ANNOTATION: "2"}, "from 0 to 1"),
        ({names.CONSUMER_INDEX_ANNOTATION: "2"}, names.CONSUMERS_ANNOTATION),
    ],
)
def test_invalid_annotations_are_refused(annotations, message):
    assert message in refusal_of(pod(annotations=annotations))


def test_an_annotated_count_overrides_the_owners():
    annotated = pod(annotations={names.CONSUMERS_ANNOTATION: "8"})
    assert rank_of(annotated, job(4)) == (COMPLETION_FIELD, 8)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (tf_config("worker", 2, worker=4), (2, 4)),
        (tf_config("chief", 0, chief=1, worker=3), (0, 4)),
        (tf_config("worker", 0, chief=1, worker=3), (1, 4)),
        (tf_config("worker", 2, chief=1, worker=3, ps=2, evaluator=1), (3, 4)),
    ],
)
def test_tf_config_has_index_and_count(env, expected):
    assert rank_of(pod(env=env)) == expected
    assert not reads_no_input(pod(env=env))


@pytest.mark.parametrize("task", ["ps", "evaluator"])
def test_tf_configs_evaluator_and_ps_read_no_input(task):
    assert reads_no_input(pod(env=tf_config(task, 0, chief=1, worker=3, ps=2)))


@pytest.mark.parametrize("text", ["", "{}", '{"cluster": {"worker": ["$(HOST):1"]}, "task": {}}'])
def test_without_a_literal_tf_config_the_owner_is_used(text):
    index = f"metadata.annotations['{COMPLETION_INDEX}']"
    assert rank_of(pod(env={"TF_CONFIG": text}), job(4)) == (index, 4)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"TF_CONFIG": "{"}, "not a valid TensorFlow configuration"),
        ({"TF_CONFIG": "[1]"}, "not a valid TensorFlow configuration"),
        (tf_config("trainer", 0, worker=2), '"trainer"'),
        (tf_config("worker", "0", worker=2), '"0"'),
        (tf_config("worker", -1, worker=2), "-1"),
        (tf_config("worker", 2, worker=2), "lists 2 of type worker"),
        (tf_config("worker", 0, worker={"1": "host:1"}), names.CONSUMERS_ANNOTATION),
    ],
)
def test_an_invalid_tf_config_is_refused(env, message):
    assert message in refusal_of(pod(env=env))


def test_a_tpu_slice_has_index_and_count():
    env = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b,c,d"}
    assert rank_of(pod(env=env)) == (1, 4)


def test_the_index_counts_through_several_tpu_slices():
    env = {"TPU_WORKER_ID": "1", "TPU_WORKER_HOSTNAMES": "a,b"}
    env |= {"MEGASCALE_NUM_SLICES": "3", "MEGASCALE_SLICE_ID": "2"}
    assert rank_of(pod(env=env)) == (5, 6)
    del env["MEGASCALE_SLICE_ID"]
    assert "MEGASCALE_SLICE_ID" in refusal_of(pod(env=env))


def test_a_tpu_worker_id_may_refer_to_a_field_of_the_pod():
    trainer = pod(env={"TPU_WORKER_HOSTNAMES": "a,b"})
    source = {"fieldRef": {"fieldPath": "metadata.labels['worker']"}}
    trainer["spec"]["containers"][0]["env"].append({"name": "TPU_WORKER_ID", "valueFrom": source})
    assert rank_of(trainer) == ("metadata.labels['worker']", 2)


def test_a_tpu_slice_of_unknown_size_needs_an_annotation():
    assert names.CONSUMERS_ANNOTATION in refusal_of(pod(env={"TPU_WORKER_ID": "1"}))
    annotations = {names.CONSUMERS_ANNOTATION: "4"}
    assert rank_of(pod(env={"TPU_WORKER_ID": "1"}, annotations=annotations)) == (1, 4)


def test_a_tf_config_that_is_nested_too_deeply_is_refused():
    assert "TF_CONFIG: not a valid" in refusal_of(pod(env={"TF_CONFIG": "[" * 100_000}))
