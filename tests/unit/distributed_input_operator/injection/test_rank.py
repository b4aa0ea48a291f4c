"""The rank of a trainer pod: the order of sources, annotations, and checks."""

from __future__ import annotations

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.owners import COMPLETION_INDEX
from distributed_input_operator.injection.rank import trainer_rank
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


@pytest.mark.parametrize("kind", ["ReplicaSet", "PyTorchJob"])
def test_a_pod_of_another_owner_is_refused_with_the_remedy(kind):
    message = refusal_of(pod(owner=(kind, "fit-1")))
    assert f"trainer index and count from its owner {kind} fit-1" in message
    assert names.CONSUMERS_ANNOTATION in message
    assert names.CONSUMER_INDEX_ANNOTATION in message


def test_annotations_give_a_pod_of_any_owner_its_rank():
    owner = ("ReplicaSet", "fit-1")
    assert rank_of(pod(owner=owner, annotations={names.CONSUMERS_ANNOTATION: "1"})) == (0, 1)
    both = {names.CONSUMERS_ANNOTATION: "3", names.CONSUMER_INDEX_ANNOTATION: "2"}
    assert rank_of(pod(owner=owner, annotations=both)) == (2, 3)


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
