"""What all parts of the resource have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A part of the resource: frozen, camelCase in YAML, with no field but those written here."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _null_means_left_out(cls, data: Any) -> Any:
        """As in Kubernetes: `workers:` with nothing behind it gets the default."""
        if not isinstance(data, Mapping):
            return data
        known = {field.alias for field in cls.model_fields.values()}
        return {key: data[key] for key in data if data[key] is not None or key not in known}


def cel(*rules: tuple[str, str]) -> dict[str, Any]:
    """Rules that the API server checks itself, as (CEL expression, message): for `model_config`.

    Each has its twin in a validator of the section, for `distributed-input run`. Rules that
    compare with the object before (`oldSelf`) have none: a file has no past.
    """
    found = [{"rule": rule, "message": message} for rule, message in rules]
    return {"x-kubernetes-validations": found}


def fixed(*fields: str) -> tuple[tuple[str, str], ...]:
    """Rules: these fields stay as they were first. For `cel`."""
    return tuple(
        (
            f"has(self.{field}) == has(oldSelf.{field}) && "
            f"(!has(self.{field}) || self.{field} == oldSelf.{field})",
            f"{field} is fixed for the life of the input, for the positions of its trainers depend "
            "on it: make a new input",
        )
        for field in fields
    )
