"""Inputs of one budget, their Deployments and pods, and an operator that divides the budget.

Each action is one step of one party, so that the steps can come in any order:

    ask         a reconciliation asks the ledger for the number that is wanted; 0 withdraws
    write       the same reconciliation writes what was granted to the Deployment
    controller  the ReplicaSet controller reads the number, and creates or deletes one pod
    end         a terminating pod is gone; it never comes back
    reallocate  the ledger divides the budget again
    restart     another operator leads; what was granted but not written is lost
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from distributed_input.api.resource.policy import PolicySpec
from distributed_input_operator.budget.claim import Claim, InputKey, WorkerRequest
from distributed_input_operator.controller.ledger import Ledger
from distributed_input_operator.objects.snapshot import Pod
from distributed_input_operator.reconcile.claims import existing_request

ROUNDS = 3
"""Rounds after the last change in which the world settles."""
RECONCILIATIONS = 2
"""Reconciliations of an input in one round: its pods cause one when they are gone."""
SIZE = (1, 0, 0)
"""What one worker uses."""


class Workers(NamedTuple):
    """The workers of one input."""

    wanted: int = 0
    granted: int | None = None
    """What is about to be written. None: no reconciliation runs."""
    replicas: int = 0
    """The number in the Deployment."""
    read: bool = True
    """Whether the ReplicaSet controller has read this number."""
    goal: int = 0
    """The number that it read. It reads the next one when it has created or deleted all pods."""
    counted: int = 0
    """The number of pods in the Deployment's status, written when the goal is reached."""
    running: int = 0
    terminating: int = 0

    def written(self) -> Workers:
        """Return the workers after what was granted is written."""
        replicas = self.granted or 0
        read = self.read and replicas == self.replicas
        return self._replace(granted=None, replicas=replicas, read=read)

    def controlled(self) -> Workers:
        """Return the workers after one step of the ReplicaSet controller."""
        one = self
        if one.running == one.goal:
            one = one._replace(goal=one.replicas, read=True)
        if one.running < one.goal:
            one = one._replace(running=one.running + 1)
        elif one.running > one.goal:
            one = one._replace(running=one.running - 1, terminating=one.terminating + 1)
        return one._replace(counted=one.running) if one.running == one.goal else one

    def ended(self) -> Workers:
        """Return the workers after a terminating pod is gone."""
        return self._replace(terminating=self.terminating - 1)

    def rested(self) -> Workers:
        """Return the workers after all that can happen to them without a reconciliation."""
        one = self if self.granted is None else self.written()
        while one.waits_for_controller:
            one = one.controlled()
        return one._replace(terminating=0)

    @property
    def pods(self) -> int:
        """The number of pods, terminating ones included."""
        return self.running + self.terminating

    @property
    def waits_for_controller(self) -> bool:
        """Whether the ReplicaSet controller has something to do."""
        return not self.read or self.running != self.goal

    def request(self, key: InputKey, priority: int) -> WorkerRequest:
        """Return the request of a reconciliation."""
        status = self.read, self.counted, self.running, self.terminating
        return _request(key, self.wanted, priority, self.replicas, *status)

    def found(self, key: InputKey) -> WorkerRequest | None:
        """Return what a new operator finds of it. None: nothing."""
        return _found(key, self.replicas, self.read, self.counted, self.running, self.terminating)


@cache
def _found(
    key: InputKey, replicas: int, read: bool, counted: int, running: int, terminating: int
) -> WorkerRequest | None:
    live = {
        "metadata": {"generation": 2},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": []}}},
        "status": {"observedGeneration": 2 if read else 1, "replicas": counted},
    }
    pods = [Pod(f"pod-{number}", "worker", takes=SIZE) for number in range(running)]
    pods += [
        Pod(f"end-{number}", "worker", takes=SIZE, terminating=True)
        for number in range(terminating)
    ]
    return existing_request(live, pods, key, {})


@cache
def _request(key: InputKey, wanted: int, priority: int, *state: int) -> WorkerRequest:
    found = _found(key, *state) or WorkerRequest(Claim(key, 0))
    minimum = min(1, wanted)
    claim = replace(found.claim, requested=wanted, minimum=minimum, priority=priority)
    return replace(found, claim=replace(claim, started=True))


def contents(ledger: Ledger) -> tuple[object, ...]:
    """Return all that decides what a ledger of these inputs does next."""
    requests = sorted(ledger._requests.items())
    return (
        *((key, one.claim, one.scaling, one.incomplete) for key, one in requests),
        *(claim for _, claim in sorted(ledger._claims.items())),
        *((one.workers, one.dispatcher) for _, one in sorted(ledger._grants.items())),
        *ledger._reserved.values(),
        ledger.outdated,
        frozenset(ledger._unsettled),
        frozenset(ledger._short),
    )


def copied(ledger: Ledger) -> Ledger:
    """Return an independent copy. The values in the ledger's collections cannot change."""
    other = copy(ledger)
    for name, one in vars(ledger).items():
        if type(one) in (dict, set):
            setattr(other, name, one.copy())
    return other


@cache
def _policy(limit: int) -> PolicySpec:
    return PolicySpec.model_validate({"budgets": [{"name": "all", "limits": {"workers": limit}}]})


def new_ledger(limit: int, found: Iterable[WorkerRequest | None]) -> Ledger:
    """Return the ledger of a new operator.

    Args:
        limit: workers in the budget of all inputs.
        found: what it finds of each input.
    """
    ledger = Ledger()
    ledger.set_policy(_policy(limit))
    for request in found:
        if request:
            ledger.complete(request)
    return ledger


def is_settled(inputs: Iterable[Workers], limit: int) -> bool:
    """Return whether the budget is used up, or all have what they want, and no pod is left."""
    known = list(inputs)
    replicas, wanted = sum(one.replicas for one in known), sum(one.wanted for one in known)
    return replicas == min(limit, wanted) == sum(one.pods for one in known)
