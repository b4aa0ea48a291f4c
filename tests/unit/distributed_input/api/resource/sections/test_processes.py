"""Validation of the sections `dispatcher`, `sidecar`, `tfDataService` and `trainers`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.parse import parse
from distributed_input.api.resource.scalars import MIB
from distributed_input.api.resource.sections.processes import SIDECAR_BYTES, TrainersSpec
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

INVALID = [
    (
        "sidecar:\n  buffer: 256Mi\n  resources:\n    limits: {memory: 300Mi}",
        "8: spec.sidecar.resources.limits.memory",
        "too small for buffer 256Mi and the process: set it to at least 384Mi",
    ),
    ("dispatcher: {port: 70000}", "5: spec.dispatcher.port", "from 1 to 65535, for example 7070"),
    ("dispatcher: {port: 9090}", "5: spec.dispatcher.port", "9090 is the dispatcher's port for"),
    (
        "dispatcher: {port: 9090}\ntfDataService: {}",
        "5: spec.dispatcher.port",
        "use another port, for example 7070",
    ),
    ("sidecar: {buffer: 256MB}", "5: spec.sidecar.buffer", "use 256Mi"),
    ("sidecar: {buffer: much}", "5: spec.sidecar.buffer", "for example 256Mi"),
    ("sidecar: {buffer: 1Ki}", "5: spec.sidecar.buffer", "use 1Mi to 1Ti"),
    ("sidecar: {buffer: 2Ti}", "5: spec.sidecar.buffer", "use 1Mi to 1Ti"),
    ("sidecar: {buffer: '1048575.5'}", "5: spec.sidecar.buffer", "use 1Mi to 1Ti"),
    ("sidecar: {buffer: 500m}", "5: spec.sidecar.buffer", "500m is out of range: use 1Mi to 1Ti"),
    ("sidecar: {buffer: 1E}", "5: spec.sidecar.buffer", "1E is out of range: use 1Mi to 1Ti"),
    ("sidecar: {buffer: true}", "5: spec.sidecar.buffer", "for example '256Mi'"),
    ("sidecar: {readAhead: 9}", "5: spec.sidecar.readAhead", "from 0 to 8"),
    ("sidecar: {timeoutSeconds: 0}", "5: spec.sidecar.timeoutSeconds", "from 1 to 86400"),
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


def test_a_memory_limit_of_buffer_and_process_is_enough():
    least = 64 * MIB + SIDECAR_BYTES
    text = f"sidecar: {{buffer: 64Mi, resources: {{limits: {{memory: {least}}}}}}}"
    assert parse(manifest(text)).spec.sidecar.resources.limits == {"memory": str(least)}


def test_an_empty_mapping_enables_the_service_with_defaults():
    service = parse(manifest("encryption: None\ntfDataService: {}")).spec.tf_data_service
    assert service is not None
    assert (service.port, service.static_sharding) == (7080, False)
    assert parse(manifest()).spec.tf_data_service is None


def test_by_default_trainers_have_cost_and_weight_1():
    trainers = TrainersSpec()
    assert trainers.accelerator is None
    assert (trainers.accelerators_per_trainer, trainers.weight, trainers.priority) == (1, "1", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"accelerator": ""},
        {"acceleratorsPerTrainer": 0},
        {"weight": "0"},
        {"weight": 1001},
        {"weight": 0.5},
        {"priority": -1001},
    ],
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValidationError):
        TrainersSpec.model_validate(fields)
