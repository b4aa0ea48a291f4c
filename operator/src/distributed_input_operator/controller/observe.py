"""Read the cluster's state of one input as a frozen snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timezone

from pydantic import ValidationError

from distributed_input.api import names
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.policy import PolicySpec
from distributed_input.api.resource.problems import problems
from distributed_input.api.resource.status import Status
from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.certificates.issuer import UnusableIssuer
from distributed_input_operator.certificates.renewal import renewed
from distributed_input_operator.controller.channels import (
    CERTIFICATE_REFUSED,
    TOKEN_REFUSED,
    DispatcherAccess,
    operator_access,
)
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.tokens import secret_of
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.apply import failure
from distributed_input_operator.kube.json_text import Json
from distributed_input_operator.kube.kinds import CONFIG_MAP
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.children import digest
from distributed_input_operator.objects.dispatcher import dispatcher_port
from distributed_input_operator.objects.snapshot import (
    AUTHORITY_UNUSABLE,
    CLASS_REFUSED,
    CODE_MISSING,
    CODE_REFUSED,
    Failure,
    Settings,
    Snapshot,
    parse_pod,
)
from distributed_input_operator.reconcile.conditions import APPLIED, QUOTA_EXCEEDED


class InvalidSpec(Exception):
    """The API server accepted a spec that the operator cannot use. The message says what to fix."""


async def observe(context: ControllerContext, key: InputKey) -> Snapshot | None:
    """Return what is known of an input. None: it is deleted, or is being deleted.

    Raises:
        InvalidSpec: the spec cannot be used.
        OwnerGone: the input is deleted, but the store still has it.
        ApiError: something could not be read. A retry may succeed.
    """
    stored = context.store.input(key)
    if stored is None or "deletionTimestamp" in stored["metadata"]:
        return None
    resource = parse_input(stored)
    policy = context.ledger.policy
    refusals = {
        CODE_REFUSED: _refused_code(policy, resource),
        CLASS_REFUSED: _refused_class(policy, resource),
    }
    snapshot = Snapshot(
        resource=resource,
        status=Status.model_validate(stored.get("status") or {}),
        settings=replace(
            _with_modules(context.settings, tuple(policy.modules)), resources=policy.resource_names
        ),
        objects={},
        missing=tuple(Failure(reason, text) for reason, text in refusals.items() if text),
        scaled=context.autoscaling_state(key, resource.metadata.uid or ""),
        live_seconds=context.looks.write_seconds,
    )
    if policy.selects_namespaces:
        labels = await context.namespaces.labels(key[0])
        snapshot = replace(snapshot, namespace_labels=labels)
    snapshot = with_children(context.store, key, snapshot)
    snapshot = await _with_code(context.api, snapshot)
    return await _with_measurement(context, key, snapshot)


async def observe_invalid(context: ControllerContext, key: InputKey) -> Snapshot | None:
    """Return the objects and certificates of an input whose spec cannot be used.

    They depend on its metadata and encryption alone. Its processes run, and need new certificates.

    Returns:
        The snapshot, with an empty spec. None: the input has no objects, or is not encrypted.

    Raises:
        ApiError: something could not be read. A retry may succeed.
    """
    stored = context.store.input(key)
    encryption = ((stored or {}).get("spec") or {}).get("encryption")
    if stored is None or encryption == "None":
        return None
    resource = parse_input({**stored, "spec": {}})
    snapshot = Snapshot(resource, Status(), context.settings, objects={})
    snapshot = with_children(context.store, key, snapshot)
    return (await _with_credentials(context, snapshot))[0] if snapshot.objects else None


def with_children(store: Store, key: InputKey, snapshot: Snapshot) -> Snapshot:
    """Return the snapshot with the children as the store has them now."""
    children = store.children(key)
    return replace(
        snapshot,
        objects={place: obj for place, obj in children.items() if place[0] != "Pod"},
        pods=tuple(
            parse_pod(obj, snapshot.settings.resources)
            for place, obj in children.items()
            if place[0] == "Pod"
        ),
    )


def parse_input(stored: Json) -> DistributedInput:
    """Return the typed resource. Raises InvalidSpec."""
    try:
        return DistributedInput.from_stored(stored)
    except ValidationError as error:
        raise InvalidSpec("; ".join(map(str, problems(error)))) from None


def _refused_code(policy: PolicySpec, resource: DistributedInput) -> str:
    """Return why workers may not import the input's entry point. Empty: they may."""
    dataset = resource.spec.dataset
    if dataset.entry_point is None or not policy.modules:
        return ""
    if dataset.config_map is not None:
        return (
            "spec.dataset.entryPoint.source: the InputPolicy limits the modules of entry points "
            "(spec.modules), and a ConfigMap could replace such a module: put the code into the "
            "image of the workers"
        )
    module = dataset.entry_point.function.partition(":")[0]
    if policy.allows_module(module):
        return ""
    return (
        f"spec.dataset.entryPoint.function: workers may not import module {module}: use one of "
        f"the modules {', '.join(policy.modules)}, or ask the administrator to add it to "
        "spec.modules of the InputPolicy"
    )


def _refused_class(policy: PolicySpec, resource: DistributedInput) -> str:
    """Return why the input may not use its priority class. Empty: it may, or names none."""
    name = resource.spec.trainers.priority_class
    allowed = policy.classes_of(resource.metadata.namespace or "")
    if name is None or name in allowed:
        return ""
    use = f"use one of the classes {', '.join(allowed)}" if allowed else "remove it"
    return (
        f"spec.trainers.priorityClass: the InputPolicy has no class {name} for this namespace: "
        f"{use}, or ask the administrator to add it to spec.priorityClasses"
    )


def _with_modules(settings: Settings, modules: tuple[str, ...]) -> Settings:
    """Return settings with these modules. They change all templates, as a new release does."""
    if not modules:
        return settings
    return replace(settings, modules=modules, revision=digest([settings.revision, modules]))


async def _with_code(api: Api, snapshot: Snapshot) -> Snapshot:
    """Add a hash of the ConfigMap that has the entry point's code."""
    name = snapshot.resource.spec.dataset.config_map
    if name is None:
        return snapshot
    found = await api.get(CONFIG_MAP, snapshot.resource.metadata.namespace or "", name)
    if found is not None:
        content = {key: found.get(key) for key in ("data", "binaryData")}
        return replace(snapshot, code=digest(content))
    text = f"spec.dataset.entryPoint.source.configMap: there is no ConfigMap {name}: create it"
    return replace(snapshot, missing=(*snapshot.missing, Failure(CODE_MISSING, text)))


async def _with_credentials(
    context: ControllerContext, snapshot: Snapshot
) -> tuple[Snapshot, Callable[[], DispatcherAccess]]:
    """Add the input's Secret, if it is due, and certificates. Return how to call its dispatcher."""
    resource = snapshot.resource
    due = context.tokens.is_due(resource, applied=_is_applied(snapshot))
    if not resource.spec.is_encrypted:
        token = await context.tokens.token(resource)
        snapshot = replace(snapshot, secret=secret_of(resource, token) if due else None)
        return snapshot, lambda: DispatcherAccess(token=token)
    authority = await context.tokens.authority(resource)
    live = snapshot.live("ConfigMap", names.certificates(snapshot.name)).get("data") or {}
    life = context.certificate_life
    issuer = await context.issuer.current() if context.issuer else None
    is_new = not snapshot.objects
    found = renewed(authority, live, datetime.now(timezone.utc), life, issuer, is_new=is_new)
    if isinstance(issuer, UnusableIssuer):
        if not found.data:
            raise ApiError(503, AUTHORITY_UNUSABLE, str(issuer))
        snapshot = replace(snapshot, unsigned=Failure(issuer.reason, str(issuer)))
    snapshot = replace(
        snapshot,
        secret=secret_of(resource, authority) if due else None,
        certificates=found.data,
        renew_seconds=found.seconds,
    )
    return snapshot, lambda: operator_access(authority, datetime.now(timezone.utc), life)


def _is_applied(snapshot: Snapshot) -> bool:
    """Return whether the input has children, and its status reports no failed write."""
    conditions = snapshot.status.conditions
    failed = any(one.type in (APPLIED, QUOTA_EXCEEDED) for one in conditions)
    children = snapshot.live("Deployment", names.dispatcher(snapshot.name))
    return bool(children and conditions) and not failed


async def _with_measurement(
    context: ControllerContext, key: InputKey, snapshot: Snapshot
) -> Snapshot:
    """Add the dispatcher's measurement, if the dispatcher is ready."""
    resource = snapshot.resource
    try:
        snapshot, access = await _with_credentials(context, snapshot)
    except ApiError as error:
        return replace(snapshot, missing=(*snapshot.missing, failure(error)))
    ready = [one for one in snapshot.of(names.DISPATCHER) if one.ready and one.ip]
    if not ready:
        context.dispatchers.close(key)
        return snapshot
    host = f"[{ready[0].ip}]" if ":" in ready[0].ip else ready[0].ip
    address = f"{host}:{dispatcher_port(resource)}"
    uid = resource.metadata.uid or ""
    measured = await context.dispatchers.measure(key, uid, address, access)
    problem = context.dispatchers.problem(key)
    if problem and problem.reason in (TOKEN_REFUSED, CERTIFICATE_REFUSED):
        context.tokens.check(key)
    return replace(snapshot, measured=measured, unmeasured=problem)
