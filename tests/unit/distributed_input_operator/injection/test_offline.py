"""Injection into files: what the webhook makes, and errors that name file and object."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.problems import ResourceError
from distributed_input_operator.injection.injection import injected
from distributed_input_operator.injection.offline import Result, with_sidecars
from distributed_input_operator.injection.trainers import RefusedError
from distributed_input_operator.injection.yaml_text import dumped
from tests.unit.distributed_input.api.resource.manifests import manifest
from tests.unit.distributed_input_operator.injection.trainerpods import (
    IMAGE,
    finder,
    pod,
    resource,
    template,
)

INPUT = manifest(name="train")


def job(kind: str = "Job", **spec: Any) -> dict[str, Any]:
    body = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": kind,
        "metadata": {"name": "fit"},
        "spec": {**body, "template": template()},
    }


def inject(*values: Any, image: str = IMAGE, inputs: str = INPUT) -> Result:
    return with_sidecars({"job.yaml": dumped(values), "input.yaml": inputs}, image)


def refusal(*values: Any, **more: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        inject(*values, **more)
    return str(caught.value)


def test_a_pod_gets_what_the_webhook_gives_it():
    plain = {"apiVersion": "v1", "kind": "Pod", **pod()}
    made = inject(plain).manifests[0]
    assert made == injected(plain, {}, finder(resource("train")), IMAGE)


def test_a_jobs_template_gets_what_the_webhook_gives_its_pods():
    made = inject(job()).manifests[0]
    assert made["spec"]["template"] == injected(
        template(), {"Job": job()}, finder(resource("train")), IMAGE
    )
    assert made["spec"]["completions"] == 2


def test_the_files_other_documents_stay_and_in_their_order():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}
    made = inject(config, job(), config).manifests
    assert [one["kind"] for one in made] == ["ConfigMap", "Job", "ConfigMap", "DistributedInput"]
    assert made[0] == config


def test_lists_and_cron_jobs_are_looked_into():
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": job()["spec"]}},
    }
    made = inject({"apiVersion": "v1", "kind": "List", "items": [cron]}).manifests[0]
    inner = made["items"][0]["spec"]["jobTemplate"]["spec"]["template"]
    assert inner["spec"]["initContainers"][0]["name"] == names.SIDECAR_CONTAINER


def test_injecting_again_changes_nothing():
    made = inject(job()).manifests[0]
    assert inject(made).manifests[0] == made


def test_a_missing_input_is_named_with_file_and_object():
    told = refusal(job(), inputs=manifest(name="other"))
    assert told.startswith("job.yaml: Job fit: no DistributedInput 'train'")
    assert "there are: other" in told


def test_inputs_of_other_namespaces_are_not_the_pods():
    there = INPUT.replace("{name: train}", "{name: train, namespace: b}")
    here = job()
    inject(here, inputs=there)  # kubectl's namespace, for all we know
    here["metadata"]["namespace"] = "a"
    assert "no DistributedInput 'train'" in refusal(here, inputs=there)
    here["metadata"]["namespace"] = "b"
    inject(here, inputs=there)


def test_a_deployment_must_state_how_many_trainers_there_are():
    deployment = {**job("Deployment"), "apiVersion": "apps/v1"}
    assert names.CONSUMERS_ANNOTATION in refusal(deployment)
    stated = deployment["spec"]["template"]["metadata"]["annotations"]
    stated[names.CONSUMERS_ANNOTATION] = "1"
    inject(deployment)


def test_a_jobset_is_for_the_webhook():
    parts = [{"name": "a", "template": {"spec": job()["spec"]}}]
    jobset = {"kind": "JobSet", "metadata": {"name": "fits"}, "spec": {"replicatedJobs": parts}}
    assert "leave it to the webhook" in refusal(jobset)


def test_files_in_which_nothing_asks_are_an_error():
    assert names.INJECT_LABEL in refusal({"kind": "ConfigMap", "metadata": {"name": "a"}})


def test_without_an_image_the_input_must_name_one():
    assert "--image" in refusal(job(), image="")
    inject(job(), image="", inputs=manifest("sidecar: {image: 'a:1'}", "train"))


def test_what_will_not_work_is_said():
    here = job()
    here["spec"]["template"]["spec"]["hostNetwork"] = True
    assert inject(here).warnings[0].startswith("job.yaml: Job fit: spec.hostNetwork")


def test_a_file_that_is_no_yaml_is_named_with_its_line():
    with pytest.raises(ResourceError, match=r"job\.yaml:3: is not YAML"):
        with_sidecars({"job.yaml": "a: 1\nb: [\n"}, IMAGE)
