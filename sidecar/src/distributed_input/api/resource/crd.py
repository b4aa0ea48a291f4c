"""The custom resource definition, from the typed model: what the API server checks and shows.

JSON schema as pydantic writes it becomes a structural schema: references resolved, optional
fields unwrapped, what Kubernetes does not know taken out. `python -m
distributed_input.api.resource.crd` prints it; `make crds` writes it to crds/.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml

from distributed_input.api.resource.input import API_VERSION, GROUP, KIND, DistributedInput
from distributed_input.api.resource.scalars import NAME_LENGTH
from distributed_input.api.resource.status import Status

Schema = dict[str, Any]

PLURAL = "distributedinputs"
_KEPT = frozenset(
    "type description default enum format pattern minimum maximum minLength maxLength "
    "required x-kubernetes-validations x-kubernetes-int-or-string "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-list-type x-kubernetes-list-map-keys".split()
)
_MOST_ITEMS = 64  # of lists and mappings: the API server's estimate of a rule's cost needs a bound
_READY = '.status.conditions[?(@.type=="Ready")]'
_COLUMNS = (
    ("Ready", "string", f"{_READY}.status", "Whether trainers can read."),
    ("Workers", "string", ".status.workers.summary", "Ready and desired workers."),
    ("Stall", "string", ".status.live.stall", "Share of the time that trainers wait for input."),
    ("Rows/s", "integer", ".status.live.rowsPerSecond", "Over all trainers."),
    ("Reason", "string", f"{_READY}.reason", "Why it is ready or not, in one word."),
    ("Age", "date", ".metadata.creationTimestamp", "Since when the input exists."),
)


def crd() -> dict[str, Any]:
    """The CustomResourceDefinition of DistributedInput."""
    return definition(KIND, PLURAL, "dinput", "Namespaced", _version())


def definition(
    kind: str, plural: str, short: str, scope: str, version: dict[str, Any]
) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind of ours, with its one version."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": ["ml"],
            },
            "versions": [version],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": API_VERSION.partition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workers.replicas",
                "statusReplicasPath": ".status.workers.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": text}
            for name, kind, path, text in _COLUMNS
        ],
    }


def _root() -> Schema:
    whole = DistributedInput.model_json_schema()
    spec = structural(whole["$defs"]["Spec"], whole["$defs"])
    status = Status.model_json_schema()
    rules = [
        {
            "rule": f"self.metadata.name.size() <= {NAME_LENGTH}",
            "message": f"metadata.name has at most {NAME_LENGTH} characters, which leave room for "
            "the suffixes of pod and service names: shorten it",
        },
        {
            "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "message": "metadata.name takes lower-case letters, digits and '-', starting with a "
            "letter and ending with a letter or digit, such as digits",
        },
    ]
    return {
        "type": "object",
        "description": DistributedInput.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {**spec, "default": {}},
            "status": without_defaults(structural(status, status.get("$defs", {}))),
        },
        "x-kubernetes-validations": rules,
    }


def structural(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """One schema and all below it, as Kubernetes takes them."""
    schema = _unwrapped(schema, defs)
    made = {key: schema[key] for key in sorted(schema) if key in _KEPT}
    if "const" in schema:
        made["enum"] = [schema["const"]]
    if made.get("type") == "integer" and made.get("maximum", 0) >= 2**31:
        made["format"] = "int64"
        if made["maximum"] == 2**63 - 1:
            del made["maximum"]  # a double there, which would be 2**63, and overflow
    if "description" in made:
        made["description"] = " ".join(made["description"].split())
    if "properties" in schema:
        made["properties"] = {
            name: structural(part, defs) for name, part in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = structural(schema["additionalProperties"], defs)
        made["maxProperties"] = _MOST_ITEMS
    if "items" in schema:
        made["items"] = structural(schema["items"], defs)
        made["maxItems"] = _MOST_ITEMS
    if set(made.get("items", {}).get("required", [])) >= {"type", "status"}:
        made |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return _with_default(made)


def _with_default(made: Schema) -> Schema:
    """A section is there, empty, only where that fills in defaults below it; other objects and
    lists are not: what nobody wrote is not shown.
    """
    default = made.pop("default", None)
    below = made.get("properties", {}).values()
    if isinstance(default, dict | list):
        return {**made, "default": {}} if any("default" in part for part in below) else made
    return made if default is None else {**made, "default": default}


def _unwrapped(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Without references and without the `anyOf` of optional fields; the outer words win."""
    if "x-kubernetes-int-or-string" in schema:
        return schema
    outer = {key: schema[key] for key in schema if key not in {"anyOf", "allOf", "$ref"}}
    if "$ref" in schema:
        return _unwrapped({**defs[schema["$ref"].rpartition("/")[2]], **outer}, defs)
    for part in schema.get("anyOf", []) + schema.get("allOf", []):
        if part.get("type") != "null":
            return _unwrapped({**part, **outer}, defs)
    return schema


def without_defaults(schema: Schema) -> Schema:
    """A status has no defaults: what is not there is not known."""
    made = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in made:
        made["properties"] = {
            name: without_defaults(part) for name, part in made["properties"].items()
        }
    if "items" in made:
        made["items"] = without_defaults(made["items"])
    return made


def text(definition: Schema) -> str:
    """A definition as YAML."""
    head = "# Written by `make crds` from distributed_input.api.resource: edit that.\n"
    return head + yaml.safe_dump(definition, sort_keys=False, allow_unicode=True, width=100)


if __name__ == "__main__":
    sys.stdout.write(text(crd()))
