"""The custom resource definition of DistributedInput."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from distributed_input.api.resource.crd import crd, structural, to_yaml

SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]


def fields(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield all fields below a schema with their paths."""
    for name, field in schema.get("properties", {}).items():
        yield f"{path}.{name}", field
        yield from fields(field, f"{path}.{name}")
    if "items" in schema:
        yield from fields(schema["items"], f"{path}[]")


def test_every_field_has_a_description():
    for part in ("spec", "status"):
        for name, field in fields(SCHEMA["properties"][part], part):
            assert field.get("description", "").endswith("."), name


def test_references_and_optional_fields_are_resolved():
    assert "$ref" not in str(SCHEMA)
    assert "'anyOf': [{'$ref'" not in str(SCHEMA)
    assert SCHEMA["properties"]["spec"]["properties"]["epochs"]["type"] == "integer"


def test_a_section_has_a_default_only_if_its_fields_have_defaults():
    spec = SCHEMA["properties"]["spec"]["properties"]
    assert spec["batching"]["default"] == {}
    assert "default" not in spec["workers"]["properties"]["resources"]


def test_a_status_has_no_default_except_that_no_generation_is_observed():
    status = SCHEMA["properties"]["status"]
    assert status["default"] == {"observedGeneration": -1}
    rest = {key: value for key, value in status.items() if key != "default"}
    assert all("default" not in field for _, field in fields(rest, ""))


def test_a_large_integer_is_an_int64_whose_maximum_does_not_overflow():
    seed = structural({"type": "integer", "minimum": 0, "maximum": 2**63 - 1}, {})
    assert seed == {"type": "integer", "format": "int64", "minimum": 0}


def test_a_definition_is_the_same_after_writing_and_reading():
    assert yaml.safe_load(to_yaml(crd())) == crd()
