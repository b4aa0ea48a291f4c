"""Compute what a pod requests, as budgets count it. Pure.

A pod template is the user's own and may be any JSON. A value that cannot be read counts as
nothing: the API server refuses such a pod, with a better message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from distributed_input.api.resource.policy import UNLIMITED, Amount
from distributed_input.api.resource.scalars import quantity


def requested_amount(spec: Mapping[str, Any], others: Sequence[str] = ()) -> Amount:
    """Return what a pod of a spec requests: itself, thousandths of CPUs, bytes, and others."""
    more = (_requested(spec, name, 1) for name in others)
    return (1, _requested(spec, "cpu", 1000), _requested(spec, "memory", 1), *more)


def _requested(spec: Mapping[str, Any], name: str, unit: int) -> int:
    """Return a pod's request of one resource, as the scheduler computes it.

    It is the pod's own request, or else that of its containers, or else the pod's limit. The
    overhead of its RuntimeClass is added.
    """
    total = _container_sum(spec, name, unit)
    whole = _mapping(spec.get("resources"))
    if name in ("cpu", "memory") or name.startswith("hugepages-"):  # Others have no such field.
        own = {
            **({} if total else _mapping(whole.get("limits"))),
            **_mapping(whole.get("requests")),
        }
        total = _amount(own, name, unit) if name in own else total
    return min(total + _amount(_mapping(spec.get("overhead")), name, unit), UNLIMITED)


def _container_sum(spec: Mapping[str, Any], name: str, unit: int) -> int:
    """Return the containers' request of one resource.

    It is the larger of two sums: containers and sidecars together, or any init container with the
    sidecars that start before it.
    """
    sidecars, most = 0, 0
    for one in _containers(spec, "initContainers"):
        part = _container_request(one, name, unit)
        most = max(most, sidecars + part)
        if one.get("restartPolicy") == "Always":
            sidecars += part
    containers = sum(_container_request(one, name, unit) for one in _containers(spec))
    return max(most, sidecars + containers)


def _containers(spec: Mapping[str, Any], kind: str = "containers") -> list[Mapping[str, Any]]:
    containers = spec.get(kind)
    return [_mapping(one) for one in containers] if isinstance(containers, list) else []


def _container_request(container: Mapping[str, Any], name: str, unit: int) -> int:
    resources = _mapping(container.get("resources"))
    requests = {**_mapping(resources.get("limits")), **_mapping(resources.get("requests"))}
    return _amount(requests, name, unit)


def _amount(quantities: Mapping[str, Any], name: str, unit: int) -> int:
    return int(unit * min(_number(str(quantities.get(name, "0"))), Decimal(UNLIMITED)))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(text: str) -> Decimal:
    """Parse a quantity. Kubernetes accepts signs and exponents too, which our own fields do not."""
    text = text.removeprefix("+")
    try:
        return quantity(text)
    except ValueError:
        pass
    try:
        number = Decimal(text)
    except InvalidOperation:
        return Decimal(0)
    return max(number, Decimal(0)) if number.is_finite() else Decimal(0)
