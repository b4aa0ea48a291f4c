"""The rank of a trainer pod from its Job."""

from __future__ import annotations

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.owners.job import COMPLETION_INDEX
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import job, owner, pod

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
