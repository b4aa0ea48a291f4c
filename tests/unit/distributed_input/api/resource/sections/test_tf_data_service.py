"""Validation of the section `tfDataService` together with the sections that it depends on."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

INVALID = [
    (
        "workers: {autoscaling: {maxReplicas: 3}}\ntfDataService:\n  staticSharding: true",
        "7: spec.tfDataService.staticSharding",
        "needs a fixed number of workers: remove workers.autoscaling",
    ),
    (
        "tfDataService: {port: 7070}",
        "5: spec.tfDataService.port",
        "7070 is already used in the dispatcher's pod",
    ),
    (
        "dispatcher: {port: 7080}\ntfDataService: {}",
        "6: spec.tfDataService.port",
        "7080 is already used in the dispatcher's pod",
    ),
    ("tfDataService: {port: 80}", "5: spec.tfDataService.port", "from 1024 to 65535"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_an_empty_mapping_enables_the_service_with_defaults():
    service = parse(manifest("encryption: None\ntfDataService: {}")).spec.tf_data_service
    assert service is not None
    assert (service.port, service.static_sharding) == (7080, False)
    assert parse(manifest()).spec.tf_data_service is None
