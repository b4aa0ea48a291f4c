"""What an input asks of budgets, and what it says of the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from distributed_input.api.resource.status import Status
from distributed_input_operator.autoscaling.rates import Measured
from distributed_input_operator.budget.allocation import Grant
from distributed_input_operator.objects.snapshot import Pod
from distributed_input_operator.reconcile.claims import held, takes
from distributed_input_operator.reconcile.plan import plan, report
from tests.unit.distributed_input_operator.snapshots import NOW, after, snapshot

GIB = 1 << 30
SAID = (
    "3 of 9 workers asked for: the budget of research is spent; team/b loses 41 % more per worker"
)


def asked(found):
    """What the planner asks for."""
    seen = []

    def granted(ask):
        seen.append(ask)
        return Grant(ask.claim.wanted, ask.claim.wanted)

    plan(found, NOW, granted)
    return seen[0]


def status_of(found, made, now):
    """What is written."""
    status = report(found, made, [], now)
    assert status is not None
    return status


def limited(found):
    """A plan that gets three workers, and the status that it leads to."""
    made = plan(found, NOW, lambda _: Grant(3, 3, "research", SAID))
    return made, status_of(found, made, NOW)


def limit(status):
    """The condition that says why."""
    return next((c for c in status["conditions"] if c["type"] == "ScalingLimited"), None)


def test_an_ask_says_what_is_wanted_what_there_is_and_what_it_is_worth():
    found = snapshot(
        workers={
            "replicas": 9,
            "resources": {"requests": {"cpu": "1500m"}, "limits": {"memory": "2Gi"}},
        },
        trainers={
            "accelerator": "h100",
            "acceleratorsPerTrainer": 8,
            "weight": 2.0,
            "priority": 7,
        },
    )
    found = after(found, plan(found, NOW))
    pods = [
        Pod("w-1", "worker"),
        Pod("w-2", "worker", terminating=True),
        Pod("w-3", "worker", terminating=True, ended=True),
        Pod("d", "dispatcher"),
    ]
    ask = asked(replace(found, pods=tuple(pods), measured=Measured(consumers=4)))
    claim = ask.claim
    assert (claim.key, ask.accelerator, claim.priority) == (("team", "digits"), "h100", 7)
    assert (claim.wanted, claim.least, claim.held, claim.occupied) == (9, 1, 9, 2)
    assert claim.cost == 2 * 8 * 4
    assert claim.worker == (1, 1500, 2 * GIB)


def test_an_input_that_nobody_reads_yet_bids_as_if_one_did():
    claim = asked(snapshot(trainers={"acceleratorsPerTrainer": 8})).claim
    assert claim.cost == 8


def test_a_silent_dispatcher_makes_nobody_worth_less():
    told = Status.model_validate({"live": {"consumers": 4}})
    found = replace(snapshot(trainers={"acceleratorsPerTrainer": 8}), status=told)
    assert asked(found).claim.cost == 32
    assert asked(replace(found, measured=Measured(consumers=2))).claim.cost == 16


def test_what_is_needed_may_be_more_than_may_come_at_once():
    scaling = {"minReplicas": 1, "maxReplicas": 50}
    reading = Measured(consumers=1, demand=2000, busy_rate=100)
    found = replace(snapshot(workers={"autoscaling": scaling}), measured=reading)
    claim = asked(found).claim
    assert claim.needed is not None
    assert claim.needed > claim.wanted


def test_what_is_held_is_held_of_every_resource():
    found = snapshot(workers={"replicas": 3, "resources": {"requests": {"cpu": "500m"}}})
    live = after(found, plan(found, NOW)).objects["Deployment", "digits-worker"]
    pods = [Pod(name, "worker", takes=(1, 500, 512 << 20)) for name in "ab"]
    ask = held(live, pods, ("team", "digits"), {"team": "a"})
    assert ask is not None
    assert (ask.claim.held, ask.claim.occupied, ask.labels) == (3, 2, {"team": "a"})
    assert ask.claim.worker == takes(live)
    assert ask.claim.worker[1] == 500


def test_pods_that_were_larger_when_they_were_made_are_told():
    found = snapshot(workers={"replicas": 2, "resources": {"requests": {"cpu": "1"}}})
    sizes = [(1, 4000, 512 << 20), (1, 1000, 1 << 30), (1, 4000, 0)]
    pods = [Pod(f"w-{n}", "worker", takes=size) for n, size in enumerate(sizes)]
    assert asked(replace(found, pods=tuple(pods))).claim.excess == (0, 6000, 0)
    assert asked(replace(found, pods=tuple(pods[1:2]))).claim.excess == (0, 0, 512 << 20)


@pytest.mark.parametrize(("updated", "size", "excess"), [(2, 1100, 1100), (1, 1000, 1300)])
def test_pods_that_others_make_larger_are_what_a_worker_takes(updated, size, excess):
    found = snapshot(workers={"replicas": 2, "resources": {"requests": {"cpu": "1"}}})
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    status = {"replicas": 2, "updatedReplicas": updated}
    objects["Deployment", "digits-worker"] = {**live, "status": status}
    pods = [Pod(name, "worker", takes=(1, 1100, 0)) for name in "ab"]
    pods.append(Pod("c", "worker", takes=(1, 2100 if updated == 1 else 2200, 0), terminating=True))
    of_old = replace(found, objects=objects, pods=tuple(pods))
    claim = asked(of_old).claim
    assert (claim.worker[1], claim.excess[1]) == (size, excess)


@pytest.mark.parametrize(
    ("observed", "counted", "moving"), [(4, 2, False), (3, 2, True), (4, 1, True), (4, 3, True)]
)
def test_a_deployment_is_at_rest_once_it_counts_the_pods_that_there_are(observed, counted, moving):
    found = snapshot(workers={"replicas": 2})
    assert not asked(found).moving, "there is none"
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    status = {"observedGeneration": observed, "replicas": counted}
    live = {**live, "metadata": {**live["metadata"], "generation": 4}, "status": status}
    objects["Deployment", "digits-worker"] = live
    pods = [Pod("a", "worker"), Pod("b", "worker"), Pod("c", "worker", terminating=True)]
    assert asked(replace(found, objects=objects, pods=tuple(pods))).moving is moving


def test_a_deployment_that_nobody_has_looked_at_is_not_at_rest():
    found = snapshot(workers={"replicas": 2})
    objects = dict(after(found, plan(found, NOW)).objects)
    live = objects["Deployment", "digits-worker"]
    live = {**live, "metadata": {**live["metadata"], "generation": 1}}
    objects["Deployment", "digits-worker"] = live
    assert asked(replace(found, objects=objects)).moving, "its pods are about to be made"


def test_of_who_is_gone_pods_may_come_while_any_stays():
    key, pods = ("team", "digits"), [Pod("a", "worker", terminating=True), Pod("b", "worker")]
    found = [held({}, some, key, None) for some in (pods, pods[:1])]
    assert [one.moving for one in found if one] == [True, False]


def test_pods_whose_deployment_is_gone_tell_what_they_take():
    pods = [Pod("a", "worker", takes=(1, 500, 3)), Pod("b", "worker", takes=(1, 250, 4))]
    ask = held({}, pods, ("team", "digits"), None)
    assert ask is not None
    assert (ask.claim.wanted, ask.claim.occupied, ask.labels) == (0, 2, None)
    assert (ask.claim.worker, ask.claim.excess) == ((1, 500, 4), (0, 0, 0))
    assert held({}, [], ("team", "digits"), None) is None


def test_the_minimum_of_autoscaling_is_the_least():
    scaling = {"minReplicas": 3, "maxReplicas": 9}
    claim = asked(snapshot(workers={"autoscaling": scaling})).claim
    assert (claim.wanted, claim.least) == (3, 3)
    assert asked(snapshot(workers={"replicas": 0})).claim.least == 0


def test_what_other_containers_ask_for_counts():
    side = {"name": "side", "resources": {"requests": {"cpu": 1, "memory": "1Gi"}}}
    pod = {"spec": {"containers": [side, {"name": "plain"}, side]}}
    assert takes({"spec": {"template": pod}}) == (1, 2000, 2 * GIB)


def test_a_grant_is_what_the_deployment_gets_and_the_status_says_why():
    found = snapshot(workers={"replicas": 9})
    made, status = limited(found)
    (deployment,) = (
        one
        for one in made.objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "digits-worker"
    )
    assert deployment["spec"]["replicas"] == 3
    assert (status["workers"]["desired"], status["workers"]["asked"]) == (3, 9)
    assert (limit(status)["reason"], limit(status)["message"]) == ("BudgetSpent", SAID)


def test_another_rival_is_no_news():
    found = snapshot(workers={"replicas": 9})
    _, status = limited(found)
    found = replace(found, status=Status.model_validate(status))
    other = SAID.replace("team/b loses 41", "team/c loses 43")
    made = plan(found, NOW, lambda _: Grant(3, 3, "research", other))
    assert limit(report(found, made, [], NOW + 1) or status)["message"] == SAID
    fewer = other.replace("3 of 9", "2 of 9")
    made = plan(found, NOW, lambda _: Grant(2, 2, "research", fewer))
    assert limit(status_of(found, made, NOW + 1))["message"] == fewer


@pytest.mark.parametrize(("consumers", "ready"), [(0, "Idle"), (1, "DispatcherStarting")])
def test_an_idle_input_is_ready_for_the_first_that_reads(consumers, ready):
    scaling = {"maxReplicas": 9, "idleTTLSeconds": 60}
    found = snapshot(workers={"autoscaling": scaling})
    found = replace(found, measured=Measured(consumers=0))
    first = status_of(found, plan(found, NOW), NOW)
    assert first["autoscaling"]["idleSince"]
    found = replace(
        found, status=Status.model_validate(first), measured=Measured(consumers=consumers)
    )
    objects = dict(after(found, plan(found, NOW)).objects)
    place = ("Deployment", "digits-dispatcher")
    objects[place] = {**objects[place], "status": {"availableReplicas": 1 - consumers}}
    found = replace(found, objects=objects)
    made = plan(found, NOW + 61)
    status = status_of(found, made, NOW + 61)
    assert made.desired == (0 if consumers == 0 else 1)
    condition = next(c for c in status["conditions"] if c["type"] == "Ready")
    assert condition["reason"] == ready
    assert condition["status"] == ("True" if ready == "Idle" else "False")


def test_queue_labels_are_put_on_worker_pods():
    found = snapshot(workers={"replicas": 1})
    meta = found.resource.metadata.model_copy(
        update={"labels": {"kueue.x-k8s.io/queue-name": "team-queue", "mine": "x"}}
    )
    found = replace(found, resource=found.resource.model_copy(update={"metadata": meta}))
    for one in plan(found, NOW).objects:
        if one["kind"] == "Deployment":
            labels = one["spec"]["template"]["metadata"]["labels"]
            worker = one["metadata"]["name"] == "digits-worker"
            assert labels.get("kueue.x-k8s.io/queue-name") == ("team-queue" if worker else None)
            assert "mine" not in labels


@pytest.mark.parametrize(
    ("memory", "counted"),
    [
        ("1e9", 10**9),
        ("+2Gi", 2 << 30),
        ("lots", 0),
        ("NaN", 0),
        ("Infinity", 0),
        ("-5", 0),
        (True, 0),
        ("1e999999999", 1 << 62),
        (1.5e9, 1.5e9),
    ],
)
def test_what_a_pod_template_says_in_any_words_is_counted_or_left_to_the_api_server(
    memory, counted
):
    """A quantity that nobody can read is no reason not to look at the input at all."""
    side = {"name": "side", "resources": {"requests": {"memory": memory}}}
    found = snapshot(workers={"podTemplate": {"spec": {"containers": [side]}}})
    assert asked(found).claim.worker == (1, 250, 512 * (1 << 20) + counted)


@pytest.mark.parametrize("wrong", [{"resources": ["cpu"]}, {"resources": {"requests": "all"}}])
def test_a_pod_template_of_another_shape_is_left_to_the_api_server(wrong):
    found = snapshot(workers={"podTemplate": {"spec": {"containers": [{"name": "s", **wrong}]}}})
    assert asked(found).claim.worker == (1, 250, 512 * (1 << 20))
    odd = snapshot(workers={"podTemplate": {"spec": {"containers": "none", "initContainers": {}}}})
    assert asked(odd).claim.worker == (1, 0, 0)


def test_init_containers_count_as_the_scheduler_counts_them():
    def pod(*init, cpu=1):
        own = {"name": "worker", "resources": {"requests": {"cpu": cpu}}}
        return {"spec": {"template": {"spec": {"containers": [own], "initContainers": list(init)}}}}

    def one(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = one(2, restartPolicy="Always")
    assert takes(pod(one(4)))[1] == 4000, "it runs before the others"
    assert takes(pod(sidecar))[1] == 3000, "it runs beside them"
    assert takes(pod(sidecar, one(4)))[1] == 6000
    assert takes(pod(one(4), sidecar, cpu=3))[1] == 5000
