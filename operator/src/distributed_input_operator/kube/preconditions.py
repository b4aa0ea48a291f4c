"""What must hold before the watches start: the definition is there, the role is whole."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import INPUT, POLICY, POLICY_RULES, RULES, Kind

_log = logging.getLogger(__name__)
_AGAIN_SECONDS = 10.0
_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_CANNOT_WATCH = frozenset({"list", "watch"})


async def wait(api: Api, namespaces: Sequence[str | None]) -> None:
    """Return once everything can be watched; until then say every 10 s what is missing.

    A right that only some writes need does not hold anything up: the input that needs it says so.
    """
    while True:
        try:
            missing = await _missing(api, namespaces)
            blocking = await _definition(api) + [
                text for verb, text in missing if verb in _CANNOT_WATCH
            ]
            for _, text in missing:
                _log.error(text)
            if not blocking:
                return
            for text in blocking:
                _log.error("waiting: %s", text)
        except ApiError as error:
            _log.error("waiting for the API server: %s", error)
        await asyncio.sleep(_AGAIN_SECONDS)


async def policy(api: Api) -> bool:
    """Whether the cluster's policy can be watched; says once why not."""
    while True:
        try:
            why = await _no_policy(api)
        except ApiError as error:
            _log.error("waiting for the API server: %s", error)
            await asyncio.sleep(_AGAIN_SECONDS)
            continue
        if why:
            _log.info("no cluster-wide budgets: %s", why)
        return not why


async def _no_policy(api: Api) -> str:
    if not await _installed(api, POLICY):
        return f"the CustomResourceDefinition of {POLICY.kind} is not installed"
    for group, resource, verbs in POLICY_RULES:
        for verb in verbs:
            if not await _allowed(api, group, resource, verb, None):
                return f"this operator may not {verb} {resource}"
    return ""


async def _installed(api: Api, kind: Kind) -> bool:
    try:
        found = await api.request("GET", f"/apis/{kind.group}/{kind.version}")
    except ApiError as error:
        if error.status != 404:
            raise
        return False
    return kind.plural in {one["name"] for one in found["resources"]}


async def _definition(api: Api) -> list[str]:
    if await _installed(api, INPUT):
        return []
    return [
        f"the CustomResourceDefinition {INPUT.plural}.{INPUT.group} is not installed: install "
        "the chart with crds.enabled=true, or kubectl apply -f crds/"
    ]


async def _missing(api: Api, namespaces: Sequence[str | None]) -> list[tuple[str, str]]:
    """The rights that this process lacks: (verb, what to do about it)."""
    asked = [
        (group, resource, verb, namespace)
        for group, resource, verbs in RULES
        for verb in verbs
        for namespace in namespaces
    ]
    allowed = await asyncio.gather(*(_allowed(api, *one) for one in asked))
    return [
        (verb, _remedy(group, resource, verb, namespace))
        for (group, resource, verb, namespace), yes in zip(asked, allowed, strict=True)
        if not yes
    ]


def _remedy(group: str, resource: str, verb: str, namespace: str | None) -> str:
    where = f"in namespace {namespace}" if namespace else "in all namespaces"
    of = f"{resource}.{group}" if group else resource
    return f"the operator's role lacks {verb!r} on {of} {where}: upgrade the chart, or grant it"


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
    answer = await api.request("POST", _REVIEWS, body=review)
    return bool(answer.get("status", {}).get("allowed"))
