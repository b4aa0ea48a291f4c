"""CPU and memory of containers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from distributed_input.api.resource.scalars import quantity
from distributed_input.api.resource.sections.pods import ResourceRequirements


def container_resources(
    resources: ResourceRequirements,
    default_requests: Mapping[str, str],
    devices: Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """Return the field `resources` of a container, without empty parts.

    Args:
        resources: of the input's spec.
        default_requests: for resources without a request or limit in the spec.
        devices: accelerators, which need equal requests and limits.
    """
    limits = {**resources.limits, **(devices or {})}
    # If only a limit is set, Kubernetes uses it as the request too.
    defaults = {key: value for key, value in default_requests.items() if key not in limits}
    requests = {**defaults, **resources.requests, **(devices or {})}
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def cpus(resources: Mapping[str, Mapping[str, str]]) -> int:
    """Return the CPUs of a container, rounded up, from its request or else its limit.

    The result is 1 if it has neither.
    """
    for kind in ("requests", "limits"):
        if "cpu" in resources.get(kind, {}):
            return max(1, math.ceil(quantity(resources[kind]["cpu"])))
    return 1
