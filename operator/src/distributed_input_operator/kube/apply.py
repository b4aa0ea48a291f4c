"""Execute the writes of a plan in order, and return the failures."""

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
from distributed_input_operator.objects.shared import CREATED_ONCE
from distributed_input_operator.objects.snapshot import Failure, Snapshot
from distributed_input_operator.reconcile.plan import Plan

_LACKS_RIGHT = re.compile(r"cannot \S+ resource")
"""The authorizer's message. Other components respond with 403 too."""
_NEW = {"resourceVersion": "1"}
"""A version that no object has. If the object exists, the API server reports a conflict."""
_STATUS_ATTEMPTS = 5
"""Attempts to write a status while others change the object."""
_COST_ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"


async def apply(api: Api, store: Store, snapshot: Snapshot, plan: Plan) -> list[ApiError]:
    """Write the plan. Return the errors, those that only the user can fix first.

    Raises OwnerGone, before anything is created, if the input is deleted.
    """
    if not snapshot.young and any(not _live(snapshot, one) for one in plan.objects):
        try:
            await confirm(api, snapshot.resource)
        except ApiError as error:
            return [error]
    errors = await _set_deletion_costs(api, store, snapshot, plan)
    if any(error.retryable for error in errors):
        return errors  # Costs come before fewer replicas, or the wrong pods are deleted.
    results = await asyncio.gather(
        *(apply_one(api, store, snapshot, one) for one in plan.objects),
        *(_scale_held(api, store, snapshot, *one) for one in plan.scales),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, ApiError):
            errors.append(result)
        elif result is not None:
            raise result
    # The condition reports the first error.
    return sorted(errors, key=lambda error: error.retryable)


async def _set_deletion_costs(
    api: Api, store: Store, snapshot: Snapshot, plan: Plan
) -> list[ApiError]:
    """Set the deletion costs of pods. Return the first error, if any."""
    namespace = snapshot.resource.metadata.namespace or ""
    for pod, cost in plan.costs:
        try:
            store.put(await api.annotate(POD, namespace, pod, {_COST_ANNOTATION: str(cost)}))
        except ApiError as error:
            if error.status != 404:
                return [error]
    return []


async def apply_one(
    api: Api, store: Store, snapshot: Snapshot, manifest: Mapping[str, Any]
) -> None:
    """Write one child of an input. Raises ApiError."""
    kind, meta = manifest["kind"], manifest["metadata"]
    if kind in CREATED_ONCE:
        await _create_once(api, store, manifest)
        return
    live = _live(snapshot, manifest)
    if not live:
        try:
            store.put(await api.apply({**manifest, "metadata": {**meta, **_NEW}}))
            return
        except ApiError as error:
            if error.reason != "Conflict":
                raise
            live = await _own_object(api, kind, meta)
    # Without the uid, the API server would create an object that was deleted meanwhile.
    same = {"uid": live["metadata"]["uid"]} if live else {}
    store.put(await api.apply({**manifest, "metadata": {**meta, **same}}))


async def _scale_held(api: Api, store: Store, snapshot: Snapshot, name: str, replicas: int) -> None:
    """Change the number of replicas of a Deployment, and not its pod template."""
    namespace = snapshot.resource.metadata.namespace or ""
    store.put(await api.scale(namespace, snapshot.live("Deployment", name), replicas))


async def _create_once(api: Api, store: Store, manifest: Mapping[str, Any]) -> None:
    try:
        store.put(await api.create(manifest))
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
        if found := await _own_object(api, manifest["kind"], manifest["metadata"]):
            store.put({**found})


def _live(snapshot: Snapshot, manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return snapshot.live(manifest["kind"], manifest["metadata"]["name"])


async def _own_object(api: Api, kind: str, meta: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the input's object of this name, empty if there is none.

    Raises ApiError if the object belongs to another owner.
    """
    found = await api.get(BY_NAME[kind], meta["namespace"], meta["name"])
    if found is None:
        return {}
    owners = [one["uid"] for one in found["metadata"].get("ownerReferences", [])]
    ours = meta["ownerReferences"][0]["uid"]
    if ours in owners:
        return found
    of = (found["metadata"].get("labels") or {}).get(names.INPUT_LABEL)
    if of and not owners:
        # Its Secret has the credentials of the deleted input, which the operator cannot replace.
        raise ApiError(
            422,
            "NameTaken",
            f"{kind} {meta['name']} remains of an input that was deleted with --cascade=orphan: "
            "run `kubectl delete deployments,services,configmaps,secrets,serviceaccounts,"
            f"networkpolicies,poddisruptionbudgets -n {meta['namespace']} "
            f"-l {names.INPUT_LABEL}={of}`",
        )
    if of:
        # It belongs to a deleted input of the same name. The garbage collector will delete it.
        raise ApiError(409, "Leftover", f"{kind} {meta['name']} of a deleted input still exists")
    raise ApiError(
        422,
        "NameTaken",
        f"{kind} {meta['name']} exists and belongs to another owner: rename or delete it, or "
        "rename the input",
    )


async def write_status(
    api: Api,
    store: Store,
    namespace: str,
    name: str,
    status: Mapping[str, Any],
    kind: str = KIND,
    *,
    uid: str,
) -> bool:
    """Replace the operator's fields of a status. Return False if the object is deleted.

    Raises ApiError.

    Args:
        api: the API server.
        store: gets the response.
        namespace: empty for a cluster-scoped object.
        name: name of the object.
        status: the new fields.
        kind: kind of the object. Default: an input.
        uid: of the object. An object of this name with another uid is not changed.
    """
    place = {"namespace": namespace} if namespace else {}
    known = store.get((namespace, name), kind)
    attempts = _STATUS_ATTEMPTS
    # For a status, the API server does not compare the uid. It compares the version, so that a new
    # object of the same name does not get the status of the one before.
    while known is not None and known["metadata"].get("uid") == uid:
        version = known["metadata"].get("resourceVersion", "")
        meta = {"name": name, "uid": uid, "resourceVersion": version, **place}
        manifest = {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, "status": status}
        try:
            written = await api.apply(manifest, "status")
            if store.has(uid):  # Else it was deleted meanwhile.
                store.put(written)
        except ApiError as error:
            attempts -= 1
            if error.status == 404:
                return False
            if error.status != 409 or not attempts:
                raise
            known = await api.get(BY_NAME[kind], namespace, name)
        else:
            return True
    return False


def failure(error: ApiError) -> Failure:
    """Return the failure for the input's conditions, with what the user can do."""
    if error.retryable:
        reason = error.reason if error.reason.isalpha() else "ServerError"
        return Failure(reason, f"{error}: the operator retries", passing=True)
    if error.status == 403 and "exceeded quota" in str(error):
        return Failure("QuotaExceeded", str(error))
    if error.status == 403 and _LACKS_RIGHT.search(str(error)):
        return Failure(
            "Forbidden", f"{error}: the operator's role lacks this: upgrade the chart, or grant it"
        )
    if error.status == 403:  # Admission, or a namespace that is being deleted.
        return Failure(
            "Refused", f"{error}: change the spec, or the cluster's rule that refuses it"
        )
    if error.reason == "NameTaken":
        return Failure("NameTaken", str(error))
    return Failure(
        "Refused",
        f"{error}: change spec.workers.template, dispatcher or tfDataService",
    )
