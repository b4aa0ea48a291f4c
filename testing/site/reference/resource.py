"""The page about the resources, from their custom resource definitions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from testing.site.reference.markdown import code, path, table
from testing.site.stage import ROOT

_FILES = ("crds/distributedinputs.yaml", "crds/inputpolicies.yaml")


def page() -> str:
    """Return the page."""
    text = (
        "# Resources\n\nAll fields of the custom resources. `kubectl explain dinput.spec` shows "
        "the same. The types are those of the API server's schema.\n\n"
    )
    definitions = [yaml.safe_load((ROOT / file).read_text())["spec"] for file in _FILES]
    return text + "".join(
        _resource(one, version) for one in definitions for version in one["versions"]
    )


def _resource(definition: dict[str, Any], version: dict[str, Any]) -> str:
    schema = version["schema"]["openAPIV3Schema"]
    kind, scope = definition["names"]["kind"], definition["scope"]
    if not version["storage"]:
        kind = f"{kind} {version['name']}"
    text = f"## {kind}\n\n{schema['description']}\n\n"
    text += f"apiVersion: `{definition['group']}/{version['name']}`. Scope: {scope}.\n\n"
    for part in ("spec", "status"):
        if part in schema["properties"]:
            rows = list(_fields(schema["properties"][part], part))
            text += f"### {part} of {kind}\n\n" + table(("Field", "Type", "Description"), rows)
    rules = list(_rules(schema["properties"]["spec"], "spec"))
    if rules:
        text += f"### Rules of {kind}\n\nThe API server refuses an object that breaks a rule.\n\n"
        text += table(("Field", "Message"), rules)
    return text


def _fields(schema: dict[str, Any], parent: str) -> Iterator[list[str]]:
    required = schema.get("required", [])
    for name, field in schema.get("properties", {}).items():
        where = f"{parent}.{name}"
        description = field.get("description", "")
        if name in required and "Required" not in description:
            description += " Required."
        yield [path(where), _type(field), description]
        yield from _fields(field, where)
        yield from _fields(field.get("items", {}), f"{where}[]")


def _type(field: dict[str, Any]) -> str:
    if "enum" in field:
        return " or ".join(code(json.dumps(one)) for one in field["enum"])
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}"
    limits = [
        f"{word} {field[key]}"
        for key, word in (("minimum", "from"), ("maximum", "to"))
        if key in field
    ]
    return " ".join([field.get("type", "any"), *limits])


def _rules(schema: dict[str, Any], parent: str) -> Iterator[list[str]]:
    for rule in schema.get("x-kubernetes-validations", []):
        yield [path(parent), rule.get("message", rule["rule"])]
    for name, field in schema.get("properties", {}).items():
        yield from _rules(field, f"{parent}.{name}")
        yield from _rules(field.get("items", {}), f"{parent}.{name}[]")
