"""The base class of all sections of a resource, and helpers for rules in CEL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationInfo, model_validator
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

_STORED = "stored"
"""Key in the context of a validation: the API server has stored the object."""
_Object = TypeVar("_Object", bound="Section")


def list_map(key: str) -> JsonDict:
    """Return the schema extension of a list whose elements differ in the value of a field."""
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Section(BaseModel):
    """A part of a resource: immutable, camelCase in YAML, without unknown fields."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        use_attribute_docstrings=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _remove_null_fields(cls, data: Any, info: ValidationInfo) -> Any:
        """Remove fields that are null, so that they get their defaults, as in Kubernetes.

        Unknown fields of a stored object are removed, too, unless the section may have any.
        """
        if not isinstance(data, Mapping):
            return data
        known = {field.alias for field in cls.model_fields.values()}
        prunes = (info.context or {}).get(_STORED) and cls.model_config["extra"] == "forbid"
        return {
            key: data[key]
            for key in data
            if (data[key] is not None if key in known else not prunes)
        }

    @classmethod
    def from_stored(cls: type[_Object], stored: Mapping[str, Any]) -> _Object:
        """Return an object that the API server has validated and stored, without its status.

        Unknown fields are ignored: a newer definition may have more.

        Raises:
            pydantic.ValidationError: it is invalid.
        """
        return cls.model_validate({**stored, "status": {}}, context={_STORED: True})


class StatusSection(BaseModel):
    """A part of a resource's status.

    Unknown fields are ignored: an older or newer operator may have written the status.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, use_attribute_docstrings=True
    )


def cel(*rules: tuple[str, str]) -> ConfigDict:
    """Return the configuration of a section with rules that the API server checks.

    Each rule needs a validator of the same meaning in its section, because
    `distributed-input run` works without an API server. Rules that compare with the stored object
    (`oldSelf`) need none: a file has no earlier version.
    """
    validations: list[JsonValue] = [{"rule": rule, "message": message} for rule, message in rules]
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": validations})


def immutable(
    *fields: str, because: str = "the saved positions of trainers depend on it"
) -> tuple[tuple[str, str], ...]:
    """Return one rule per field, for `cel`, that refuses a change of the field.

    `has` is needed also for fields with a default: the API server checks the rules of the default
    of an object before it sets those of its fields.
    """
    return tuple(
        (
            f"has(self.{field}) == has(oldSelf.{field}) && "
            f"(!has(self.{field}) || self.{field} == oldSelf.{field})",
            f"{field} is immutable, because {because}: create a new DistributedInput with another "
            "name",
        )
        for field in fields
    )


def unwrapped(schema: dict[str, Any], defs: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return a JSON schema without `$ref`, `anyOf` and `allOf`. Outer keywords override inner."""
    if "x-kubernetes-int-or-string" in schema:
        return schema
    outer = {key: schema[key] for key in schema if key not in {"anyOf", "allOf", "$ref"}}
    if "$ref" in schema:
        return unwrapped({**defs[schema["$ref"].rpartition("/")[2]], **outer}, defs)
    for part in schema.get("anyOf", []) + schema.get("allOf", []):
        if part.get("type") != "null":
            return unwrapped({**part, **outer}, defs)
    return schema
