"""Validation of the section `workers`."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import check_spec_problem, manifest

WORKER = "workers:\n  template:\n    spec:\n      containers:\n      - name: worker\n    "
INVALID = [
    ("workers:\n  replicas: two", "6: spec.workers.replicas", "an integer from 0 to 1000"),
    ("workers: {replicas: '2'}", "5: spec.workers.replicas", 'the text "2": remove the quotes'),
    ("workers: {replicas: 1.5}", "5: spec.workers.replicas", "an integer from 0 to 1000"),
    ("workers: {replicas: true}", "5: spec.workers.replicas", "not true"),
    (
        "workers: {replicas: 1001}",
        "5: spec.workers.replicas",
        "from 0 to 1000, for example 2, not 1001",
    ),
    ("workers: {replicas: -1}", "5: spec.workers.replicas", "from 0 to 1000"),
    (
        f"{WORKER}    env:\n        - {{name: A, value: '1'}}\n        - {{name: B, value: 3}}",
        "12: spec.workers.template.spec.containers[0].env[1].value",
        "3 is not a text: add quotes",
    ),
    (
        f"{WORKER}    env: [{{name: A, value: true}}]",
        "10: spec.workers.template.spec.containers[0].env[0].value",
        "true is not a text",
    ),
    (
        "workers:\n  template:\n    spec:\n      volumes: [{persistentVolumeClaim: digits}]",
        "8: spec.workers.template.spec.volumes[0].persistentVolumeClaim",
        '"digits" is not a mapping: write {claimName: digits}',
    ),
    (
        "workers: {template: {spec: {volumes: [{name: data, emptyDir: true}]}}}",
        "5: spec.workers.template.spec.volumes[0].emptyDir",
        "true is not a mapping: write its fields, or {} for the defaults",
    ),
    ("workers: 3", "5: spec.workers", "fields replicas, autoscaling, local, "),
    ("workers: {parallelism: 0}", "5: spec.workers.parallelism", "from 1 to 1024"),
    (
        "workers:\n  autoscaling:\n    maxReplicas: 3\n    minReplicas: 5",
        "8: spec.workers.autoscaling.minReplicas",
        "5 is greater than maxReplicas 3: lower minReplicas or raise maxReplicas",
    ),
    (
        "workers:\n  autoscaling: {minReplicas: 2}",
        "6: spec.workers.autoscaling.maxReplicas",
        "is missing: set it to an integer from 1 to 1000, for example 8",
    ),
    (
        "workers:\n  autoscaling: {minReplicas: 0, maxReplicas: 2}",
        "6: spec.workers.autoscaling.minReplicas",
        "0 needs workers beside the trainers: add local, or use autoscaling.idleTTLSeconds",
    ),
    (
        "workers:\n  accelerator: {resourceName: nvidia.com/gpu}\n  local: {cpus: 2, memory: 1Gi}",
        "7: spec.workers.local",
        "excludes accelerator, because the trainer uses the accelerators of its pod",
    ),
    ("workers: {local: {cpus: 2}}", "5: spec.workers.local.memory", "is missing"),
    ("workers: {local: {memory: 1Gi}}", "5: spec.workers.local.cpus", "is missing"),
    ("workers: {local: {cpus: 0, memory: 1Gi}}", "5: spec.workers.local.cpus", "from 1 to 1024"),
]


@pytest.mark.parametrize(("spec", "place", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_an_invalid_section_gets_a_message_with_line_field_and_remedy(spec, place, message):
    check_spec_problem(spec, place, message)


def test_either_replicas_or_autoscaling_sets_the_number():
    both = "workers: {replicas: 2, autoscaling: {maxReplicas: 3}}"
    check_spec_problem(both, "5: spec.workers.replicas", "autoscaling sets the number of")
    workers = parse(
        manifest("workers: {autoscaling: {minReplicas: 3, maxReplicas: 3}}")
    ).spec.workers
    assert workers.autoscaling is not None
    assert (workers.replicas, workers.autoscaling.min_replicas) == (1, 3)
    numbers = [
        parse(manifest(text)).spec.workers.replicas
        for text in ("workers: {}", "workers: {replicas: 0}")
    ]
    assert numbers == [1, 0]


def test_no_worker_pod_is_needed_beside_local_workers():
    text = "autoscaling: {minReplicas: 0, maxReplicas: 3}, local: {cpus: 8, memory: 4Gi}"
    workers = parse(manifest(f"workers: {{{text}}}")).spec.workers
    assert workers.local is not None
    assert (workers.local.cpus, workers.local.memory) == (8, "4Gi")
