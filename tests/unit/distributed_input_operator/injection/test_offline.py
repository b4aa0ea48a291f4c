"""Injection into files: the same result as the webhook, and messages with file and object."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from distributed_input.api import names
from distributed_input.api.resource.problems import ResourceError
from distributed_input.api.resource.yaml_lines import documents
from distributed_input_operator.injection import pod as injection
from distributed_input_operator.injection.offline import InjectedManifests, dump_yaml, inject_files
from distributed_input_operator.injection.trainer_pod import RefusedError
from distributed_input_operator.objects.snapshot import Settings
from tests.unit.distributed_input.api.resource.manifests import manifest
from tests.unit.distributed_input_operator.injection.trainer_pods import (
    IMAGE,
    SETTINGS,
    finder,
    pod,
    resource,
    template,
)

INPUT = manifest("encryption: None", name="train")


def job(kind: str = "Job", **spec: Any) -> dict[str, Any]:
    body = {"completionMode": "Indexed", "completions": 2, "parallelism": 2, **spec}
    return {
        "apiVersion": "batch/v1",
        "kind": kind,
        "metadata": {"name": "fit"},
        "spec": {**body, "template": template()},
    }


def inject(
    *values: Any, image: str = IMAGE, worker_image: str = "", inputs: str = INPUT
) -> InjectedManifests:
    settings = Settings(worker_image, image)
    return inject_files({"job.yaml": dump_yaml(values), "input.yaml": inputs}, settings)


def refusal(*values: Any, **more: Any) -> str:
    with pytest.raises(RefusedError) as caught:
        inject(*values, **more)
    return str(caught.value)


def test_a_pod_gets_the_same_sidecar_as_from_the_webhook():
    plain = {"apiVersion": "v1", "kind": "Pod", **pod()}
    made = inject(plain).manifests[0]
    assert made == injection.inject(plain, [], finder(resource("train")), SETTINGS)


def test_a_jobs_template_gets_the_same_sidecar_as_its_pods_from_the_webhook():
    made = inject(job()).manifests[0]
    assert made["spec"]["template"] == injection.inject(
        template(), [job()], finder(resource("train")), SETTINGS
    )
    assert made["spec"]["completions"] == 2


def secrets(inputs: str) -> list[str]:
    """Return the Secrets of the sidecar in a pod."""
    plain = {"apiVersion": "v1", "kind": "Pod", **pod()}
    volumes = inject(plain, inputs=inputs).manifests[0]["spec"]["volumes"]
    (volume,) = (one for one in volumes if "projected" in one)
    return [one["secret"]["name"] for one in volume["projected"]["sources"] if "secret" in one]


def test_an_input_in_a_file_is_encrypted_unless_its_spec_says_otherwise():
    assert secrets(manifest(name="train")) == ["train-distributed-input-tls"]
    assert secrets(INPUT) == ["train-distributed-input"]


def test_other_documents_do_not_change_and_keep_their_order():
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {}}
    made = inject(config, job(), config).manifests
    assert [one["kind"] for one in made] == ["ConfigMap", "Job", "ConfigMap", "DistributedInput"]
    assert made[0] == config


def test_the_pods_of_lists_and_cron_jobs_are_injected():
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "nightly"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": job()["spec"]}},
    }
    made = inject({"apiVersion": "v1", "kind": "List", "items": [cron]}).manifests[0]
    inner = made["items"][0]["spec"]["jobTemplate"]["spec"]["template"]
    assert inner["spec"]["initContainers"][0]["name"] == names.SIDECAR_CONTAINER


@pytest.mark.parametrize("empty", [{}, {"metadata": None}])
def test_an_owner_without_metadata_is_an_owner_without_name(empty):
    spec = {"jobTemplate": {**empty, "spec": job()["spec"]}}
    cron = {"apiVersion": "batch/v1", "kind": "CronJob", **empty, "spec": spec}
    assert inject(cron).manifests
    unknown = {"apiVersion": "example.com/v1", "kind": "Fit", **empty, "spec": job()["spec"]}
    assert "from its owner Fit: " in refusal(unknown)


@pytest.mark.parametrize("items", [{}, {"items": None}, {"items": []}])
def test_a_list_without_items_does_not_change(items):
    empty = {"apiVersion": "v1", "kind": "List", **items}
    assert inject(empty, job()).manifests[0] == empty


def test_injecting_again_changes_nothing():
    made = inject(job()).manifests[0]
    assert inject(made).manifests[0] == made


def test_the_message_about_a_missing_input_has_file_and_object():
    message = refusal(job(), inputs=manifest(name="other"))
    assert message.startswith("job.yaml: Job fit: no DistributedInput 'train'")
    assert "(found: other)" in message


def test_an_input_of_another_namespace_is_not_used():
    there = INPUT.replace("{name: train}", "{name: train, namespace: b}")
    here = job()
    inject(here, inputs=there)  # kubectl may apply it to namespace b
    here["metadata"]["namespace"] = "a"
    assert "no DistributedInput 'train'" in refusal(here, inputs=there)
    here["metadata"]["namespace"] = "b"
    inject(here, inputs=there)


def test_a_deployment_needs_an_annotation_with_the_number_of_trainers():
    deployment = {**job("Deployment"), "apiVersion": "apps/v1"}
    assert names.CONSUMERS_ANNOTATION in refusal(deployment)
    annotations = deployment["spec"]["template"]["metadata"]["annotations"]
    annotations[names.CONSUMERS_ANNOTATION] = "1"
    inject(deployment)


def test_a_jobset_needs_the_webhook():
    parts = [{"name": "a", "template": {"spec": job()["spec"]}}]
    head = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "fits"},
    }
    jobset = {**head, "spec": {"replicatedJobs": parts}}
    assert "use the webhook" in refusal(jobset)


def test_files_without_a_request_for_the_sidecar_are_an_error():
    assert names.INJECT_LABEL in refusal({"kind": "ConfigMap", "metadata": {"name": "a"}})


def test_an_image_is_required_from_the_flag_or_the_input():
    assert "--image" in refusal(job(), image="")
    inject(job(), image="", inputs=manifest("sidecar: {image: 'a:1'}", "train"))


def test_a_worker_in_the_pod_needs_an_image_from_the_flag_or_the_input():
    local = "workers: {local: {cpus: 2, memory: 1Gi}}"
    assert "--worker-image" in refusal(job(), inputs=manifest(local, "train"))
    inject(job(), worker_image="w:1", inputs=manifest(local, "train"))
    worker = "template: {spec: {containers: [{name: worker, image: 'w:1'}]}}"
    named = f"workers: {{local: {{cpus: 2, memory: 1Gi}}, {worker}}}"
    inject(job(), inputs=manifest(named, "train"))


def test_a_warning_has_file_and_object():
    here = job()
    here["spec"]["template"]["spec"]["hostNetwork"] = True
    assert inject(here).warnings[0].startswith("job.yaml: Job fit: spec.hostNetwork")


def test_the_message_about_invalid_yaml_has_file_and_line():
    with pytest.raises(ResourceError, match=r"job\.yaml:3: is not YAML"):
        inject_files({"job.yaml": "a: 1\nb: [\n"}, SETTINGS)


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=20)
WORDS = [
    *"y Y yes No on OFF true null ~ Null = << - ? : #x @x !x &x *x %x |x >x 1 01 0o7 0x1F".split(),
    *"1e3 .5 1_000 1:30 2020-01-01 .inf -.NaN 0b1 +1 a:b a: {} [] {a} '' it's é".split(),
    *("", " a", "a ", "a: b", "x #y", "l\nm\n", "l \n m", '{"a": "b"}', '"', "\x07"),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(WORDS) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


@given(
    st.lists(st.dictionaries(st.sampled_from(WORDS), VALUES, min_size=1), min_size=1, max_size=2)
)
@example([{"y": {'"\x85': None}}])  # \x85 is a line break in YAML 1.1
@example([{"y": {"\n\x85": "a\n\r\u2028\u2029"}}])
def test_written_values_can_be_read_again(values: list[Any]) -> None:
    text = dump_yaml(values)
    assert list(yaml.safe_load_all(text)) == values
    assert [one.value for one in documents(text)] == values


def test_words_that_are_not_strings_in_every_version_of_yaml_are_quoted() -> None:
    assert dump_yaml([["y", "Off", "NULL", "plain"]]) == '---\n- "y"\n- "Off"\n- "NULL"\n- plain\n'
