"""The laws of the conversion, with generated resources of both versions."""

import copy
import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from distributed_input.api.resource.conversion.convert import KEPT, VERSIONS, _seen, convert
from distributed_input.api.resource.input import API_VERSION, DistributedInput
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.snapshot import Settings
from distributed_input_operator.objects.worker import worker_objects
from testing.versions.generated import MODELS, inputs

Json = dict[str, Any]
# `make conversions N=10000` sets it.
law = settings(
    max_examples=int(os.environ.get("CONVERSIONS", "60")),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
resources = st.sampled_from(VERSIONS).flatmap(inputs)


def other(version: str) -> str:
    return BETA_VERSION if version == API_VERSION else API_VERSION


def text(value: Any) -> str:
    """Return JSON: in Python, 1 == True."""
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("version", VERSIONS)
@law
@given(st.data())
def test_a_round_trip_gives_the_same_resource(version: str, data: st.DataObject) -> None:
    found = data.draw(inputs(version))
    before = copy.deepcopy(found)
    there = convert(found, other(version))
    assert text(found) == text(before)
    assert there["apiVersion"] == other(version)
    assert text(convert(there, version)) == text(found)


@pytest.mark.parametrize("version", VERSIONS)
@law
@given(st.data())
def test_a_valid_resource_is_valid_in_the_other_version(version: str, data: st.DataObject) -> None:
    there = convert(data.draw(inputs(version)), other(version))
    MODELS[other(version)].model_validate(there)


@law
@given(resources)
def test_the_fields_of_the_result_mean_the_same_without_the_annotation(found: Json) -> None:
    """Else a part of the annotation would contradict the fields, and be dropped."""
    version = found["apiVersion"]
    there = without_notes(convert(found, other(version)))
    normal = without_notes(convert(there, version))
    assert text(without_notes(convert(normal, other(version)))) == text(there)


@law
@given(st.data())
def test_an_annotation_of_the_user_changes_no_meaning(data: st.DataObject) -> None:
    found = without_notes(data.draw(resources))
    stranger = data.draw(resources)
    version = found["apiVersion"]
    plain = convert(found, other(version))
    # What another resource has kept, and arbitrary values at paths of fields.
    there = convert(convert(stranger, other(version)), version)
    notes = there.get("metadata", {}).get("annotations", {})
    key = KEPT[other(version)]
    row = {"path": data.draw(PATHS), "value": data.draw(VALUES)}
    for note in (notes.get(key, "[]"), json.dumps([row]), data.draw(st.text(max_size=5))):
        tampered = copy.deepcopy(found)
        tampered["metadata"].setdefault("annotations", {})[key] = note
        result = convert(tampered, other(version))
        assert text(without_notes(convert(without_notes(result), version))) == text(
            without_notes(convert(without_notes(plain), version))
        )


@pytest.mark.parametrize(
    ("alpha", "beta"), [("none", "None"), ("control", "Control"), ("all", "All"), ("x", "x")]
)
def test_the_encryption_in_the_status_has_the_words_of_the_version(alpha: str, beta: str) -> None:
    one = {"apiVersion": API_VERSION, "metadata": {"name": "x"}, "spec": {}}
    found = convert({**one, "status": {"encryption": alpha}}, BETA_VERSION)
    assert found["status"] == {"encryption": beta}
    assert found["spec"] == {}
    del found["metadata"]  # Without annotations, only the words are converted.
    assert convert(found, API_VERSION)["status"] == {"encryption": alpha}


VALUES = st.sampled_from([None, 5, "a", [], {}, [3], {"type": 3}, {"containers": 5}])
PATHS = st.sampled_from(
    [
        ["spec"],
        ["spec", "seed"],
        ["spec", "dataset"],
        ["spec", "encryption"],
        ["spec", "trainers", "weight"],
        ["spec", "workers", "template"],
        ["spec", "workers", "template", "spec"],
        ["spec", "workers", "template", "spec", "containers"],
        ["spec", "workers", "accelerator"],
        ["spec", "workers", "podTemplate"],
        ["status", "live"],
        ["status", "encryption"],
    ]
)


def without_notes(found: Json) -> Json:
    result = copy.deepcopy(found)
    annotations = result["metadata"].get("annotations", {})
    for key in KEPT.values():
        annotations.pop(key, None)
    if not annotations:
        result["metadata"].pop("annotations", None)
    return result


def set_at(found: Json, path: str, value: Any) -> Json:
    result = copy.deepcopy(found)
    section = result
    *parents, last = path.split(".")
    for key in parents:
        section = section.setdefault(key, {})
    section[last] = value
    return result


CHANGES = [
    (BETA_VERSION, "spec.suspend", True, "spec.suspend", True),
    (BETA_VERSION, "spec.order", "Any", "spec.order", "any"),
    (BETA_VERSION, "spec.networkPolicy", "Open", "spec.networkPolicy", False),
    (API_VERSION, "spec.workers.image", "new:1", "spec.workers.template.spec", None),
    (API_VERSION, "spec.determinism", "relaxed", "spec.determinism", "Relaxed"),
    (API_VERSION, "spec.trainers.weight", 0.125, "spec.trainers.weight", "0.125"),
]


@pytest.mark.parametrize(("version", "path", "value", "seen", "as_seen"), CHANGES)
@law
@given(st.data())
def test_a_change_in_one_version_is_seen_in_the_other(
    version: str, path: str, value: Any, seen: str, as_seen: Any, data: st.DataObject
) -> None:
    found = convert(data.draw(inputs(other(version))), version)
    if version == API_VERSION and path == "spec.workers.image":
        found.get("spec", {}).get("workers", {}).pop("podTemplate", None)
    changed = set_at(found, path, value)
    there: Any = convert(changed, other(version))
    assert text(without_notes(convert(there, version))) == text(without_notes(changed))
    for key in seen.split("."):
        there = there[key]
    if as_seen is None:
        worker = next(one for one in there["containers"] if one["name"] == "worker")
        assert worker["image"] == value
    else:
        assert there == as_seen


@law
@given(st.data())
def test_what_the_operator_builds_does_not_depend_on_the_version(data: st.DataObject) -> None:
    found = data.draw(inputs(API_VERSION))
    spec = found.setdefault("spec", {})
    spec.get("workers", {}).pop("podTemplate", None)  # its other place changes the order of lists
    spec.get("dataset", {}).pop("fromTrainer", None)  # a part of the hash of the dataset
    if not spec.get("dataset", {}).get("source", True):
        del spec["dataset"]["source"]
    there = without_notes(convert(found, BETA_VERSION))
    assert built(convert(there, API_VERSION)) == built(found)


def built(found: Json) -> list[Json]:
    resource = DistributedInput.model_validate(found)
    settings = Settings("worker:1", "sidecar:1")
    return [
        *shared_objects(resource, settings),
        *dispatcher_objects(resource, settings),
        *worker_objects(resource, settings, 1, ""),
    ]


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(ValueError, match="v1gamma1"):
        convert({"apiVersion": "distributed-input.dev/v1gamma1"}, API_VERSION)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_part_of_a_resource_is_converted(version: str) -> None:
    parts: list[Json] = [{}, {"spec": {}}, {"spec": {"workers": {}, "dataset": {}}}, {"status": {}}]
    for part in parts:
        found = {"apiVersion": version, "metadata": {"name": "x"}, **part}
        assert convert(convert(found, other(version)), version) == found


def test_a_field_that_belongs_to_another_one_goes_with_it() -> None:
    """v1alpha1 has the accelerator as a resource: without this, v1beta1 has no accelerator."""
    beta = {
        "apiVersion": BETA_VERSION,
        "spec": {"workers": {"accelerator": {"resourceName": "amd.com/gpu"}}},
    }
    alpha = convert(beta, API_VERSION)
    assert alpha["spec"]["workers"]["resources"]["limits"] == {"amd.com/gpu": "1"}
    alpha["spec"]["workers"] = {"replicas": 3}
    assert convert(alpha, BETA_VERSION)["spec"]["workers"] == {"replicas": 3}


def test_a_kept_field_survives_the_change_of_another_one() -> None:
    beta = {"apiVersion": BETA_VERSION, "spec": {"trainers": {"weight": "500m"}, "seed": 1}}
    alpha = convert(beta, API_VERSION)
    assert alpha["spec"] == {"trainers": {"weight": 0.5}, "seed": 1}
    alpha["spec"]["seed"] = 2
    assert convert(alpha, BETA_VERSION)["spec"] == {"trainers": {"weight": "500m"}, "seed": 2}
    alpha["spec"]["trainers"]["weight"] = 0.25
    assert convert(alpha, BETA_VERSION)["spec"]["trainers"] == {"weight": "0.25"}


def test_another_projects_controller_has_a_class_of_no_operator() -> None:
    beta = {"apiVersion": BETA_VERSION, "spec": {"managedBy": "kueue.x-k8s.io/multikueue"}}
    assert convert(beta, API_VERSION)["spec"]["operatorClass"].startswith("external-")


def test_what_is_kept_of_a_dataset_goes_with_another_dataset() -> None:
    """`fromTrainer: true` excludes an entry point."""
    alpha = {"apiVersion": API_VERSION, "spec": {"dataset": {"fromTrainer": True}}}
    beta = convert(alpha, BETA_VERSION)
    beta["spec"]["dataset"] = {"type": "EntryPoint", "entryPoint": {"function": "a:b"}}
    assert convert(beta, API_VERSION)["spec"]["dataset"] == {"entryPoint": "a:b"}


def test_what_is_kept_of_a_pod_template_goes_with_another_one() -> None:
    """Else a null that v1beta1 does not show would remove the new image."""
    pod = {"spec": {"containers": [{"name": "worker", "image": None}]}}
    alpha = {"apiVersion": API_VERSION, "spec": {"workers": {"podTemplate": pod, "replicas": 1}}}
    beta = convert(alpha, BETA_VERSION)
    beta["spec"]["workers"]["replicas"] = 2
    kept = convert(beta, API_VERSION)["spec"]["workers"]
    assert kept == {"podTemplate": pod, "replicas": 2}
    container = {"name": "worker", "image": "new:1"}
    beta["spec"]["workers"]["template"] = {"spec": {"containers": [container]}}
    assert convert(beta, API_VERSION)["spec"]["workers"] == {"image": "new:1", "replicas": 2}


@pytest.mark.parametrize("value", [[3], 5, None, {"a": 1}, [{"name": 3}], [{"name": "worker"}, 3]])
@pytest.mark.parametrize("field", ["", ".spec", ".spec.containers"])
def test_an_annotation_with_any_values_is_no_error(field: str, value: Any) -> None:
    plain = {"apiVersion": API_VERSION, "spec": {"workers": {"image": "a"}}, "metadata": {}}
    path = f"spec.workers.template{field}".split(".")
    seen = _seen(tuple(path), BETA_VERSION, plain, API_VERSION)
    row = {"path": path, "value": value, "seen": seen}
    annotated = {**plain, "metadata": {"annotations": {KEPT[BETA_VERSION]: json.dumps([row])}}}
    assert convert(annotated, BETA_VERSION)["spec"] == convert(plain, BETA_VERSION)["spec"]
