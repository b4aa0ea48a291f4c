"""Preconditions of the watches: the definition is installed, and the role is complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import INPUT, POLICY, POLICY_RULES, RULES
from distributed_input_operator.objects.kind import Kind

_log = logging.getLogger(__name__)
_RETRY_SECONDS = 10.0
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.2
"""Between the attempts of one request. A busy API server refuses some of the many reviews."""
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WATCH_VERBS = frozenset({"list", "watch"})
_NO_POLICY = f"the CustomResourceDefinition of {POLICY.kind} is not installed"
_NOT_INSTALLED = (
    f"the CustomResourceDefinition {INPUT.plural}.{INPUT.group} is not installed: install "
    "the chart with crds.enabled=true, or kubectl apply -f crds/"
)


async def wait_until_met(api: Api, namespaces: Sequence[str | None]) -> None:
    """Wait until everything can be watched. Log every 10 s what is missing.

    A right that only some writes need does not block: the inputs that need it report the failure.
    """
    while True:
        try:
            blocking = [] if await _installed(api, INPUT) else [_NOT_INSTALLED]
            for verb, text in await _missing_rights(api, namespaces):
                _log.error(text)
                if verb in _WATCH_VERBS:
                    blocking.append(text)
            if not blocking:
                return
            for text in blocking:
                _log.error("waiting: %s", text)
        except ApiError as error:
            _log.error("waiting for the API server: %s", error)
        await asyncio.sleep(_RETRY_SECONDS)


async def can_watch_policy(api: Api, *, required: bool) -> bool:
    """Return whether the cluster's policy can be watched. Log the reason if it cannot.

    Args:
        api: the API server.
        required: whether to wait for the rights. An operator for all namespaces has them: without,
            it would ignore the limits of a policy that exists.
    """
    while True:
        try:
            installed = await _installed(api, POLICY)
            obstacle = await _policy_obstacle(api) if installed else _NO_POLICY
        except ApiError as error:
            _log.error("waiting for the API server: %s", error)
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        if not obstacle:
            return True
        if not required or not installed:
            _log.info("cluster-wide budgets are off: %s", obstacle)
            return False
        _log.error("waiting: %s: upgrade the chart, or grant it", obstacle)
        await asyncio.sleep(_RETRY_SECONDS)


async def _policy_obstacle(api: Api) -> str:
    for group, resource, verbs in POLICY_RULES:
        for verb in verbs:
            if not await _allowed(api, group, resource, verb, None):
                return f"the operator has no permission to {verb} {resource}"
    return ""


async def _request(api: Api, method: str, path: str, body: Any = None) -> dict[str, Any]:
    """Send a request, again if it may succeed then. Raises ApiError after the last attempt."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return await api.request(method, path, body=body)
        except ApiError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(_PAUSE_SECONDS)
    return await api.request(method, path, body=body)


async def _installed(api: Api, kind: Kind) -> bool:
    try:
        found = await _request(api, "GET", f"/apis/{kind.group}/{kind.version}")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return kind.plural in {one["name"] for one in found["resources"]}


async def _missing_rights(api: Api, namespaces: Sequence[str | None]) -> list[tuple[str, str]]:
    """Return the rights that this process lacks: (verb, what the user can do)."""
    required = [
        (group, resource, verb, namespace)
        for group, resource, verbs in RULES
        for verb in verbs
        for namespace in namespaces
    ]
    allowed = await asyncio.gather(*(_allowed(api, *one) for one in required))
    missing = []
    for (group, resource, verb, namespace), yes in zip(required, allowed, strict=True):
        where = f"in namespace {namespace}" if namespace else "in all namespaces"
        of = f"{resource}.{group}" if group else resource
        text = f"the operator's role lacks {verb!r} on {of} {where}: upgrade the chart, or grant it"
        missing += [] if yes else [(verb, text)]
    return missing


async def _allowed(api: Api, group: str, resource: str, verb: str, namespace: str | None) -> bool:
    name, _, subresource = resource.partition("/")
    attributes = {"group": group, "resource": name, "subresource": subresource, "verb": verb}
    if namespace:
        attributes["namespace"] = namespace
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await _request(api, "POST", _REVIEWS, review)
    return bool(answer.get("status", {}).get("allowed"))
