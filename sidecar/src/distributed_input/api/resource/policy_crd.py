"""The custom resource definition of InputPolicy, from its typed model.

`python -m distributed_input.api.resource.policy_crd` prints it; `make crds` writes it to crds/.
"""

from __future__ import annotations

import sys
from typing import Any

from distributed_input.api.resource.crd import definition, structural, text, without_defaults
from distributed_input.api.resource.input import API_VERSION
from distributed_input.api.resource.policy import (
    POLICY_KIND,
    POLICY_NAME,
    POLICY_PLURAL,
    InputPolicy,
    PolicyStatus,
)


def policy_crd() -> dict[str, Any]:
    """The CustomResourceDefinition of InputPolicy."""
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
                "description": "Of each budget: there are/limit.",
            },
            {
                "name": "Age",
                "type": "date",
                "jsonPath": ".metadata.creationTimestamp",
                "description": "Since when it exists.",
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
                "message": f"metadata.name is {POLICY_NAME!r}: there is one policy, put all "
                "budgets into it",
            }
        ],
    }


if __name__ == "__main__":
    sys.stdout.write(text(policy_crd()))
