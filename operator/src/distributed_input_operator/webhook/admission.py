"""Admission of trainer pods: it converts an AdmissionReview's request to its response.

It fails closed: if something is unknown, it refuses the pod, and the pod's owner retries.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Sequence

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput, manager
from distributed_input.api.resource.problems import problems
from distributed_input_operator.injection.pod import (
    host_network_warnings,
    inject,
    json_patch,
    requests_sidecar,
)
from distributed_input_operator.injection.pod_sets import owner_of
from distributed_input_operator.injection.rank import OWNERS
from distributed_input_operator.injection.trainer_pod import RefusedError, requested_inputs
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import INPUT
from distributed_input_operator.kube.read_cache import ReadCache
from distributed_input_operator.objects.snapshot import Settings

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS = 10.0
"""Default time for which the API server waits. It then reports no cause."""
_SHARE = 0.8
"""The part of this time in which the webhook responds."""
_MAX_OWNERS = 4
"""Objects that are read above a pod. The owners of owners could form a circle."""


def deadline_seconds(timeout: str | None) -> float:
    """Return the time limit for a response.

    Args:
        timeout: the parameter of the request's URL, such as 10s: `timeoutSeconds` of the webhook.
    """
    text = (timeout or "").removesuffix("s")
    return _SHARE * (float(text) if text.isdecimal() else _TIMEOUT_SECONDS)


class Injector:
    """Responds to AdmissionReviews of pods."""

    def __init__(self, api: Api, settings: Settings) -> None:
        """Read inputs and owners with `api`. `settings` has the default images."""
        self._cache = ReadCache(api)
        self._settings = settings

    async def respond(self, request: Json, seconds: float = _SHARE * _TIMEOUT_SECONDS) -> Json:
        """Return the `response` for the `request` of an AdmissionReview, within a time limit."""
        pod = request["object"]
        if not requests_sidecar(pod):
            return {"uid": request["uid"], "allowed": True}
        try:
            async with asyncio.timeout(seconds):
                answer = await self._inject(pod, request["namespace"])
        except RefusedError as error:
            return _refusal(request, 422, "Invalid", str(error))
        except (ApiError, TimeoutError) as error:
            cause = str(error) or f"no response from the API server within {seconds:g} s"
            forbidden = isinstance(error, ApiError) and error.status == 403
            remedy = "grant this permission with the chart's role" if forbidden else "try again"
            message = f"{cause}: {remedy}"
            _log.warning("refused a pod in namespace %s: %s", request["namespace"], message)
            return _refusal(request, 503, "ServiceUnavailable", message)
        injected, warnings = answer
        if injected is None:
            return {"uid": request["uid"], "allowed": True, "warnings": warnings}
        patch = json.dumps(json_patch(pod, injected)).encode()
        return {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": base64.b64encode(patch).decode(),
            "warnings": warnings,
        }

    async def _inject(self, pod: Json, namespace: str) -> tuple[Json | None, list[str]]:
        """Return the pod with its sidecar, and warnings for the user.

        None instead of the pod: the webhook of another operator adds the sidecar.
        """
        input_names = requested_inputs(pod)
        inputs, owners = await asyncio.gather(
            asyncio.gather(*(self._input(name, namespace) for name in input_names)),
            self._owners(pod, namespace),
        )
        managers = {one.spec.managed_by for one in inputs}
        if len(managers) > 1:
            raise RefusedError(
                f"annotation {names.INPUTS_ANNOTATION}: the inputs have different operators: use "
                "inputs with the same spec.managedBy"
            )
        own = manager(self._settings.operator_class)
        if managers != {own}:
            return None, [_other_manager(input_names, managers.pop(), own)]
        by_name = dict(zip(input_names, inputs, strict=True))
        injected = inject(pod, owners, by_name.__getitem__, self._settings)
        return injected, host_network_warnings(pod, by_name.__getitem__)

    async def _input(self, name: str, namespace: str) -> DistributedInput:
        found = await self._cache.get(INPUT, namespace, name)
        if found is None:
            raise RefusedError(
                f"annotation {names.INPUTS_ANNOTATION}: no DistributedInput {name!r} in namespace "
                f"{namespace}: apply it first, or correct the name. `kubectl get dinput` lists them"
            )
        try:
            return DistributedInput.from_stored(found)
        except ValidationError as error:
            details = "; ".join(map(str, problems(error)))
            raise RefusedError(f"DistributedInput {name} is invalid: {details}") from None

    async def _owners(self, pod: Json, namespace: str) -> list[Json]:
        """Return what controls a pod, as far as the kinds are known."""
        found: list[Json] = []
        while len(found) < _MAX_OWNERS and (of := owner_of(found[-1] if found else pod)):
            kind = next((one for one in OWNERS if one.describes(of)), None)
            if kind is None:
                break
            owner = await self._cache.get(kind, namespace, of["name"], of.get("uid", ""))
            if owner is None and of["apiVersion"] != kind.api_version:
                break  # The API server may not have the version that this code reads.
            if owner is None:
                raise RefusedError(
                    f"{of['kind']} {of['name']}, which owns this pod, does not exist any more: "
                    "create it again"
                )
            found.append(owner)
        return found


def _other_manager(input_names: Sequence[str], found: str | None, own: str | None) -> str:
    """Return the warning that this webhook does not serve the inputs of a pod."""
    served, needed = (
        f"spec.managedBy {one}" if one else "no spec.managedBy" for one in (own, found)
    )
    return (
        f"annotation {names.INPUTS_ANNOTATION}: {', '.join(input_names)}: the inputs have "
        f"{needed}. This webhook serves inputs with {served}, so it adds no sidecar: a release of "
        "the chart with that operatorClass must add it"
    )


def _refusal(request: Json, code: int, reason: str, message: str) -> Json:
    status = {"code": code, "reason": reason, "message": message}
    return {"uid": request["uid"], "allowed": False, "status": status}
