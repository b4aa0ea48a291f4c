"""The executor: a plan's writes, in order; what went wrong comes back."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from distributed_input.api import names
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import BY_NAME, POD
from distributed_input_operator.kube.owner import confirm
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.snapshot import Failure, Snapshot
from distributed_input_operator.reconcile.plan import Plan

_LACKS_RIGHT = re.compile(r"cannot \S+ resource")
"""The authorizer's words; others answer 403 too."""
_NEW = {"resourceVersion": "1"}
"""No object is of so old a version: where there is one, that is a conflict, and it stays."""
_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"


async def apply(api: Api, store: Store, snapshot: Snapshot, plan: Plan) -> list[ApiError]:
    """Write what the plan says, all of it; what could not be written, and why.

    Raises OwnerGone, before anything is created, where the input is deleted.
    """
    if not snapshot.young and any(not _live(snapshot, one) for one in plan.objects):
        try:
            await confirm(api, snapshot.resource)
        except ApiError as error:
            return [error]
    errors = await _mark(api, store, snapshot, plan)
    if any(error.retryable for error in errors):
        return errors  # marked before the number shrinks, or the wrong pods go
    results = await asyncio.gather(
        *(_apply_one(api, store, snapshot, one) for one in plan.objects), return_exceptions=True
    )
    for result in results:
        if isinstance(result, ApiError):
            errors.append(result)
        elif result is not None:
            raise result
    # First what nobody mends but the user: that is what the condition tells.
    return sorted(errors, key=lambda error: error.retryable)


async def _mark(api: Api, store: Store, snapshot: Snapshot, plan: Plan) -> list[ApiError]:
    """Set the pods' deletion costs; the first error, if any."""
    namespace = snapshot.resource.metadata.namespace or ""
    for pod, cost in plan.costs:
        try:
            store.put(await api.annotate(POD, namespace, pod, {_COST_ANNOTATION: str(cost)}))
        except ApiError as error:
            if error.status != 404:
                return [error]
    return []


async def _apply_one(
    api: Api, store: Store, snapshot: Snapshot, manifest: Mapping[str, Any]
) -> None:
    kind, meta = manifest["kind"], manifest["metadata"]
    live = _live(snapshot, manifest)
    if not live:
        try:
            store.put(await api.apply({**manifest, "metadata": {**meta, **_NEW}}))
            return
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            live = await _ours(api, kind, meta)
    # Without the uid, the API server would create an object that was deleted meanwhile.
    same = {"uid": live["metadata"]["uid"]} if live else {}
    store.put(await api.apply({**manifest, "metadata": {**meta, **same}}))


def _live(snapshot: Snapshot, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return snapshot.live(manifest["kind"], manifest["metadata"]["name"])


async def _ours(api: Api, kind: str, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Our object of this name, empty where there is none. Raises ApiError where it is not ours."""
    found = await api.get(BY_NAME[kind], meta["namespace"], meta["name"])
    if found is None:
        return {}
    owners = [one["uid"] for one in found["metadata"].get("ownerReferences", [])]
    ours = meta["ownerReferences"][0]["uid"]
    if ours in owners:
        return found
    if (found["metadata"].get("labels") or {}).get(names.INPUT_LABEL):
        # Of an input of the same name that was deleted: the garbage collector is on its way.
        raise ApiError(409, "Leftover", f"{kind} {meta['name']} of a deleted input is still there")
    raise ApiError(
        422,
        "NameTaken",
        f"{kind} {meta['name']} exists and belongs to someone else: rename or delete it, or rename "
        "the input",
    )


async def write_status(
    api: Api, store: Store, namespace: str, name: str, status: Mapping[str, Any], kind: str = KIND
) -> None:
    """Replace our part of an input's status, or of another kind's; nothing where it is gone.

    `namespace`: empty for what is in none. Raises ApiError.
    """
    manifest = {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name, **({"namespace": namespace} if namespace else {})},
        "status": status,
    }
    try:
        store.put(await api.apply(manifest, "status"))
    except ApiError as error:
        if error.status != 404:
            raise


def failure(error: ApiError) -> Failure:
    """What went wrong, for the input's conditions, with the remedy."""
    if error.retryable:
        reason = error.reason if error.reason.isalpha() else "ServerError"
        return Failure(reason, f"{error}: will be tried again", passing=True)
    if error.status == 403 and "exceeded quota" in str(error):
        return Failure("QuotaExceeded", str(error))
    if error.status == 403 and _LACKS_RIGHT.search(str(error)):
        return Failure(
            "Forbidden", f"{error}: the operator's role lacks this: upgrade the chart, or grant it"
        )
    if error.status == 403:  # admission, or a namespace that is on its way out
        return Failure(
            "Refused", f"{error}: change the spec, or the cluster's rule that refuses it"
        )
    if error.reason == "NameTaken":
        return Failure("NameTaken", str(error))
    return Failure("Refused", f"{error}: change spec.workers (podTemplate, volumes, env)")
