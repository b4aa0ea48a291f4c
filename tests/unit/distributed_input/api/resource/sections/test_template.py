"""The pod template of workers."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest


def test_a_template_has_typed_and_further_fields():
    text = """\
        workers:
          template:
            metadata: {labels: {a: b}}
            spec:
              priorityClassName: low
              hostAliases: [{ip: 10.1.1.1}]
              containers:
              - name: worker
                image: digits:1
                tty: true
                resources: {requests: {cpu: 2}, claims: [{name: gpu}]}
              - {name: proxy, image: proxy:1}
        """
    workers = parse(manifest(text)).spec.workers
    assert (workers.container.image, workers.pod.priority_class_name) == ("digits:1", "low")
    assert workers.container.resources.requests == {"cpu": "2"}
    assert workers.template.further_fields == {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "hostAliases": [{"ip": "10.1.1.1"}],
            "containers": [
                {"name": "worker", "tty": True, "resources": {"claims": [{"name": "gpu"}]}},
                {"name": "proxy", "image": "proxy:1"},
            ],
        },
    }


def test_without_a_template_the_container_has_no_fields():
    workers = parse(manifest()).spec.workers
    assert (workers.container.image, workers.container.env) == (None, [])
    assert workers.template.further_fields == {"metadata": {}, "spec": {"containers": []}}


def test_a_stored_template_keeps_its_further_fields_and_others_are_ignored():
    """A newer definition may have more fields. Those of a template are Kubernetes' own."""
    template = {"spec": {"hostNetwork": True, "containers": [{"name": "worker", "tty": True}]}}
    stored = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": "digits"},
        "spec": {"invented": 1, "workers": {"later": {}, "template": template}},
        "status": {"conditions": 7},
    }
    workers = DistributedInput.from_stored(stored).spec.workers
    assert workers.template.further_fields == {"metadata": {}, **template}


INVALID = [
    (
        "workers: {accelerator: {resourceName: gpu}}",
        "5: spec.workers.accelerator.resourceName",
        "for example 'nvidia.com/gpu'",
    ),
    ("workers: {accelerator: {}}", "5: spec.workers.accelerator.resourceName", "is missing"),
    (
        "dispatcher: {resources: {requests: {cpu: four}}}",
        "5: spec.dispatcher.resources.requests.cpu",
        "'four' is not a quantity: use a number such as 2, 500m or 8Gi",
    ),
    (
        "workers: {template: {spec: {containers: [{name: a, resources: {limits: {cpu: x}}}]}}}",
        "5: spec.workers.template.spec.containers[0].resources.limits.cpu",
        "'x' is not a quantity",
    ),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_a_quantity_may_be_written_as_an_integer():
    text = "dispatcher: {resources: {requests: {cpu: 4, memory: 1.5Gi}}}"
    requests = parse(manifest(text)).spec.dispatcher.resources.requests
    assert requests == {"cpu": "4", "memory": "1.5Gi"}
