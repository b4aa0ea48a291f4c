"""Validation of accelerators and resources."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

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
