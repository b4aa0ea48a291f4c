"""The identity of owners."""

from __future__ import annotations

import pytest

from distributed_input_operator.injection.owners.job import JOB
from distributed_input_operator.injection.owners.owner import title
from tests.unit.distributed_input_operator.injection.ranks import rank_of, refusal_of
from tests.unit.distributed_input_operator.injection.trainer_pods import job, owner, pod

VOLCANO = "batch.volcano.sh/v1alpha1"
OPENKRUISE = "apps.kruise.io/v1beta1"


def test_a_kind_is_the_same_in_another_version_but_not_in_another_group():
    assert JOB.describes({"apiVersion": "batch/v2", "kind": "Job"})
    assert not JOB.describes({"apiVersion": VOLCANO, "kind": "Job"})
    assert not JOB.describes({"apiVersion": "v1", "kind": "Job"})
    assert not JOB.describes({"apiVersion": "batch/v1", "kind": "CronJob"})


@pytest.mark.parametrize(
    ("kind", "api_version"), [("Job", VOLCANO), ("StatefulSet", OPENKRUISE), ("JobSet", "a.b/v1")]
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
