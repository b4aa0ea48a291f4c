"""The base classes of sections, and rules in CEL."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, ValidationError

from distributed_input.api.resource.base import Section, StatusSection, cel, immutable


class Example(Section):
    batch_size: int = Field(default=8, description="Rows.")


class ExampleStatus(StatusSection):
    batch_size: int = 8


def test_a_null_field_gets_its_default():
    assert Example.model_validate({"batchSize": None}).batch_size == 8


def test_an_unknown_field_is_refused_even_if_it_is_null():
    with pytest.raises(ValidationError, match="batch"):
        Example.model_validate({"batch": None})


def test_a_section_is_strict_and_immutable():
    with pytest.raises(ValidationError, match="valid integer"):
        Example.model_validate({"batchSize": "8"})
    with pytest.raises(ValidationError, match="frozen"):
        Example().batch_size = 9


def test_a_status_of_another_version_can_be_read():
    read = ExampleStatus.model_validate({"batchSize": "9", "unknown": 1})
    assert read.batch_size == 9


def test_each_immutable_field_gets_a_rule():
    config: Any = cel(*immutable("seed", "partitions"))
    rules = config["json_schema_extra"]["x-kubernetes-validations"]
    assert [one["message"].split()[0] for one in rules] == ["seed", "partitions"]
    assert "self.seed == oldSelf.seed" in rules[0]["rule"]
