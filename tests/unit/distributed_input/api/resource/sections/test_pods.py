"""Validation of accelerators and resources."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

INVALID = [
    (
        "workers: {accelerator: {type: nvidia, topology: 2x2}}",
        "5: spec.workers.accelerator.topology",
        "is only for type gke-tpu: remove it",
    ),
    (
        "workers: {accelerator: {type: gke-tpu, topology: 2x2}}",
        "5: spec.workers.accelerator.product",
        "is missing: type gke-tpu needs it, for example 'tpu-v5-lite-podslice'",
    ),
    (
        "workers: {accelerator: {type: gke-tpu, product: tpu-v5p-slice}}",
        "5: spec.workers.accelerator.topology",
        "is missing: type gke-tpu needs it, for example '2x2'",
    ),
    ("workers: {accelerator: {}}", "5: spec.workers.accelerator.type", "one of nvidia, gke-nvidia"),
    (
        "workers: {resources: {requests: {cpu: four}}}",
        "5: spec.workers.resources.requests.cpu",
        "'four' is not a quantity: use a number such as 2, 500m or 8Gi",
    ),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_a_quantity_may_be_written_as_an_integer():
    text = "workers: {resources: {requests: {cpu: 4, memory: 1.5Gi}}}"
    requests = parse(manifest(text)).spec.workers.resources.requests
    assert requests == {"cpu": "4", "memory": "1.5Gi"}
