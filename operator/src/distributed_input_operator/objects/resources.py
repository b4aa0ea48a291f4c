"""CPU and memory of our containers."""

from __future__ import annotations

import math
from collections.abc import Mapping

from distributed_input.api.resource.scalars import quantity
from distributed_input.api.resource.sections.pods import ResourceRequirements


def container_resources(
    resources: ResourceRequirements,
    defaults: Mapping[str, str],
    extra: Mapping[str, str] | None = None,
) -> dict[str, dict[str, str]]:
    """A container's `resources`: the defaults are for requests that the user says nothing of.

    `extra`: devices, which are both requested and limited.
    """
    limits = {**resources.limits, **(extra or {})}
    # Kubernetes takes a limit for the request where there is none.
    open_ = {key: value for key, value in defaults.items() if key not in limits}
    requests = {**open_, **resources.requests, **(extra or {})}
    return {key: value for key, value in (("requests", requests), ("limits", limits)) if value}


def cpus(resources: Mapping[str, Mapping[str, str]]) -> int:
    """Whole CPUs that a container asks for, at least one; its request goes before its limit."""
    for kind in ("requests", "limits"):
        if "cpu" in resources.get(kind, {}):
            return max(1, math.ceil(quantity(resources[kind]["cpu"])))
    return 1
