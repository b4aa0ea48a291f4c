"""Generator of the custom resource definition of InputPolicy.

`python -m distributed_input.api.resource.policy_crd` prints the definition;
`make crds` writes it to crds/.
"""

from __future__ import annotations

import sys
from typing import Any

from pydantic import BaseModel

from distributed_input.api.resource.crd import definition, structural, to_yaml, without_defaults
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.policy import (
    POLICY_KIND,
    POLICY_NAME,
    POLICY_PLURAL,
    InputPolicy,
)
from distributed_input.api.resource.policy_status import PolicyStatus
from distributed_input.api.resource.v1beta1.input import BETA_VERSION
from distributed_input.api.resource.v1beta1.policy import BetaPolicy, BetaPolicyStatus


def policy_crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of InputPolicy."""
    alpha = _version(API_VERSION, InputPolicy, PolicyStatus)
    # As in the definition of inputs, the chart serves it together with the webhook.
    beta = _version(BETA_VERSION, BetaPolicy, BetaPolicyStatus)
    beta |= {"served": False, "storage": False}
    return definition(POLICY_KIND, POLICY_PLURAL, "dipolicy", "Cluster", alpha, beta)


def _version(api_version: str, model: type[BaseModel], status: type[BaseModel]) -> dict[str, Any]:
    return {
        "name": api_version.partition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root(model, status)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": [
            {
                "name": "Workers",
                "type": "string",
                "jsonPath": ".status.summary",
                "description": "Worker pods of each budget, as name workers/limit.",
            },
            {
                "name": "Age",
                "type": "date",
                "jsonPath": ".metadata.creationTimestamp",
                "description": "Time since the policy was created.",
            },
        ],
    }


def _root(model: type[BaseModel], status_model: type[BaseModel]) -> dict[str, Any]:
    whole, status = model.model_json_schema(), status_model.model_json_schema()
    spec = whole["properties"]["spec"]["$ref"].rpartition("/")[2]
    return {
        "type": "object",
        "description": model.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(whole["$defs"][spec], whole["$defs"]),
            "status": without_defaults(structural(status, status["$defs"])),
        },
        "x-kubernetes-validations": [
            {
                "rule": f"self.metadata.name == '{POLICY_NAME}'",
                "message": f"metadata.name must be {POLICY_NAME!r}: a cluster has one InputPolicy, "
                "put all budgets into it",
            }
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(to_yaml(policy_crd()))
