"""A new leader and the budgets: what is there counts before anyone was looked at."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input.api.resource.input import API_VERSION, KIND
from distributed_input.api.resource.policy import POLICY_KIND, POLICY_NAME
from distributed_input_operator.budget.claim import Claim, WorkerRequest
from distributed_input_operator.controller import budgets
from distributed_input_operator.controller.dispatchers import Dispatchers
from distributed_input_operator.controller.ledger import Ledger
from distributed_input_operator.controller.observe import Sources
from distributed_input_operator.controller.tokens import Tokens
from distributed_input_operator.kube.store import Store
from tests.unit.distributed_input_operator.snapshots import SETTINGS

LIMIT = 10


def obj(kind: str, name: str, of: str = "", **content: Any) -> dict[str, Any]:
    """An object as a watch tells it; `of`: the input that it belongs to."""
    labels = names.labels(of, names.WORKER) if of else {}
    meta = {"name": name, "namespace": "team", "uid": f"u-{name}", "labels": labels}
    meta["resourceVersion"] = "7"
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": meta, **content}


POD = {"containers": [{"name": "worker", "resources": {"requests": {"cpu": "2"}}}]}


def workers(of: str, replicas: int, pods: int) -> list[dict[str, Any]]:
    """What an input has."""
    spec = {"replicas": replicas, "template": {"spec": POD}}
    made = [obj("Deployment", names.worker(of), of, spec=spec)]
    return made + [obj("Pod", f"{of}-{number}", of, spec=POD) for number in range(pods)]


def started(*there: dict[str, Any], **budget: Any) -> Ledger:
    """The ledger after a start with these objects."""
    store, api = Store(), None
    of_all = {"name": "all", "limits": {"workers": LIMIT}, **budget}
    policy = obj(POLICY_KIND, POLICY_NAME, spec={"budgets": [of_all]})
    for one in (policy, *there):
        store.put(one)
    sources = Sources(api, store, Tokens(api), Dispatchers(), SETTINGS)  # type: ignore[arg-type]
    budgets.enter_all(sources)
    sources.ledger.reallocate()
    return sources.ledger


def granted(ledger: Ledger, wanted: int) -> int:
    """To a new input, at once."""
    return ledger.request(WorkerRequest(Claim(("team", "new"), wanted, 1))).workers


CASES = [(4, 4, 6), (4, 0, 6), (4, 7, 3), (0, 2, 8)]


@pytest.mark.parametrize(("replicas", "pods", "rest"), CASES)
def test_what_an_input_has_or_is_about_to_have_is_its_own(replicas, pods, rest):
    there = [obj(KIND, "old"), *workers("old", replicas, pods)]
    assert granted(started(*there), rest) == rest
    assert granted(started(*there), rest + 1) == 0, "not at once: all are weighed first"


@pytest.mark.parametrize(("replicas", "pods", "rest"), CASES)
def test_so_is_what_is_still_there_of_an_input_that_is_gone(replicas, pods, rest):
    there = workers("old", replicas, pods)
    assert granted(started(*there), rest + 1) == 0
    ledger = started(*there)
    ledger.release(("team", "old"), None)
    assert granted(ledger, LIMIT) == LIMIT


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("budget", [{}, {"selector": {"of": "us"}}])
def test_pods_that_nothing_owns_any_more_count_until_they_are_gone(budget, known):
    """The Deployment goes first, and with the input its labels: which budgets is not known."""
    there = workers("old", 0, 4)[1:]
    if known:
        old = obj(KIND, "old")
        old["metadata"]["labels"] = {"of": "us"}
        there.append(old)
    ledger = started(*there, **budget)
    assert ledger.usage()[0].used == (4, 8000, 0)
    new = WorkerRequest(Claim(("team", "new"), 7, 1), labels={"of": "us"})
    assert ledger.request(new).workers == 0
