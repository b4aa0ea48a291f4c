"""Admission of trainers' pods: an AdmissionReview's request in, its response out.

It fails closed: where something cannot be known, the pod is refused and its owner tries again.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.problems import problems
from distributed_input_operator.injection.injection import asks, injected, patch, warnings
from distributed_input_operator.injection.trainers import RefusedError, wanted_inputs
from distributed_input_operator.injection.workloads import Owner, owners_of
from distributed_input_operator.kube.api import Api, ApiError, Json
from distributed_input_operator.kube.kinds import INPUT, Kind
from distributed_input_operator.kube.read_cache import ReadCache

_log = logging.getLogger(__name__)

SECONDS = 8.0
"""For an answer; the API server waits for 10 and has no words for why."""
_LISTED = 20
OWNERS = {
    "Job": Kind("Job", "batch", "v1", "jobs", ("get",)),
    "JobSet": Kind("JobSet", "jobset.x-k8s.io", "v1alpha2", "jobsets", ("get",)),
    "StatefulSet": Kind("StatefulSet", "apps", "v1", "statefulsets", ("get",)),
}
"""What runs trainers, and what the webhook must be allowed to do with it."""


class Injector:
    """Answers AdmissionReviews."""

    def __init__(self, api: Api, image: str) -> None:
        """`image`: of sidecars, where no input names one."""
        self._api = api
        self._recent = ReadCache(api)
        self._image = image

    async def answer(self, request: Json) -> Json:
        """The `response` to an AdmissionReview's `request`."""
        pod = request["object"]
        if not asks(pod):
            return {"uid": request["uid"], "allowed": True}
        try:
            async with asyncio.timeout(SECONDS):
                made, warned = await self._injected(pod, request["namespace"])
        except RefusedError as error:
            return _refusal(request, 422, "Invalid", str(error))
        except (ApiError, TimeoutError) as error:
            why = str(error) or f"no answer of the API server within {SECONDS:g} s"
            forbidden = isinstance(error, ApiError) and error.status == 403
            why += ": grant this with the chart's role" if forbidden else ": try again"
            _log.warning("%s: pod refused: %s", request["namespace"], why)
            return _refusal(request, 503, "ServiceUnavailable", why)
        changes = base64.b64encode(json.dumps(patch(pod, made)).encode()).decode()
        return {
            "uid": request["uid"],
            "allowed": True,
            "patchType": "JSONPatch",
            "patch": changes,
            "warnings": warned,
        }

    async def _injected(self, pod: Json, namespace: str) -> tuple[Json, list[str]]:
        wanted, owners = wanted_inputs(pod), owners_of(pod)
        inputs, above = await asyncio.gather(
            asyncio.gather(*(self._input(name, namespace) for name in wanted)),
            asyncio.gather(*(self._owner(one, namespace) for one in owners)),
        )
        by_name = dict(zip(wanted, inputs, strict=True))
        by_kind = {one.kind: obj for one, obj in zip(owners, above, strict=True)}
        made = injected(pod, by_kind, by_name.__getitem__, self._image)
        return made, warnings(pod, by_name.__getitem__)

    async def _input(self, name: str, namespace: str) -> DistributedInput:
        found = await self._recent.get(INPUT, namespace, name)
        if found is None:
            raise RefusedError(await self._missing(name, namespace))
        try:
            # Fields that are not known here are a newer definition's, as in `observe`.
            return DistributedInput.model_validate({**found, "status": {}}, extra="ignore")
        except ValidationError as error:
            wrong = "; ".join(map(str, problems(error)))
            raise RefusedError(f"DistributedInput {name} cannot be used: {wrong}") from None

    async def _missing(self, name: str, namespace: str) -> str:
        there = [one["name"] async for one in self._api.metadata(INPUT, namespace)][:_LISTED]
        there_are = f"there are {', '.join(there)}" if there else "there is none"
        return (
            f"annotation {names.INPUTS_ANNOTATION}: no DistributedInput {name!r} in namespace "
            f"{namespace}, {there_are}: apply it first, or correct the name"
        )

    async def _owner(self, owner: Owner, namespace: str) -> Json:
        found = await self._recent.get(OWNERS[owner.kind], namespace, owner.name)
        if found is None:
            raise RefusedError(f"{owner.kind} {owner.name}, which runs this pod, is gone")
        return found


def _refusal(request: Json, code: int, reason: str, message: str) -> Json:
    status = {"code": code, "reason": reason, "message": message}
    return {"uid": request["uid"], "allowed": False, "status": status}
