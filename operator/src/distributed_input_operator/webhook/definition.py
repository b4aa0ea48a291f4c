"""The webhook's address in the custom resource definition, for conversions between versions.

The chart names the Service. The operator adds caBundle and path, as in the webhook configuration.
The path stays the same: each change of a definition ends all watches of its resources.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

from distributed_input.api import names
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.json_text import Json

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_POINTER = "/spec/conversion/webhook/clientConfig"


def conversion_path(key: bytes) -> str:
    """Return the last part of the path under which the API server requests conversions."""
    return hmac.digest(key, b"convert", hashlib.sha256).hex()[:32]


async def client_config(api: Api, name: str) -> Json | None:
    """Return the address of the webhook. None: the definition has none, or does not exist.

    Raises:
        ApiError: it cannot be read.
    """
    try:
        found = await api.request("GET", f"{_DEFINITIONS}/{name}")
    except ApiError as error:
        if error.status == 404:
            return None
        raise
    conversion = (found.get("spec") or {}).get("conversion") or {}
    config: Json | None = (conversion.get("webhook") or {}).get("clientConfig")
    return config if conversion.get("strategy") == "Webhook" else None


async def publish(api: Api, name: str, changed: Json, before: Json) -> None:
    """Write the address of the webhook. Raises ApiError, if it has changed since, too."""
    changes: list[dict[str, Any]] = [
        {"op": "test", "path": _POINTER, "value": before},
        {"op": "add", "path": _POINTER, "value": changed},
    ]
    await api.request(
        "PATCH",
        f"{_DEFINITIONS}/{name}",
        body=changes,
        headers={"Content-Type": "application/json-patch+json"},
    )


def whole_path(last: str) -> str:
    """Return the path with this last part."""
    return f"{names.CONVERSION_PATH}/{last}"
