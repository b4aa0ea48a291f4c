"""The JSON schema, from which the custom resource definition and its documentation come."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.load import loads
from tests.unit.distributed_input.api.resource.manifests import manifest


def fields() -> Iterator[tuple[str, dict[str, Any]]]:
    schema = DistributedInput.model_json_schema()
    for name, part in {"DistributedInput": schema, **schema["$defs"]}.items():
        for field, its in part["properties"].items():
            yield f"{name}.{field}", its


def test_every_field_is_camel_case_and_described():
    known_to_all = {"DistributedInput.apiVersion", "DistributedInput.kind"}
    for name, field in fields():
        assert re.fullmatch(r"\w+\.[a-z][a-zA-Z]*", name)
        assert name in known_to_all or field.get("description") or "$ref" in field, name


def test_no_section_takes_fields_that_it_does_not_know():
    schema = DistributedInput.model_json_schema()
    for part in (schema, *schema["$defs"].values()):
        assert part["additionalProperties"] is False


def test_everything_but_the_name_has_a_default():
    schema = DistributedInput.model_json_schema()
    required = {name: part.get("required", []) for name, part in schema["$defs"].items()}
    assert {name: needs for name, needs in required.items() if needs} == {
        "Metadata": ["name"],
        "Accelerator": ["type"],
        "Autoscaling": ["maxReplicas"],
    }


def test_a_resource_cannot_be_changed_in_place():
    resource = loads(manifest("seed: 1"))
    for value, field in ((resource, "spec"), (resource.spec, "seed"), (resource.metadata, "name")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(value, field, None)
