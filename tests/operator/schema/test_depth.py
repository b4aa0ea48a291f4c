"""The chart's policy on the depth of fields. Without it, one input could stop all lists."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.charts.rendering import find_one, manifests
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

Json = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
LEVELS = 32
ENTRIES = 10_000


@pytest.fixture(scope="module")
def checked(admission_policies: None, cluster: Cluster) -> Iterator[Cluster]:
    """Requests to an API server with the policy."""
    cluster.create(deep("before"))
    policies = [find_one(manifests(cluster.namespace), kind, "-depth") for kind in KINDS]
    for one in policies:
        cluster.call("POST", f"{ADMISSION}/{KINDS[one['kind']]}", one)
    try:
        eventually(lambda: "nested deeper" in refusal(cluster, args(nested(LEVELS + 1))))
        yield cluster
    finally:
        for one in policies:
            place = f"{ADMISSION}/{KINDS[one['kind']]}/{one['metadata']['name']}"
            cluster.call("DELETE", place)
        cluster.delete("DistributedInput", "before")


def nested(levels: int, lists: bool = False) -> Json:
    """Return a mapping with this many levels, counting the last value."""
    value: Any = 1
    for level in range(levels - 1):
        value = [value] if lists and level % 2 else {"a": value}
    return {"a": value}


def args(value: Json) -> Json:
    return {
        "dataset": {
            "type": "EntryPoint",
            "entryPoint": {"function": "digits:dataset_fn", "args": value},
        }
    }


def deep(name: str, spec: Json | None = None) -> Json:
    """Return an input. Default: one that is nested too deeply."""
    return {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": args(nested(LEVELS + 8)) if spec is None else spec,
    }


def refusal(cluster: Cluster, spec: Json) -> str:
    """Return why the API server refuses an input. Empty: it does not."""
    try:
        cluster.create(deep("deep", spec), dryRun="All")
    except RequestRejected as error:
        return str(error)
    return ""


def fields(value: Json) -> dict[str, Json]:
    """Return specs with a value in each field that may have any content."""
    return {
        "dataset.entryPoint.args": args(value),
        "workers.template": {"workers": {"template": {"metadata": value}}},
        "dispatcher.tolerations": {"dispatcher": {"tolerations": [value]}},
        "tfDataService.journal": {"tfDataService": {"journal": value}, "encryption": "None"},
    }


@pytest.mark.parametrize("field", fields({}))
def test_a_field_has_a_maximum_depth(checked: Cluster, field: str) -> None:
    # An element of a list is a level, and so is a field.
    most = LEVELS - (field in ("workers.template", "dispatcher.tolerations"))
    for lists in (False, True):
        assert refusal(checked, fields(nested(most, lists))[field]) == ""
        for levels in (most + 1, 200):
            found = refusal(checked, fields(nested(levels, lists))[field])
            assert f"spec.{field}: is nested deeper than 32 levels, or has a list" in found


def test_large_lists_are_allowed(checked: Cluster) -> None:
    """The API server limits the cost of the check, which must suffice."""
    files = [f"/data/shard-{number:05}.tfrecord" for number in range(ENTRIES)]
    assert refusal(checked, args({"files": files})) == ""
    table = [{"name": f"{number}", "weights": [1, 2]} for number in range(5_000)]
    assert refusal(checked, args({"table": table})) == ""


@pytest.mark.parametrize("value", [[1] * (ENTRIES + 1), {f"k{i}": 1 for i in range(ENTRIES + 1)}])
def test_the_entries_of_a_list_or_map_are_limited(checked: Cluster, value: Any) -> None:
    """The time of a loop over a list grows with the square of its entries."""
    for spec in (args({"a": value}), args({"a": [{"b": value}]})):
        assert "a list or map of more than 10000 entries" in refusal(checked, spec)


def test_only_the_spec_of_an_existing_input_is_checked(checked: Cluster) -> None:
    """The garbage collector updates inputs too: it removes finalizers."""
    for metadata in (
        {"labels": {"a": "b"}, "finalizers": ["example.com/wait"]},
        {"finalizers": None},
    ):
        checked.patch("DistributedInput", "before", {"metadata": metadata})
    with pytest.raises(RequestRejected, match="nested deeper than 32 levels"):
        checked.patch("DistributedInput", "before", {"spec": {"suspend": True}})
