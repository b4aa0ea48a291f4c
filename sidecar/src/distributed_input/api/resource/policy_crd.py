"""Generator of the custom resource definition of InputPolicy.

`python -m distributed_input.api.resource.policy_crd` prints the definition;
`make crds` writes it to crds/.
"""

from __future__ import annotations

import sys
from typing import Any

from distributed_input.api.resource.crd import definition, structural, to_yaml, without_defaults
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.policy import (
    POLICY_KIND,
    POLICY_NAME,
    POLICY_PLURAL,
    InputPolicy,
    PolicyStatus,
)


def policy_crd() -> dict[str, Any]:
    """Return the CustomResourceDefinition of InputPolicy."""
    version = {
        "name": API_VERSION.partition("/")[2],
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _root()},
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
    return definition(POLICY_KIND, POLICY_PLURAL, "dipolicy", "Cluster", version)


def _root() -> dict[str, Any]:
    whole, status = InputPolicy.model_json_schema(), PolicyStatus.model_json_schema()
    return {
        "type": "object",
        "description": InputPolicy.__doc__,
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(whole["$defs"]["PolicySpec"], whole["$defs"]),
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
