"""The identity of owners."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.owners import COMPLETION_INDEX, JOB, POD_INDEX, title
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    job,
    owner,
    pod,
)

VOLCANO = "batch.volcano.sh/v1alpha1"
OPENKRUISE = "apps.kruise.io/v1beta1"


def test_a_kind_is_the_same_in_another_version_but_not_in_another_group():
    assert JOB.describes({"apiVersion": "batch/v2", "kind": "Job"})
    assert not JOB.describes({"apiVersion": VOLCANO, "kind": "Job"})
    assert not JOB.describes({"apiVersion": "v1", "kind": "Job"})
    assert not JOB.describes({"apiVersion": "batch/v1", "kind": "CronJob"})


@pytest.mark.parametrize(
    ("kind", "api_version"), [("Job", "a.b/v1"), ("StatefulSet", OPENKRUISE), ("JobSet", "a.b/v1")]
)
def test_an_owner_of_another_group_gives_no_rank(kind, api_version):
    spec = job(4)["spec"] | {"replicas": 4, "replicatedJobs": []}
    found = owner(kind, "fit", spec, api_version=api_version)
    message = refusal_of(pod(), found)
    assert f"its owner {kind} fit: set the annotations" in message
    annotations = {
        "distributed-input.dev/consumers": "4",
        "distributed-input.dev/consumer-index": "3",
    }
    assert rank_of(pod(annotations=annotations), found) == (3, 4)


def test_the_title_of_a_template_has_no_name():
    assert title({"kind": "Job", "metadata": {}}) == "Job"


COMPLETION_FIELD = f"metadata.annotations['{COMPLETION_INDEX}']"


def test_an_indexed_job_has_index_and_count():
    assert rank_of(pod(owner=("Job", "fit")), job(4)) == (COMPLETION_FIELD, 4)


def test_a_pod_of_a_job_that_was_scaled_gets_the_new_number():
    new = pod(owner=("Job", "fit"), annotations={COMPLETION_INDEX: "5"})
    assert rank_of(new, job(8)) == (COMPLETION_FIELD, 8)
    # The cached Job is older than the pod.
    assert "Job fit has 4 pods, but this one has index 5: retry" in refusal_of(new, job(4))


def test_a_job_of_one_pod_needs_no_index():
    assert rank_of(pod(owner=("Job", "fit")), job(1, indexed=False)) == (0, 1)
    assert rank_of(pod(owner=("Job", "fit")), job(None, 1, indexed=False)) == (0, 1)


def test_a_job_without_index_is_refused():
    assert "spec.completionMode: Indexed" in refusal_of(pod(), job(4, indexed=False))


def test_a_job_that_does_not_run_all_pods_together_is_refused():
    message = refusal_of(pod(), job(4, 2))
    assert "2 of its 4 pods" in message
    assert "spec.parallelism: 4" in message


def test_trainers_that_read_the_whole_input_may_run_one_after_the_other():
    assert rank_of(pod(annotations={names.CONSUMERS_ANNOTATION: "1"}), job(4, 2)) == (0, 1)


def test_the_default_parallelism_of_a_job_template_is_1():
    spec = {"completionMode": "Indexed", "completions": 4}
    assert "1 of its 4 pods" in refusal_of(pod(), owner("Job", "fit", spec))


@pytest.mark.parametrize("above", [("Sweep", "s"), ("CronJob", "s", "example.com/v1")])
def test_a_job_whose_controller_may_create_more_is_refused_without_the_count(above):
    found = job(4, above=above)
    message = refusal_of(pod(), found)
    assert f"Job fit belongs to {above[0]} s, which may create further trainers" in message
    assert f'{names.CONSUMERS_ANNOTATION}: "4"' in message
    annotated = pod(annotations={names.CONSUMERS_ANNOTATION: "4"})
    assert rank_of(annotated, found) == (COMPLETION_FIELD, 4)
    more = pod(annotations={names.CONSUMERS_ANNOTATION: "8"})
    assert "may create further trainers" in refusal_of(more, found)


def test_a_job_of_one_pod_whose_controller_may_create_more_is_refused():
    assert 'consumers: "1"' in refusal_of(pod(), job(1, indexed=False, above=("Sweep", "s")))


def test_a_job_of_a_cron_job_is_whole():
    assert rank_of(pod(), job(4, above=("CronJob", "nightly"))) == (COMPLETION_FIELD, 4)


def stateful_set(*above: str, **spec: Any) -> Any:
    return owner("StatefulSet", "fit", spec, *above)


def test_a_stateful_set_has_index_and_count():
    index, count = rank_of(pod(), stateful_set(replicas=3))
    assert (index, count) == (f"metadata.labels['{POD_INDEX}']", 3)


def test_the_index_is_relative_to_the_first_ordinal():
    trainer = pod(labels={POD_INDEX: "7"})
    assert rank_of(trainer, stateful_set(replicas=3, ordinals={"start": 5})) == (2, 3)


def test_without_its_label_the_ordinal_is_in_the_pods_name():
    trainer = pod()
    trainer["metadata"]["name"] = "fit-6"
    assert rank_of(trainer, stateful_set(replicas=3, ordinals={"start": 5})) == (1, 3)


def test_a_template_without_ordinal_is_refused_if_ordinals_do_not_start_at_0():
    message = refusal_of(pod(), stateful_set(replicas=3, ordinals={"start": 5}))
    assert "use the webhook, or start at 0" in message


def test_a_stateful_set_with_a_controller_is_refused_also_with_a_tpu_slice():
    found = stateful_set("LeaderWorkerSet", "fits", replicas=2)
    trainer = pod(env={"TPU_WORKER_ID": "0", "TPU_WORKER_HOSTNAMES": "a,b"})
    for one in (pod(), trainer):
        message = refusal_of(one, found)
        assert "its owner StatefulSet fit of LeaderWorkerSet fits: set the annotations" in message
