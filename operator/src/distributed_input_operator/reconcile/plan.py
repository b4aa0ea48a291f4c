"""The planner. Pure: the same snapshot always leads to the same plan.

The controller calls it in two steps, with the cluster's budgets in between:

    demand = plan_demand(snapshot, now)          what the input requests
    grant  = ...                                 what the budgets leave for it
    plan   = make_plan(snapshot, demand, grant)  what to write
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.status import AutoscalingStatus, Status
from distributed_input_operator.autoscaling.decision import (
    AutoscalingState,
    Observation,
    ScalingDecision,
    decide,
    needed_workers,
    useful_workers,
)
from distributed_input_operator.autoscaling.rates import reconcile_interval
from distributed_input_operator.budget.claim import Grant, WorkerRequest
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.shared import (
    CREATED_ONCE,
    certificate_objects,
    shared_objects,
    with_ports_of,
)
from distributed_input_operator.objects.snapshot import (
    CODE_MISSING,
    CODE_REFUSED,
    Failure,
    Manifest,
    Pod,
    Settings,
    Snapshot,
)
from distributed_input_operator.objects.worker import parallelism, worker_objects
from distributed_input_operator.reconcile.claims import worker_request
from distributed_input_operator.reconcile.conditions import ready_workers
from distributed_input_operator.reconcile.pace import RolloutState, Turn
from distributed_input_operator.reconcile.template_changes import (
    PartChange,
    annotated,
    held_failure,
    held_parts,
    part_changes,
    rollout_state,
)

QUIET_SECONDS = 300.0
"""Interval between reconciliations of an input for which no change is expected."""
WATCHED_SECONDS = 30.0
"""Interval for an input whose dispatcher can be asked, or whose pods are about to change."""
READ_SECONDS = 120.0
"""Maximum interval for an input that trainers read."""
_DELETE_FIRST = -1000
"""A pod deletion cost below that of every other pod."""


@dataclass(frozen=True)
class Demand:
    """What an input requests before the cluster's budgets are applied."""

    request: WorkerRequest
    decision: ScalingDecision | None
    """Autoscaling's decision. None: the spec has no autoscaling, or the input is suspended."""
    objects: tuple[Manifest, ...]
    """All desired objects, with all workers that are requested."""
    changes: tuple[PartChange, ...]
    """What the desired Deployments of dispatcher and workers do to their pods."""
    rollout: RolloutState
    """What the pods have of this operator's template."""


@dataclass(frozen=True)
class Plan:
    """What to write, in this order, and when to reconcile again."""

    costs: tuple[tuple[str, int], ...]
    """Names of worker pods, and the deletion cost that each should get."""
    objects: tuple[Manifest, ...]
    """Children to apply: those that are missing or differ."""
    scales: tuple[tuple[str, int], ...]
    """Deployments that keep their pod template for now, and their new number of replicas."""
    waiting: tuple[Failure, ...]
    """Changes by the user that are not applied yet."""
    turn: Turn | None
    """Whether pods may get the operator's new template. None: they have it."""
    grant: Grant
    """Workers that the budgets leave."""
    requested: int
    """Workers that the input would have without budgets."""
    decision: ScalingDecision | None
    """Autoscaling's decision. None: the spec has no autoscaling, or the input is suspended."""
    interval: float
    """Seconds until the next reconciliation if no event comes before."""

    @property
    def desired(self) -> int:
        """The number of workers that there should be."""
        return self.grant.workers


def plan_demand(snapshot: Snapshot, now: float) -> Demand:
    """Compute what the input requests."""
    resource = snapshot.resource
    requested, decision = _requested_workers(snapshot, now)
    settings = with_running_defaults(snapshot)
    workers = worker_objects(resource, settings, requested, snapshot.code)
    dispatcher = dispatcher_objects(resource, settings)
    changes = part_changes(snapshot, (dispatcher[0], workers[0]), now)
    return Demand(
        worker_request(snapshot, requested, decision, workers[0], dispatcher[0]),
        decision,
        (
            *shared_objects(resource, settings),
            *certificate_objects(resource, snapshot.certificates),
            *dispatcher,
            *workers,
        ),
        changes,
        rollout_state(changes, settings.revision),
    )


def make_plan(snapshot: Snapshot, demand: Demand, grant: Grant, turn: Turn = Turn.START) -> Plan:
    """Compute what is missing in the cluster."""
    worker = names.worker(snapshot.name)
    replicas = {worker: grant.workers}
    if not grant.dispatcher:
        replicas[names.dispatcher(snapshot.name)] = 0
    changes = {one.deployment: one for one in demand.changes}
    desired = [
        annotated(snapshot, _granted(one, replicas), changes[one["metadata"]["name"]])
        if one["kind"] == "Deployment"
        else one
        for one in demand.objects
    ]
    held = held_parts(demand.changes, may_start=turn is Turn.START)
    if names.dispatcher(snapshot.name) in held:
        live_dispatcher = snapshot.live("Deployment", names.dispatcher(snapshot.name))
        desired = [
            with_ports_of(one, live_dispatcher) if one["kind"] == "NetworkPolicy" else one
            for one in desired
        ]
    waiting = held_failure(demand.changes, held)
    if any(one.reason in (CODE_MISSING, CODE_REFUSED) for one in snapshot.missing):
        # New pods could not use their code. Those that run keep the code that they have.
        held |= {worker}
    return Plan(
        costs=_deletion_costs(snapshot, grant.workers),
        objects=tuple(
            one for one in desired if not _is_held(one, held) and not is_up_to_date(snapshot, one)
        ),
        scales=tuple(
            (one["metadata"]["name"], one["spec"]["replicas"])
            for one in desired
            if _is_held(one, held) and not _has_replicas(snapshot, one)
        ),
        waiting=(waiting,) if waiting else (),
        turn=turn if demand.rollout in (RolloutState.WAITING, RolloutState.BUSY) else None,
        grant=grant,
        requested=demand.request.claim.requested,
        decision=demand.decision,
        interval=min(_interval(snapshot, demand.decision), snapshot.renew_seconds),
    )


def _granted(deployment: Manifest, replicas: Mapping[str, int]) -> Manifest:
    """Return a Deployment with the replicas for its name, if there are any."""
    spec = deployment["spec"]
    count = replicas.get(deployment["metadata"]["name"], spec["replicas"])
    return {**deployment, "spec": {**spec, "replicas": count}}


def _requested_workers(snapshot: Snapshot, now: float) -> tuple[int, ScalingDecision | None]:
    spec = snapshot.resource.spec
    if spec.suspend:
        return 0, None
    scaling = spec.workers.autoscaling
    if scaling is None:
        return spec.workers.replicas, None
    measured = snapshot.measured
    observed = Observation(
        needed_workers(measured, parallelism(snapshot.resource)),
        measured.consumers if measured else None,
        useful_workers(measured),
        ready_workers(snapshot),
        measured.useful_limit if measured else "",
    )
    decision = decide(_autoscaling_state(snapshot), scaling, observed, now)
    return decision.state.desired, decision


def _autoscaling_state(snapshot: Snapshot) -> AutoscalingState:
    """Return the state after the last decision. Before the first, return what exists."""
    if snapshot.scaled is not None:
        return snapshot.scaled
    status, last = snapshot.status, snapshot.status.autoscaling or AutoscalingStatus()
    desired = status.workers.requested
    if not status.selector:  # an invalid spec has conditions, but no workers yet
        scaling = snapshot.resource.spec.workers.autoscaling
        spec = snapshot.live("Deployment", names.worker(snapshot.name)).get("spec") or {}
        desired = int(spec.get("replicas", scaling.min_replicas if scaling else 0))
    idle_since = timestamps.to_seconds(last.idle_since)
    fewer_since = timestamps.to_seconds(last.fewer_since)
    unmeasured_since = timestamps.to_seconds(last.unmeasured_since)
    return AutoscalingState(desired, fewer_since, last.fewer, idle_since, unmeasured_since)


def is_up_to_date(snapshot: Snapshot, desired: Manifest) -> bool:
    """Return whether a child in the cluster has all that is desired."""
    live = snapshot.live(desired["kind"], desired["metadata"]["name"])
    return bool(live) and (desired["kind"] in CREATED_ONCE or contains(live, desired))


def _is_held(desired: Manifest, held: frozenset[str]) -> bool:
    return desired["kind"] == "Deployment" and desired["metadata"]["name"] in held


def _has_replicas(snapshot: Snapshot, desired: Manifest) -> bool:
    live = snapshot.live("Deployment", desired["metadata"]["name"])
    return not live or live["spec"].get("replicas", 1) == desired["spec"]["replicas"]


def _deletion_costs(snapshot: Snapshot, desired: int) -> tuple[tuple[str, int], ...]:
    """Choose the workers to remove: those with the fewest open splits, which lose least work.

    Workers that were chosen before, and stay, get the default cost again: 0.
    """
    pods = snapshot.of(names.WORKER)
    deployment: Any = snapshot.live("Deployment", names.worker(snapshot.name)).get("spec") or {}
    leaving = len(pods) - desired
    if desired == 0 or (leaving > 0 and int(deployment.get("replicas", 0)) <= desired):
        return ()  # All are removed, or the chosen ones are being removed.
    streams = snapshot.measured.streams if snapshot.measured else {}

    def order(pod: Pod) -> tuple[bool, int, str, str]:
        return (pod.ready, streams.get(pod.ip, 0), _latest_first(pod.created), pod.name)

    first = sorted(pods, key=order)[: max(0, leaving)]
    chosen = {pod.name for pod in pods if pod.deletion_cost == _DELETE_FIRST}
    stay = [pod.name for pod in pods if pod.name in chosen and pod not in first]
    # Kubernetes deletes pods that are not ready first: costs would only delay the smaller number.
    leave = [pod.name for pod in first if pod.ready and pod.name not in chosen]
    return *((name, 0) for name in stay), *((name, _DELETE_FIRST) for name in leave)


def _latest_first(text: str) -> str:
    """Return a sort key that puts later times first."""
    return "".join(chr(0x7F - ord(character)) for character in text)


def lacks_rates(status: Status) -> bool:
    """Return whether trainers read, but no rows were measured: one sample alone has no rates."""
    return status.trainers is not None and not status.trainers.rows_per_second


def _interval(snapshot: Snapshot, decision: ScalingDecision | None) -> float:
    code = snapshot.resource.spec.dataset.config_map
    if snapshot.measured and snapshot.measured.consumers:
        if decision and decision.state.waits:
            return reconcile_interval(snapshot.measured)
        # Looks measure it more often, and lead to a reconciliation if something changes.
        if decision or code:
            return WATCHED_SECONDS
        if not snapshot.measured.rows_per_second or lacks_rates(snapshot.status):
            return WATCHED_SECONDS  # The first rates are not delayed.
        return max(WATCHED_SECONDS, min(snapshot.live_seconds, READ_SECONDS))
    dispatcher = snapshot.live("Deployment", names.dispatcher(snapshot.name)).get("status") or {}
    waiting = any(not pod.ready for pod in snapshot.pods)
    if dispatcher.get("availableReplicas") or waiting or code:
        return WATCHED_SECONDS
    return QUIET_SECONDS


def with_running_defaults(snapshot: Snapshot) -> Settings:
    """Return the operator's settings, with the default images of the input's running pods.

    An operator of another version has other default images. That alone does not restart pods: they
    keep what they have until something else replaces them, such as a change of the spec.
    """
    resource, settings = snapshot.resource, snapshot.settings

    def worker(used: Settings) -> Manifest:
        return worker_objects(resource, used, 1, snapshot.code)[0]

    def dispatcher(used: Settings) -> Manifest:
        return dispatcher_objects(resource, used)[0]

    # The workers' image comes first: with the tf.data service, the dispatcher's pod uses it too.
    for name, image, desired in (
        (names.worker(snapshot.name), "worker_image", worker),
        (names.dispatcher(snapshot.name), "sidecar_image", dispatcher),
    ):
        live = snapshot.live("Deployment", name)
        annotations = (live.get("metadata") or {}).get("annotations") or {}
        found = annotations.get(names.DEFAULT_IMAGE_ANNOTATION)
        if found in (None, getattr(settings, image)) or not live["spec"].get("replicas"):
            continue
        kept = replace(settings, **{image: found})
        # Another change replaces the pods anyway, if they do not have this template.
        if contains(live["spec"].get("template"), desired(kept)["spec"]["template"]):
            settings = kept
    return settings
