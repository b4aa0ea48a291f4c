"""Generator of the custom resource definition of DistributedInput.

It converts the JSON schema of the models to a structural schema: it resolves references, unwraps
optional fields, and removes keywords that Kubernetes does not support. `python -m
distributed_input.api.resource.crd` prints the definition; `make crds` writes it to crds/.
"""

from __future__ import annotations

import sys
from typing import Any

import yaml
from pydantic import BaseModel

from distributed_input.api.resource.input import API_VERSION, GROUP, KIND, DistributedInput
from distributed_input.api.resource.lifetime.rules import ALPHA_WORDS, BETA_WORDS, Words, life_rules
from distributed_input.api.resource.scalars import NAME_LENGTH
from distributed_input.api.resource.status import NOT_OBSERVED, Status
from distributed_input.api.resource.v1beta1.input import BETA_VERSION, BetaInput
from distributed_input.api.resource.v1beta1.status import BetaStatus

Schema = dict[str, Any]

PLURAL = "distributedinputs"
_KEYWORDS = frozenset(
    "type description default enum format pattern minimum maximum minLength maxLength "
    "required x-kubernetes-validations x-kubernetes-int-or-string "
    "x-kubernetes-preserve-unknown-fields x-kubernetes-list-type x-kubernetes-list-map-keys".split()
)
_MAX_ITEMS = 64
"""Bound of lists and mappings, for the API server's cost estimate of CEL rules."""
_READY = '.status.conditions[?(@.type=="Ready")]'
_Columns = tuple[tuple[str, str, str, str], ...]
_COLUMNS: _Columns = (
    ("Ready", "string", f"{_READY}.status", "Whether all workers run the latest spec."),
    ("Workers", "string", ".status.workers.summary", "Ready and desired workers."),
    ("Stall", "string", ".status.live.stall", "Share of time that trainers wait for input."),
    ("Rows/s", "integer", ".status.live.rowsPerSecond", "Rows per second over all trainers."),
    ("Reason", "string", f"{_READY}.reason", "Reason for Ready, as one CamelCase word."),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the input was created."),
)
_WIDE_COLUMNS: _Columns = (
    ("Encryption", "string", ".status.encryption", "Connections that use mutual TLS."),
)
"""Columns of `kubectl get --output wide`."""
_BETA_COLUMNS: _Columns = tuple(
    (name, kind, path.replace(".status.live.", ".status.trainers."), text)
    for name, kind, path, text in _COLUMNS
)


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of DistributedInput."""
    alpha = _version(API_VERSION, DistributedInput, Status, _COLUMNS, ALPHA_WORDS)
    beta = _version(BETA_VERSION, BetaInput, BetaStatus, _BETA_COLUMNS, BETA_WORDS)
    # Without the webhook, the API server would only change the apiVersion, and remove fields. The
    # chart serves v1beta1 together with the webhook.
    beta |= {"served": False, "storage": False}
    return definition(KIND, PLURAL, "dinput", "Namespaced", alpha, beta)


def definition(
    kind: str, plural: str, short: str, scope: str, *versions: dict[str, Any]
) -> dict[str, Any]:
    """Return the CustomResourceDefinition of a kind."""
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
            "versions": list(versions),
        },
    }


def _version(
    api_version: str,
    model: type[BaseModel],
    status: type[BaseModel],
    columns: _Columns,
    words: Words,
) -> dict[str, Any]:
    return {
        "name": api_version.partition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(model, status, words)},
        "subresources": {
            "status": {},
            "scale": {
                "specReplicasPath": ".spec.workers.replicas",
                "statusReplicasPath": ".status.workers.replicas",
                "labelSelectorPath": ".status.selector",
            },
        },
        "additionalPrinterColumns": [
            {"name": name, "type": kind, "jsonPath": path, "description": text, **priority}
            for shown, priority in ((columns, {}), (_WIDE_COLUMNS, {"priority": 1}))
            for name, kind, path, text in shown
        ],
    }


def _root(model: type[BaseModel], status_model: type[BaseModel], words: Words) -> Schema:
    whole = model.model_json_schema()
    spec = structural({"$ref": whole["properties"]["spec"]["$ref"]}, whole["$defs"])
    status = status_model.model_json_schema()
    rules = [
        {
            "rule": f"self.metadata.name.size() <= {NAME_LENGTH}",
            "message": f"metadata.name is too long: use at most {NAME_LENGTH} characters, because "
            "names of pods and services add a suffix",
        },
        {
            "rule": "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
            "message": "metadata.name is not a valid name: use lower-case letters, digits and '-', "
            "starting with a letter and ending with a letter or digit, for example digits",
        },
        *({"rule": rule, "message": message} for rule, message in life_rules(words)),
    ]
    return {
        "type": "object",
        "description": model.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {**spec, "default": {}},
            "status": {
                **without_defaults(structural(status, status.get("$defs", {}))),
                "default": {"observedGeneration": NOT_OBSERVED},
            },
        },
        "x-kubernetes-validations": rules,
    }


def structural(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Convert a JSON schema and all schemas below it to a structural schema."""
    schema = _unwrapped(schema, defs)
    result = {key: schema[key] for key in sorted(schema) if key in _KEYWORDS}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if result.get("type") == "integer" and result.get("maximum", 0) >= 2**31:
        result["format"] = "int64"
        if result["maximum"] == 2**63 - 1:
            # Kubernetes parses bounds as doubles: this one would become 2**63 and overflow.
            del result["maximum"]
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if "properties" in schema:
        result["properties"] = {
            name: structural(part, defs) for name, part in schema["properties"].items()
        }
    elif isinstance(schema.get("additionalProperties"), dict):
        result["additionalProperties"] = structural(schema["additionalProperties"], defs)
        result["maxProperties"] = _MAX_ITEMS
    if "items" in schema:
        result["items"] = structural(schema["items"], defs)
        result["maxItems"] = _MAX_ITEMS
    if set(result.get("items", {}).get("required", [])) >= {"type", "status"}:
        result |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]}
    return _with_default(result)


def _with_default(schema: Schema) -> Schema:
    """Remove the default of an object or a list, so that stored objects stay short.

    The default of an object whose fields have defaults becomes {}, so that the API server sets
    the defaults of these fields.
    """
    default = schema.get("default")
    rest = {key: value for key, value in schema.items() if key != "default"}
    if isinstance(default, dict | list):
        fields = schema.get("properties", {}).values()
        return {**rest, "default": {}} if any("default" in field for field in fields) else rest
    return rest if default is None else {**rest, "default": default}


def _unwrapped(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Return a schema without `$ref`, `anyOf` and `allOf`. Outer keywords override inner ones."""
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
    """Remove all defaults from a status schema: a missing field means unknown, not default."""
    result = {key: value for key, value in schema.items() if key != "default"}
    if "properties" in result:
        result["properties"] = {
            name: without_defaults(part) for name, part in result["properties"].items()
        }
    if "items" in result:
        result["items"] = without_defaults(result["items"])
    return result


class _Dumper(yaml.SafeDumper):
    """Writes equal parts again, without anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def to_yaml(definition: Schema) -> str:
    """Return a definition as YAML."""
    head = "# Generated by `make crds` from distributed_input.api.resource: edit the models.\n"
    return head + yaml.dump(
        definition, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )


if __name__ == "__main__":
    sys.stdout.write(to_yaml(crd()))
