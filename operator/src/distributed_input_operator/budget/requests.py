"""What a pod asks for, as budgets count it. Pure.

A pod template is the user's own and any JSON: what cannot be read counts as nothing, for the API
server refuses such a pod, and says so better.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from distributed_input.api.resource.policy import UNLIMITED, Amount
from distributed_input.api.resource.scalars import quantity


def takes(spec: Mapping[str, Any]) -> Amount:
    """What one pod of a spec asks for: itself, thousandths of CPUs, bytes."""
    return (1, _asked(spec, "cpu", 1000), _asked(spec, "memory", 1))


def _asked(spec: Mapping[str, Any], name: str, times: int) -> int:
    """As the scheduler counts: containers and sidecars together, or an init container before them
    and the sidecars that started until then, whichever is more.
    """
    beside, most = 0, 0
    for one in _containers(spec, "initContainers"):
        part = _part(one, name, times)
        most = max(most, beside + part)
        if one.get("restartPolicy") == "Always":
            beside += part
    return max(most, beside + sum(_part(one, name, times) for one in _containers(spec)))


def _containers(spec: Mapping[str, Any], kind: str = "containers") -> list[Mapping[str, Any]]:
    found = spec.get(kind)
    return [_mapping(one) for one in found] if isinstance(found, list) else []


def _part(container: Mapping[str, Any], name: str, times: int) -> int:
    resources = _mapping(container.get("resources"))
    asked = {**_mapping(resources.get("limits")), **_mapping(resources.get("requests"))}
    return int(times * min(_number(str(asked.get(name, "0"))), Decimal(UNLIMITED)))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(text: str) -> Decimal:
    """Kubernetes takes signs and exponents too, which our own fields do not."""
    text = text.removeprefix("+")
    try:
        return quantity(text)
    except ValueError:
        pass
    try:
        found = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return max(found, Decimal(0)) if found.is_finite() else Decimal(0)
