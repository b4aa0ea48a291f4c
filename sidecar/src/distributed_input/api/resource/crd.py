"""Generator of the custom resource definitions.

It converts the JSON schema of the models to a structural schema: it resolves references, unwraps
optional fields, and removes keywords that Kubernetes does not support. `make
crds` writes the definitions to a folder with `python -m distributed_input.api.resource.crd FOLDER`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from distributed_input.api.resource.base import unwrapped
from distributed_input.api.resource.input import API_VERSION, GROUP, KIND, DistributedInput
from distributed_input.api.resource.policy import (
    POLICY_KIND,
    POLICY_NAME,
    POLICY_PLURAL,
    InputPolicy,
)
from distributed_input.api.resource.scalars import NAME_LENGTH
from distributed_input.api.resource.status import NOT_OBSERVED, PolicyStatus, Status

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
_Columns = tuple[tuple[str, str, str, str, int], ...]
_COLUMNS: _Columns = (
    ("Ready", "string", f"{_READY}.status", "Whether all workers run the latest spec.", 0),
    ("Workers", "string", ".status.workers.summary", "Ready and desired workers.", 0),
    ("Stall", "string", ".status.trainers.stall", "Share of time that trainers wait for input.", 0),
    ("Rows/s", "integer", ".status.trainers.rowsPerSecond", "Rows per second of all trainers.", 0),
    ("Reason", "string", f"{_READY}.reason", "Reason for Ready, as one CamelCase word.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the input was created.", 0),
    ("Encryption", "string", ".spec.encryption", "Connections that use mutual TLS.", 1),
)
"""Name, type, path, description and priority. `kubectl get --output wide` shows priority 1, too."""
_POLICY_COLUMNS: _Columns = (
    ("Ready", "string", f"{_READY}.status", "Whether the latest spec is in effect.", 0),
    ("Workers", "string", ".status.summary", "Worker pods of each budget.", 0),
    ("Age", "date", ".metadata.creationTimestamp", "Time since the policy was created.", 0),
)
_NAME_RULES = (
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
)
_POLICY_NAME_RULE = {
    "rule": f"self.metadata.name == '{POLICY_NAME}'",
    "message": f"metadata.name must be {POLICY_NAME!r}: a cluster has one InputPolicy, put all "
    "budgets into it",
}
_SCALE = {
    "specReplicasPath": ".spec.workers.replicas",
    "statusReplicasPath": ".status.workers.replicas",
    "labelSelectorPath": ".status.selector",
}


def crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of DistributedInput."""
    schema = _root(DistributedInput, Status, _NAME_RULES)
    schema["properties"]["spec"]["default"] = {}
    schema["properties"]["status"]["default"] = {"observedGeneration": NOT_OBSERVED}
    version = {**_version(schema, _COLUMNS), "subresources": {"status": {}, "scale": _SCALE}}
    return _definition(KIND, PLURAL, "dinput", "Namespaced", version)


def policy_crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of InputPolicy."""
    schema = _root(InputPolicy, PolicyStatus, (_POLICY_NAME_RULE,))
    version = {**_version(schema, _POLICY_COLUMNS), "subresources": {"status": {}}}
    return _definition(POLICY_KIND, POLICY_PLURAL, "dipolicy", "Cluster", version)


def _definition(
    kind: str, plural: str, short: str, scope: str, version: dict[str, Any]
) -> dict[str, Any]:
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


def _version(schema: Schema, columns: _Columns) -> dict[str, Any]:
    return {
        "name": API_VERSION.partition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "additionalPrinterColumns": [
            {
                "name": name,
                "type": kind,
                "jsonPath": path,
                "description": text,
                **({"priority": priority} if priority else {}),
            }
            for name, kind, path, text, priority in columns
        ],
    }


def _root(
    model: type[BaseModel], status_model: type[BaseModel], rules: Iterable[dict[str, str]]
) -> Schema:
    whole, status = model.model_json_schema(), status_model.model_json_schema()
    spec = structural({"$ref": whole["properties"]["spec"]["$ref"]}, whole["$defs"])
    return {
        "type": "object",
        "description": model.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": spec,
            "status": without_defaults(structural(status, status["$defs"])),
        },
        "x-kubernetes-validations": list(rules),
    }


def structural(schema: Schema, defs: dict[str, Schema]) -> Schema:
    """Convert a JSON schema and all schemas below it to a structural schema."""
    schema = unwrapped(schema, defs)
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
    for found in (crd(), policy_crd()):
        name = found["spec"]["names"]["plural"]
        (Path(sys.argv[1]) / f"{name}.yaml").write_text(to_yaml(found))
