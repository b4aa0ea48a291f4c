"""The planner: a snapshot in, what to write out. Pure: the same answer however often it is asked.

plan    what the cluster should have that it has not
report  the status, once it is known what became of the plan
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api import names, timestamps
from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import look_again
from distributed_input_operator.autoscaling.scaling import (
    Bounds,
    Decision,
    Seen,
    State,
    decide,
    need,
)
from distributed_input_operator.budget.allocation import Grant
from distributed_input_operator.budget.ledger import Ask
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.matching import contains
from distributed_input_operator.objects.running_images import with_running_images
from distributed_input_operator.objects.shared import shared_objects
from distributed_input_operator.objects.snapshot import Failure, Manifest, Pod, Snapshot
from distributed_input_operator.objects.tf_data_service import tf_data_service_address
from distributed_input_operator.objects.worker import parallelism, worker_objects
from distributed_input_operator.reconcile import claims
from distributed_input_operator.reconcile.conditions import (
    READY,
    Finding,
    conditions,
    findings,
    ready_workers,
)
from distributed_input_operator.reconcile.reporting import live_status, worth_a_write

QUIET_SECONDS = 300.0
"""When nothing is expected, an input is looked at again after this long."""
WATCHED_SECONDS = 30.0
"""An input whose dispatcher can be asked, or whose pods are awaited."""
_FIRST_TO_GO = -1000
"""A pod deletion cost below that of every other pod."""


@dataclass(frozen=True)
class Plan:
    """What to write, in this order, and when to look again."""

    costs: tuple[tuple[str, int], ...]
    """Worker pods and the deletion cost that each is to have."""
    objects: tuple[Manifest, ...]
    """Children to apply: those that are not as they should be."""
    grant: Grant
    """Workers that there should be, of those that were asked for."""
    asked: int
    """Workers that there would be, were there room in the cluster's budgets."""
    decision: Decision | None
    """Autoscaling's; None where the spec has none, or the input is suspended."""
    again: float
    """Seconds after which to look again even if nothing is heard."""

    @property
    def desired(self) -> int:
        """Workers that there should be."""
        return self.grant.workers


def all_of_it(asked: Ask) -> Grant:
    """The answer where there are no budgets."""
    return Grant(asked.claim.wanted, asked.claim.wanted)


def plan(snapshot: Snapshot, now: float, granted: Callable[[Ask], Grant] = all_of_it) -> Plan:
    """What the cluster lacks of what the input wants.

    Args:
        snapshot: the input as it is.
        now: seconds since 1970.
        granted: what the cluster's budgets leave for it.
    """
    asked, decision = _desired(snapshot, now)
    settings = with_running_images(snapshot)
    workers = worker_objects(snapshot.resource, settings, asked, snapshot.code)
    grant = granted(claims.ask(snapshot, asked, decision, workers[0]))
    workers[0]["spec"]["replicas"] = grant.workers
    wanted = [
        *shared_objects(snapshot.resource, settings),
        *dispatcher_objects(snapshot.resource, settings),
        *workers,
    ]
    objects = tuple(one for one in wanted if not _as_wanted(snapshot, one))
    costs = _costs(snapshot, grant.workers)
    return Plan(costs, objects, grant, asked, decision, _again(snapshot))


def report(
    snapshot: Snapshot, made: Plan, failures: Iterable[Failure], now: float
) -> dict[str, Any] | None:
    """The status to write, or None where the last one still says it all.

    What changes all the time is worth a write every 30 s, not every time.
    """
    resource, before = snapshot.resource, snapshot.status
    generation = resource.metadata.generation or 0
    told = findings(snapshot, made.grant, made.decision, [*snapshot.missing, *failures])
    ready = ready_workers(snapshot)
    name = snapshot.name
    state = made.decision.state if made.decision else None
    workers = snapshot.live("Deployment", names.worker(name)).get("status") or {}
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "conditions": [
            one.model_dump(by_alias=True)
            for one in conditions(told, before.conditions, generation, timestamps.to_text(now))
        ],
        "selector": ",".join(
            f"{key}={value}" for key, value in names.selector(name, names.WORKER).items()
        ),
        "workers": {
            "desired": made.desired,
            "asked": made.asked,
            "replicas": int(workers.get("replicas", 0)),
            "ready": ready,
            "summary": f"{ready}/{made.desired}",
        },
        "dispatcher": {"address": names.address(name)},
        "tfDataService": {"address": address}
        if (address := tf_data_service_address(resource))
        else None,
        "live": live_status(before.live, snapshot.measured, parallelism(resource), now),
        "autoscaling": _autoscaling(state),
    }
    status = {key: value for key, value in status.items() if value is not None}
    if not worth_a_write(before, Status.model_validate(status), now):
        return None
    if snapshot.measured and "live" in status:
        status["live"] = {**status["live"], "observedAt": timestamps.to_text(now)}
    return status


def refusal(
    before: Mapping[str, Any], generation: int, why: str, now: float
) -> dict[str, Any] | None:
    """The status of an input that cannot be used; None where the last one says it already.

    What runs goes on as it is: `why` tells the user what to change.
    """
    old = Status.model_validate(before)
    told = [Finding(READY, False, "InvalidSpec", why)]
    kept = {key: before[key] for key in ("selector", "workers", "dispatcher") if key in before}
    found = conditions(told, old.conditions, generation, timestamps.to_text(now))
    status = {
        **kept,
        "observedGeneration": generation,
        "conditions": [one.model_dump(by_alias=True) for one in found],
    }
    return None if Status.model_validate(status) == old else status


def _desired(snapshot: Snapshot, now: float) -> tuple[int, Decision | None]:
    spec = snapshot.resource.spec
    if spec.suspend:
        return 0, None
    scaling = spec.workers.autoscaling
    if scaling is None:
        return spec.workers.replicas, None
    bounds = Bounds(
        scaling.min_replicas,
        scaling.max_replicas,
        scaling.stabilization_window_seconds,
        scaling.paused,
        scaling.idle_ttl_seconds,
    )
    measured = snapshot.measured
    seen = Seen(
        need(measured, parallelism(snapshot.resource)),
        measured.consumers if measured else None,
        measured.useful_workers if measured else 0,
        ready_workers(snapshot),
    )
    decision = decide(_state(snapshot), bounds, seen, now)
    return decision.state.desired, decision


def _state(snapshot: Snapshot) -> State:
    """As the last decision left it; at first, what there is."""
    if snapshot.scaled is not None:
        return snapshot.scaled
    last = snapshot.status.autoscaling
    if last is None:
        spec = snapshot.live("Deployment", names.worker(snapshot.name)).get("spec") or {}
        return State(int(spec.get("replicas", snapshot.resource.spec.workers.replicas)))
    idle_since = timestamps.to_seconds(last.idle_since)
    return State(last.desired, timestamps.to_seconds(last.fewer_since), last.fewer, idle_since)


def _autoscaling(state: State | None) -> dict[str, Any] | None:
    if state is None:
        return None
    made: dict[str, Any] = {"desired": state.desired}
    if state.fewer_since is not None:
        made |= {"fewerSince": timestamps.to_text(state.fewer_since), "fewer": state.fewer}
    if state.idle_since is not None:
        made["idleSince"] = timestamps.to_text(state.idle_since)
    return made


def _as_wanted(snapshot: Snapshot, wanted: Manifest) -> bool:
    live = snapshot.live(wanted["kind"], wanted["metadata"]["name"])
    return bool(live) and contains(live, wanted)


def _costs(snapshot: Snapshot, desired: int) -> tuple[tuple[str, int], ...]:
    """Where workers are to go: those with the fewest open splits, so that little is made twice."""
    pods = snapshot.of(names.WORKER)
    deployment = snapshot.live("Deployment", names.worker(snapshot.name)).get("spec") or {}
    leaving = min(len(pods), int(deployment.get("replicas", 0))) - desired
    if leaving <= 0 or desired == 0:
        return ()
    streams = snapshot.measured.streams if snapshot.measured else {}

    def cost(pod: Pod) -> tuple[bool, int, str, str]:
        return (pod.ready, streams.get(pod.ip, 0), _reversed(pod.created), pod.name)

    first = sorted(pods, key=cost)[:leaving]
    return tuple((pod.name, _FIRST_TO_GO) for pod in first if pod.deletion_cost != _FIRST_TO_GO)


def _reversed(text: str) -> str:
    """A key by which later times come first."""
    return "".join(chr(0x7F - ord(character)) for character in text)


def _again(snapshot: Snapshot) -> float:
    if snapshot.measured and snapshot.measured.consumers:
        return look_again(snapshot.measured)
    ready = snapshot.live("Deployment", names.dispatcher(snapshot.name)).get("status") or {}
    waiting = any(not pod.ready for pod in snapshot.pods)
    if (
        ready.get("availableReplicas")
        or waiting
        or snapshot.resource.spec.dataset.source.config_map
    ):
        return WATCHED_SECONDS
    return QUIET_SECONDS
