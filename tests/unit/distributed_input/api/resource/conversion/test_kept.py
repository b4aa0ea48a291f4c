"""The limits of what an annotation keeps, so that no input breaks the conversion of others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distributed_input.api.resource.conversion import convert as conversion
from distributed_input.api.resource.conversion import kept
from distributed_input.api.resource.conversion.convert import KEPT, convert
from distributed_input.api.resource.conversion.kept import Difference
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.v1beta1.input import BETA_VERSION

Json = dict[str, Any]
API_SERVER_BYTES = 256 << 10
PLAIN = '[{"path":["status","x"],"value":1}]'


def alpha(annotations: dict[str, str] | None = None, **spec: Any) -> Json:
    metadata: Json = {"name": "x", **({"annotations": annotations} if annotations else {})}
    return {"apiVersion": API_VERSION, "metadata": metadata, "spec": spec}


def nested(levels: int) -> Json:
    result: Json = {}
    for _ in range(levels):
        result = {"a": result}
    return result


def annotation_bytes(found: Json) -> int:
    annotations = found["metadata"].get("annotations", {})
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400])
def test_a_number_that_the_api_server_cannot_read_is_ignored(value: str) -> None:
    assert kept.parse(PLAIN) == [Difference(("status", "x"), (1,))]
    row = PLAIN.replace("1", value)
    assert kept.parse(row) == []
    json.dumps(convert(alpha({KEPT[BETA_VERSION]: row}), BETA_VERSION), allow_nan=False)


def test_a_deep_annotation_is_ignored() -> None:
    for levels in (100, 2_000):
        value = '{"a":' * levels + "1" + "}" * levels
        assert kept.parse(PLAIN.replace("1", value)) == []
        rows = json.dumps([{"path": ["a"] * levels, "value": 1}])
        assert kept.parse(rows) == []


def test_a_long_annotation_is_ignored() -> None:
    assert kept.parse(PLAIN + " " * kept.MAX_BYTES) == []


def test_deep_arguments_are_converted() -> None:
    dataset = {"entryPoint": "a:b", "args": nested(500)}
    found = alpha(dataset=dataset, workers={"replicas": 1})
    assert convert(convert(found, BETA_VERSION), API_VERSION) == found


def test_a_deep_difference_is_not_kept() -> None:
    found = alpha(workers={"podTemplate": {"spec": {"containers": [nested(100)]}}})
    beta = convert(found, BETA_VERSION)
    assert KEPT[API_VERSION] not in beta["metadata"].get("annotations", {})


def test_a_difference_that_is_too_large_is_not_kept_and_others_are() -> None:
    pod = {"spec": {"containers": [{"image": "x" * 300_000}]}}
    found = alpha(dataset={"fromTrainer": True}, workers={"replicas": 2, "podTemplate": pod})
    beta = convert(found, BETA_VERSION)
    assert annotation_bytes(beta) < API_SERVER_BYTES
    back = convert(beta, API_VERSION)["spec"]
    assert back == {"dataset": {"fromTrainer": True}, "workers": {"replicas": 2}}


@pytest.mark.parametrize("size", [150_000, 204_000, 262_000])
def test_the_annotations_of_an_object_stay_below_the_limit(size: int) -> None:
    pod = {"spec": {"containers": [{"image": "x" * 100_000}]}}
    beta = convert(alpha({"mine": "é" * (size // 2)}, workers={"podTemplate": pod}), BETA_VERSION)
    assert beta["metadata"]["annotations"]["mine"]
    assert annotation_bytes(beta) < API_SERVER_BYTES


def test_many_differences_are_kept_as_whole_sections() -> None:
    pod: Json = {"spec": {f"field{number}": {} for number in range(3)}, "metadata": {}}
    status = {"live": {f"measure{number}": number for number in range(500)}}
    found = {**alpha(workers={"podTemplate": pod}), "status": status}
    beta = convert(found, BETA_VERSION)
    assert len(kept.parse(beta["metadata"]["annotations"][KEPT[API_VERSION]])) <= 10
    assert convert(beta, API_VERSION) == found


def test_the_work_for_the_annotation_of_a_user_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check converts the whole object."""
    checks = 0
    means = conversion._means

    def counted(*arguments: Any) -> bool:
        nonlocal checks
        checks += 1
        return means(*arguments)

    monkeypatch.setattr(conversion, "_means", counted)
    rows = [{"path": ["spec", "sidecar", f"x{number}"], "value": 1} for number in range(1_000)]
    annotations = {KEPT[BETA_VERSION]: json.dumps(rows)}
    small = alpha(annotations, seed=1, sidecar={})
    assert convert(small, BETA_VERSION)["spec"] == {"seed": 1, "sidecar": {}}
    assert 64 <= checks <= 2 * 64
    checks = 0
    env = [{"name": f"E{number}", "value": "x" * 100} for number in range(1_000)]
    convert(alpha(annotations, sidecar={}, workers={"env": env}), BETA_VERSION)
    assert 1 <= checks <= 10


def test_one_difference_that_does_not_apply_leaves_the_others() -> None:
    beta = {
        "apiVersion": BETA_VERSION,
        "spec": {"trainers": {"weight": "500m"}, "managedBy": "a.example/b"},
    }
    there = convert(beta, API_VERSION)
    there["spec"]["trainers"]["weight"] = 0.25
    again = convert(there, BETA_VERSION)["spec"]
    assert again == {"trainers": {"weight": "0.25"}, "managedBy": "a.example/b"}
