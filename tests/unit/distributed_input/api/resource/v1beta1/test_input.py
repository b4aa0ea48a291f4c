"""Validation of v1beta1. Messages have its names of fields and values."""

from __future__ import annotations

import pytest

from distributed_input.api.resource.parse import parse
from distributed_input.api.resource.problems import ResourceError

HEAD = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: digits}
spec:
"""
ENTRY = 'dataset: {type: EntryPoint, entryPoint: {function: "digits:dataset_fn"}}'
POD = "workers: {template: {spec: {%s}}}"

INVALID = [
    ("dataset: {}", "spec.dataset.type", "is missing: set it to one of EntryPoint, Trainer"),
    ("dataset: {type: EntryPoint}", "spec.dataset.entryPoint", "type EntryPoint needs it"),
    (
        ENTRY.replace("type: EntryPoint", "type: Trainer"),
        "spec.dataset.entryPoint",
        "is only for type EntryPoint: remove it, or set type to EntryPoint",
    ),
    (
        ENTRY.replace("digits:dataset_fn", "digits"),
        "spec.dataset.entryPoint.function",
        "has no function",
    ),
    (
        ENTRY.replace("}}", ", source: {type: Path}}}"),
        "spec.dataset.entryPoint.source.path",
        "type Path needs it",
    ),
    ("order: any", "spec.order", "must be one of Strict, Any, not"),
    ("networkPolicy: true", "spec.networkPolicy", "must be one of Restricted, Open, not true"),
    (
        "trainers: {weight: 0.5}",
        "spec.trainers.weight",
        "must be text, for example '500m', not 0.5",
    ),
    ("trainers: {weight: 2k}", "spec.trainers.weight", "use 1m to 1000"),
    ("managedBy: canary", "spec.managedBy", "for example 'distributed-input.dev/canary'"),
    ("workers: {image: x}", "spec.workers.image", "unknown field 'image'"),
    (
        POD % "containers: [{name: worker, image: 3}]",
        "spec.workers.template.spec.containers[0].image",
        "put it in quotes",
    ),
    (
        POD % "containers: [{name: a}, {name: a}]",
        "spec.workers.template.spec.containers",
        "two have the name 'a'",
    ),
    (
        "{partitions: 5, batching: {globalBatchSize: 12}}",
        "spec.partitions",
        "or set `order: Any`",
    ),
    (
        "{tfDataService: {}, encryption: All}",
        "spec.tfDataService",
        "set encryption: None",
    ),
    (
        "{tfDataService: {port: 9090}}",
        "spec.tfDataService.port",
        "already used",
    ),
    (
        "{tfDataService: {staticSharding: true}, workers: {autoscaling: {maxReplicas: 2}}}",
        "spec.tfDataService.staticSharding",
        "fixed number of workers",
    ),
    (
        "workers: {local: {cpus: 1, memory: 1Gi}, accelerator: {resourceName: amd.com/gpu}}",
        "spec.workers.local",
        "excludes accelerator",
    ),
    (
        "workers: {autoscaling: {minReplicas: 0, maxReplicas: 2}}",
        "spec.workers.autoscaling.minReplicas",
        "add local",
    ),
]


@pytest.mark.parametrize(("spec", "field", "message"), INVALID, ids=[row[0] for row in INVALID])
def test_a_problem_names_the_field_of_v1beta1(spec: str, field: str, message: str) -> None:
    with pytest.raises(ResourceError) as caught:
        parse(f"{HEAD}  {spec}", "input.yaml")
    (problem,) = caught.value.problems
    assert problem.startswith(f"input.yaml:5: {field}: ")
    assert message in problem


def test_all_fields_are_read() -> None:
    found = parse(
        f"""{HEAD}
  {ENTRY.replace("}}", ", args: {folder: data}, source: {type: ConfigMap, configMap: {name: c}}}}")}
  networkPolicy: Open
  managedBy: distributed-input.dev/canary
  trainers: {{weight: 500m}}
  workers:
    template:
      spec:
        priorityClassName: low
        hostAliases: [{{ip: 10.1.1.1}}]
        containers: [{{name: worker, image: "digits:1"}}]
"""
    )
    assert found.spec.dataset.entry_point == "digits:dataset_fn"
    assert found.spec.dataset.args == {"folder": "data"}
    assert found.spec.dataset.source.config_map == "c"
    assert found.spec.network_policy is False
    assert found.spec.operator_class == "canary"
    assert found.spec.trainers.weight == 0.5
    assert found.spec.workers.image == "digits:1"
    assert found.spec.workers.priority_class_name == "low"
    assert found.spec.workers.pod_template == {"spec": {"hostAliases": [{"ip": "10.1.1.1"}]}}


def test_the_common_case_has_eight_lines() -> None:
    text = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: digits}
spec:
  dataset: {type: EntryPoint, entryPoint: {function: "digits:dataset_fn"}}
  workers:
    replicas: 2
    template: {spec: {containers: [{name: worker, image: "registry/digits:1"}]}}
"""
    assert len(text.splitlines()) == 8
    assert parse(text).spec.workers.image == "registry/digits:1"
