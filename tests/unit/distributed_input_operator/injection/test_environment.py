"""The rank of a trainer pod from TF_CONFIG or its TPU slice."""

from __future__ import annotations

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.environment import reads_no_input
from distributed_input_operator.injection.owners import COMPLETION_INDEX
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import job, pod, tf_config


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
