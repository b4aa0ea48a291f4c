"""The custom resource definitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from distributed_input.api.resource.crd import crd, policy_crd, structural, to_yaml

SCHEMA, POLICY = (
    one["spec"]["versions"][0]["schema"]["openAPIV3Schema"] for one in (crd(), policy_crd())
)


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all fields below a schema with their paths."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def test_every_field_has_a_description():
    for schema in (SCHEMA, POLICY):
        for part in ("spec", "status"):
            for name, field in fields(schema["properties"][part], part):
                assert field.get("description", "").endswith("."), name


def test_references_and_optional_fields_are_resolved():
    assert "$ref" not in str(SCHEMA)
    assert "'anyOf': [{'$ref'" not in str(SCHEMA)
    assert SCHEMA["properties"]["spec"]["properties"]["epochs"]["type"] == "integer"


def test_a_section_has_a_default_only_if_its_fields_have_defaults():
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert spec["batching"]["default"] == {}
    assert "default" not in spec["dispatcher"]["properties"]["resources"]


def test_a_status_has_no_default_except_that_no_generation_is_observed():
    status = SCHEMA["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    rest = {key: value for key, value in status.items() if key != "default"}
    assert all("default" not in field for _, field in fields(rest, ""))


def test_a_large_integer_is_an_int64_whose_maximum_does_not_overflow():
    seed = structural({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, {})
    assert seed == {"type": "integer", "format": "int64", "minimum": 0}


def test_a_definition_is_the_same_after_writing_and_reading():
    for definition in (crd(), policy_crd()):
        assert yaml.safe_load(to_yaml(definition)) == definition


def test_one_version_is_served_and_stored():
    for definition in (crd(), policy_crd()):
        (version,) = definition["spec"]["versions"]
        assert (version["name"], version["served"], version["storage"]) == ("v1beta1", True, True)


def test_conditions_are_those_of_kubernetes():
    """The fields and limits of metav1.Condition, and a list that merges by type."""
    for schema in (SCHEMA, POLICY):
        conditions = schema["properties"]["status"]["properties"]["conditions"]
        assert conditions["x-kubernetes-list-type"] == "map"
        assert conditions["x-kubernetes-list-map-keys"] == ["type"]
        one = conditions["items"]
        required = {"type", "status", "reason", "message", "lastTransitionTime"}
        assert set(one["required"]) == required
        assert set(one["properties"]) == required | {"observedGeneration"}
        limits = {name: field.get("maxLength") for name, field in one["properties"].items()}
        assert (limits["type"], limits["reason"], limits["message"]) == (316, 1024, 32768)
        assert one["properties"]["status"]["enum"] == ["True", "False", "Unknown"]
        assert one["properties"]["observedGeneration"]["minimum"] == 0


def test_times_are_timestamps():
    found = {
        name.rpartition(".")[2]: field.get("format")
        for schema in (SCHEMA, POLICY)
        for name, field in fields(schema["properties"]["status"], "")
        if name.endswith(("Time", "Since", "At"))
    }
    assert set(found) == {
        *("lastTransitionTime", "observedAt", "fewerSince", "idleSince", "unmeasuredSince")
    }
    assert set(found.values()) == {"date-time"}


def test_lists_of_named_objects_merge_by_name():
    spec = SCHEMA["properties"]["spec"]["properties"]
    template = spec["workers"]["properties"]["template"]["properties"]["spec"]["properties"]
    of_policy = POLICY["properties"]["spec"]["properties"]
    for field in (template["containers"], of_policy["budgets"], of_policy["priorityClasses"]):
        assert field["x-kubernetes-list-map-keys"] == ["name"]


def test_a_policy_is_cluster_scoped_and_has_one_name():
    assert policy_crd()["spec"]["scope"] == "Cluster"
    (rule,) = POLICY["x-kubernetes-validations"]
    assert rule["rule"] == "self.metadata.name == 'cluster'"


def test_no_rule_is_too_expensive_for_kubernetes_1_29():
    """It refuses these in lists and maps. `make kubernetes-versions` tries the definition."""
    rules = list(found_rules(POLICY))
    assert any("quantity(" in rule for rule in rules)
    assert [one for one in rules if "string(self" in one or "type(self) ==" in one] == []


def found_rules(schema: Any) -> Iterator[str]:
    """Yield all rules in a schema."""
    for value in schema.values() if isinstance(schema, dict) else schema:
        if isinstance(value, dict | list):
            yield from found_rules(value)
    if isinstance(schema, dict):
        rules = schema.get("x-kubernetes-validations", [])
        yield from (one["rule"] for one in rules if isinstance(one, dict) and "rule" in one)
