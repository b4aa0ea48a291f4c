"""A new leader and the budgets: existing workers count before their inputs are reconciled.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input.api.resource.policy import POLICY_KIND, POLICY_NAME, PolicySpec
from distributed_input_operator.budget.claim import Claim, WorkerRequest
from distributed_input_operator.controller import budgets
from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.ledger import Ledger
from distributed_input_operator.kube.store import Store
from distributed_input_operator.objects.kind import Kind
from tests.unit.distributed_input_operator.contexts import context_of

LIMIT = 10
GPUS = ("nvidia.com/gpu",)


def obj(kind: str, name: str, of: str = "", **content: Any) -> dict[str, Any]:
    """Return an object as a watch reports it. `of`: the input that it belongs to."""
    labels = names.labels(of, names.WORKER) if of else {}
    meta = {"name": name, "namespace": "team", "uid": f"u-{name}", "labels": labels}
    meta["resourceVersion"] = "7"
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, **content}


POD = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "2"}}}]}


def workers(of: str, replicas: int, pods: int) -> list[dict[str, Any]]:
    """Return the workers of an input."""
    spec = {"replicas": replicas, "template": {"spec": POD}}
    status = {"replicas": pods}
    objects = [obj("Deployment", names.worker(of), of, spec=spec, status=status)]
    return objects + [obj("Pod", f"{of}-{number}", of, spec=POD) for number in range(pods)]


def started(*existing: dict[str, Any], **budget: Any) -> Ledger:
    """Return the ledger of a new leader that finds these objects."""
    store = Store()
    of_all = {"name": "all", "limits": {"workers": LIMIT}, **budget}
    policy = obj(POLICY_KIND, POLICY_NAME, spec={"budgets": [of_all]})
    for one in (policy, *existing):
        store.put(one)
    context = context_of(None, store)
    asyncio.run(budgets.restore(context))
    context.ledger.reallocate()
    return context.ledger


def granted(ledger: Ledger, wanted: int) -> int:
    """Return what a new input gets at once."""
    return ledger.request(WorkerRequest(Claim(("team", "new"), wanted, 1))).workers


CASES = [(4, 4, 6), (4, 0, 6), (4, 7, 3), (0, 2, 8)]


@pytest.mark.parametrize(("replicas", "pods", "rest"), CASES)
def test_existing_and_starting_workers_of_an_input_are_reserved(replicas, pods, rest):
    existing = [obj(KIND, "old"), *workers("old", replicas, pods)]
    assert granted(started(*existing), rest) == rest
    assert granted(started(*existing), rest + 1) == 0, "not before the reallocation"


@pytest.mark.parametrize(("replicas", "pods", "rest"), CASES)
def test_remaining_workers_of_a_deleted_input_are_reserved(replicas, pods, rest):
    existing = workers("old", replicas, pods)
    assert granted(started(*existing), rest + 1) == 0
    ledger = started(*existing)
    ledger.release(("team", "old"), None)
    ledger.reallocate()
    assert granted(ledger, LIMIT) == LIMIT


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("budget", [{}, {"selector": {"matchLabels": {"of": "us"}}}])
def test_pods_without_an_owner_count_until_they_are_gone(budget, known):
    """The Deployment is deleted first. The labels go with the input, so its budgets are unknown."""
    existing = workers("old", 0, 4)[1:]
    if known:
        old = obj(KIND, "old")
        old["metadata"]["labels"] = {"of": "us"}
        existing.append(old)
    ledger = started(*existing, **budget)
    assert ledger.usage()[0].used == (4, 8000, 0)
    new = WorkerRequest(Claim(("team", "new"), 7, 1), labels={"of": "us"})
    assert ledger.request(new).workers == 0


CHANGES = [
    {"modules": ["digits"]},
    {"priorityClasses": [{"name": "high", "value": 1}]},
    {"budgets": [{"name": "a", "namespaceSelector": {"matchLabels": {"of": "us"}}}]},
]


@pytest.mark.parametrize("change", CHANGES)
def test_all_inputs_are_reconciled_when_a_rule_for_inputs_changes(change):
    store = Store()
    context = context_of(None, store)
    store.put(obj(KIND, "forbidden"))

    async def changed() -> set[Any]:
        found: asyncio.Queue[Any] = asyncio.Queue()
        task = asyncio.create_task(budgets.reallocate_forever(context, found.put_nowait))
        await asyncio.sleep(0)
        context.ledger.set_policy(PolicySpec.model_validate(change))
        try:
            return {await asyncio.wait_for(found.get(), 20) for _ in range(2)}
        finally:
            task.cancel()

    assert asyncio.run(changed()) == {("team", "forbidden"), budgets.POLICY_KEY}


class ReplicaSets:
    """An API server that has ReplicaSets, and the labels of namespaces."""

    def __init__(self) -> None:
        self.found, self.requests = [replica_set()], 0

    async def objects(self, kind: Kind, namespace: str, selector: str) -> AsyncIterator[Any]:
        self.requests += 1
        assert (kind.kind, namespace) == ("ReplicaSet", "team")
        for one in self.found:
            labels = {f"{key}={value}" for key, value in one["metadata"]["labels"].items()}
            if labels.issuperset(selector.split(",")):
                yield one

    async def get(self, *_: object) -> dict[str, Any]:
        return {"metadata": {"labels": {"team": "them"}}}


def replica_set(
    owner: str = names.worker("old"), component: str = names.WORKER, replicas: int = 4
) -> dict[str, Any]:
    """Return a ReplicaSet that creates pods for the workers of "old", or almost one."""
    labels, owners = names.labels("old", component), [{"kind": "Deployment", "name": owner}]
    meta = {"name": "set", "labels": labels, "ownerReferences": owners}
    return {"metadata": meta, "spec": {"replicas": replicas}}


def deleted_context(*existing: dict[str, Any]) -> tuple[ControllerContext, ReplicaSets]:
    """Return a context with a budget that knows the input "old", which is deleted since."""
    api, store = ReplicaSets(), Store()
    context = context_of(api, store)
    budget = {"name": "all", "limits": {"workers": LIMIT}}
    context.ledger.set_policy(PolicySpec.model_validate({"budgets": [budget]}))
    context.ledger.reallocate()
    for one in existing:
        store.put(one)
    return context, api


OLD = ("team", "old")


def release(context: ControllerContext, now: float) -> float | None:
    found = asyncio.run(budgets.release(context, OLD, now))
    context.ledger.reallocate()
    return found


def drop(context: ControllerContext, kind: str, name: str) -> None:
    uid = f"u-{name}"
    meta = {"name": name, "namespace": "team", "uid": uid, "labels": names.labels("old")}
    context.store.drop({"kind": kind, "metadata": meta})


def test_a_replica_set_without_a_deployment_keeps_what_its_pods_will_use():
    """The garbage collector is slow, and no pod was created before the Deployment is gone."""
    context, api = deleted_context(*workers("old", 4, 0))
    context.ledger.request(WorkerRequest(Claim(OLD, 4, 1), labels={}, scaling=True))
    assert release(context, 100.0) is None, "events follow while the Deployment exists"
    drop(context, "Deployment", names.worker("old"))
    for now in (101.0, 200.0):
        assert release(context, now) == 1.0
        assert context.ledger.usage()[0].used[0] == 4
    api.found = []
    assert release(context, 201.0) == 1.0
    assert context.ledger.usage()[0].used[0] == 4, "the controller finishes what it has begun"
    context.store.put(obj("Pod", "late", "old", spec=POD))
    assert release(context, 210.0), "a pod was created after all"
    late = obj("Pod", "late", "old", spec=POD)
    late["metadata"] |= {"deletionTimestamp": "now", "resourceVersion": "8"}
    context.store.put(late)
    assert release(context, 210.0 + budgets.SETTLE_SECONDS / 2)
    assert context.ledger.usage()[0].used[0] == 4
    assert release(context, 210.0 + budgets.SETTLE_SECONDS) is None
    assert context.ledger.usage()[0].used[0] == 1
    drop(context, "Pod", "late")
    assert release(context, 230.0) is None
    assert (context.ledger.usage()[0].inputs, context.settling) == (0, {})


def test_a_grant_that_no_pod_has_used_yet_counts_after_the_deletion():
    context, _ = deleted_context(*workers("old", 2, 2)[1:])
    context.ledger.request(WorkerRequest(Claim(OLD, 6, 1, replicas=2)))
    assert release(context, 100.0) == 1.0
    assert context.ledger.usage()[0].used[0] == 6


def test_an_input_whose_pods_were_all_created_releases_each_pod_at_once():
    context, api = deleted_context(*workers("old", 2, 2)[1:])
    context.ledger.request(WorkerRequest(Claim(OLD, 2, 1, replicas=2)))
    for left in (2, 1, 0):
        assert release(context, 100.0) is None
        assert context.ledger.usage()[0].used[0] == left
        drop(context, "Pod", f"old-{left - 1}")
    assert api.requests == 0


def settling_context(*found: dict[str, Any]) -> ControllerContext:
    """Return a context whose deleted input "old" has a grant that no pod has used yet."""
    context, api = deleted_context()
    api.found = list(found)
    context.ledger.request(WorkerRequest(Claim(OLD, 4, 1), labels={}, scaling=True))
    return context


@pytest.mark.parametrize(
    "other",
    [{"owner": "other"}, {"component": names.DISPATCHER}, {"replicas": 0}],
    ids=["owner", "component", "replicas"],
)
def test_a_replica_set_that_creates_no_workers_keeps_nothing(other):
    context = settling_context(replica_set(**other))
    assert release(context, 100.0)
    assert release(context, 100.0 + budgets.SETTLE_SECONDS) is None
    assert context.ledger.usage()[0].inputs == 0


def test_a_replica_set_keeps_nothing_for_ever(caplog):
    context = settling_context(replica_set())
    assert release(context, 100.0)
    assert release(context, 99.0 + budgets.MAX_SETTLE_SECONDS)
    assert context.ledger.usage()[0].used[0] == 4
    assert release(context, 100.0 + budgets.MAX_SETTLE_SECONDS) is None
    assert (context.ledger.usage()[0].inputs, context.settling) == (0, {})
    assert "team/old: its pods, or a ReplicaSet" in caplog.text


def put_policy(context: ControllerContext, version: int, *found: dict[str, Any]) -> None:
    """Store a policy, as its watch does."""
    changed = obj(POLICY_KIND, POLICY_NAME, spec={"budgets": list(found)})
    changed["metadata"] |= {"resourceVersion": str(version), "generation": version}
    context.store.put(changed)


OF_US = {
    "name": "us",
    "namespaceSelector": {"matchLabels": {"team": "us"}},
    "limits": {"workers": 1},
}
REST = {"name": "rest", "appliesTo": "OtherInputs", "limits": {"workers": LIMIT}}
OF_THEM = {
    "name": "them",
    "namespaceSelector": {"matchLabels": {"team": "them"}},
    "limits": {"workers": LIMIT},
}


def inputs(context: ControllerContext) -> dict[str, int]:
    return {one.budget.name: one.inputs for one in context.ledger.usage()}


def test_a_new_leader_knows_the_labels_of_namespaces_before_it_reallocates():
    context, _ = deleted_context(obj(KIND, "old"), *workers("old", 3, 3))
    put_policy(context, 8, OF_US, OF_THEM, REST)
    asyncio.run(budgets.restore(context))
    assert inputs(context) == {"us": 0, "them": 1, "rest": 0}
    context.ledger.reallocate()
    assert context.ledger._grants[OLD].workers == 3


def test_a_policy_that_begins_to_select_namespaces_knows_their_labels():
    context, _ = deleted_context(obj(KIND, "old"), *workers("old", 3, 3))
    asyncio.run(budgets.restore(context))
    put_policy(context, 8, OF_US, OF_THEM, REST)
    asyncio.run(budgets._set_policy(context))
    assert inputs(context) == {"us": 0, "them": 1, "rest": 0}


def test_a_new_resource_changes_nothing_else_of_known_and_deleted_inputs():
    kept = obj(KIND, "kept")
    context, api = deleted_context(kept, *workers("kept", 2, 2))
    api.found = []
    context.ledger.request(WorkerRequest(Claim(OLD, 4, 1), labels={"of": "us"}, scaling=True))
    known = WorkerRequest(Claim(("team", "kept"), 3, 1, 2, worker_size=(1, 2000, 0)))
    context.ledger.request(known)
    late = obj("Pod", "late", "old", spec=POD)
    context.store.put(late)
    limits = {"workers": LIMIT, "resources": {GPUS[0]: 7}}
    put_policy(context, 8, {"name": "all", "limits": limits})
    asyncio.run(budgets._set_policy(context))
    assert context.ledger.may_create(OLD)
    assert context.ledger.usage()[0].used[0] == 4 + 3, "a deleted input, and a grant"
    assert context.ledger.usage()[0].requested == 4 + 3


@pytest.mark.parametrize(
    "budget",
    [{"limits": 7}, {"selector": {"matchExpressions": [{"key": "a", "operator": "Later"}]}}],
)
def test_a_new_leader_with_an_invalid_policy_grants_nothing_more(budget):
    """A policy of a newer release may be one that this operator cannot read."""
    store = Store()
    invalid = obj(POLICY_KIND, POLICY_NAME, spec={"budgets": [{"name": "all", **budget}]})
    for one in (invalid, obj(KIND, "old"), *workers("old", 3, 3)):
        store.put(one)
    context = context_of(None, store)
    asyncio.run(budgets.restore(context))
    assert granted(context.ledger, 1) == 0
    old = WorkerRequest(Claim(("team", "old"), 8, 1, replicas=3), labels={})
    assert context.ledger.request(old).workers == 3
    valid = obj(POLICY_KIND, POLICY_NAME, spec={})
    valid["metadata"]["resourceVersion"] = "8"
    store.put(valid)
    asyncio.run(budgets.restore(context))
    context.ledger.reallocate()
    assert context.ledger.request(old).workers == 8


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"budgets": [{}]}, "spec.budgets[0].name: is missing: set it to text, for example 're"),
        ({"budgets": [{"name": "a", "limits": 7}]}, "a mapping with the fields workers, resources"),
        ({"caps": {"priority": "7"}}, 'from -1000 to 1000, for example 0, not the text "7": rem'),
    ],
)
def test_the_errors_of_a_policy_are_those_of_its_own_fields(spec, text):
    """The fields of an input have other values."""
    context, _ = deleted_context()
    context.store.put(obj(POLICY_KIND, POLICY_NAME, spec=spec))
    assert text in asyncio.run(budgets._set_policy(context))


def request(name: str, requested: int, replicas: int = 0, **more: Any) -> WorkerRequest:
    return WorkerRequest(Claim(("t", name), requested, 1, replicas, **more))


def remains(name: str, pods: int) -> WorkerRequest:
    return WorkerRequest(Claim(("t", name), 0, leaving=pods), labels=None)


def test_labels_of_the_namespace_select_budgets_also_of_a_deleted_input():
    ledger = Ledger()
    selector = {"team": "a"}
    budget = {"name": "a", "namespaceSelector": {"matchLabels": selector}, "limits": {"workers": 3}}
    ledger.set_policy(PolicySpec.model_validate({"budgets": [budget]}))
    ledger.request(replace(request("in", 3, 3), namespace_labels=selector))
    ledger.request(replace(request("out", 3, 3), namespace_labels={"team": "b"}))
    assert ledger.usage()[0].used[0] == 3
    ledger.release(("t", "out"), remains("out", 3))
    assert ledger.usage()[0].used[0] == 3, "its namespace is still known"
    ledger.release(("t", "in"), remains("in", 2))
    assert ledger.usage()[0].used[0] == 2


def test_without_a_readable_policy_nothing_grows_and_everything_stays():
    ledger = Ledger()
    ledger.hold()
    kept = ledger.request(request("a", 9, replicas=4))
    assert (kept.workers, "the InputPolicy cannot be used" in kept.message) == (4, True)
    assert ledger.request(request("new", 2)).workers == 0
    fewer = ledger.request(request("a", 3, replicas=4))
    assert (fewer.workers, fewer.message) == (3, "")
    assert not ledger.reallocate()
    ledger.set_policy(PolicySpec())
    assert ledger.outdated, "a policy can be used again, even if it has no limits"
    assert ledger.reallocate() == [("t", "new")]
    assert ledger.request(request("a", 9, replicas=3)).workers == 9


def test_dispatchers_and_the_resources_of_the_policy_count_after_a_change():
    """A policy that names a resource counts what inputs have of it already."""
    gpus = {"resources": {"requests": {"cpu": "2", "nvidia.com/gpu": "3"}}}
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"name": "worker", **gpus}]}}}
    first = {"replicas": 1, "template": {"spec": POD}}
    context, _ = deleted_context(
        obj(KIND, "old"),
        obj("Deployment", names.worker("old"), "old", spec=spec),
        obj("Deployment", names.dispatcher("old"), "old", spec=first),
    )
    limits = {"workers": LIMIT, "resources": {"nvidia.com/gpu": 7}}
    named = obj(POLICY_KIND, POLICY_NAME, spec={"budgets": [{"name": "all", "limits": limits}]})
    context.store.put(named)
    asyncio.run(budgets.restore(context))
    assert context.ledger.usage()[0].used == (2, 6000, 0, 6)
    new = Claim(("t", "more"), 1, 1, worker_size=(1, 0, 0, 2))
    assert context.ledger.request(WorkerRequest(new, resources=GPUS)).workers == 0
    other = {"name": "all", "limits": {"resources": {"example.com/fpga": 7}}}
    context.ledger.set_policy(PolicySpec.model_validate({"budgets": [other]}))
    assert context.ledger.usage()[0].used[3] == 0, "its GPUs are no FPGAs"
