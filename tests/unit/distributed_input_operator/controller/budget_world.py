"""Inputs of one budget, their Deployments and pods, and an operator that divides the budget.

Each action is one step of one party, so that the steps can come in any order:

    ask         a reconciliation asks the ledger for the number that is wanted now; 0 withdraws
    write       the same reconciliation writes what was granted to the Deployment
    controller  the ReplicaSet controller reads the number, and creates or deletes one pod
    end         a terminating pod is gone; it never comes back
    reallocate  the ledger divides the budget again
    restart     another operator leads; what was granted but not written is lost
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator, Sequence
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
SIZE = (1, 0, 0)
"""What one worker uses."""
Action = tuple[str, str, int]
"""What happens, to which input, and the number that it asks for."""


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


class World:
    """Some inputs in one budget. The first has the lowest priority."""

    def __init__(self, names: Sequence[str], limit: int) -> None:
        self.limit = limit
        self.inputs = {name: Workers() for name in names}
        self._priorities = {name: number for number, name in enumerate(names)}
        self._policy = PolicySpec.model_validate(
            {"budgets": [{"name": "all", "limits": {"workers": limit}}]}
        )
        self._restart()

    def _restart(self) -> None:
        self.ledger = Ledger()
        self.ledger.set_policy(self._policy)
        for name, one in self.inputs.items():
            self.inputs[name] = one._replace(granted=None)
            if request := one.found(("t", name)):
                self.ledger.complete(request)

    def copy(self) -> World:
        """Return an independent copy. The values in the ledger's collections cannot change."""
        other = copy(self)
        other.inputs = dict(self.inputs)
        other.ledger = copy(self.ledger)
        for name, one in vars(self.ledger).items():
            if type(one) in (dict, set):
                setattr(other.ledger, name, one.copy())
        return other

    def state(self) -> tuple[object, ...]:
        """Return all that decides what can happen next."""
        ledger = self.ledger
        return (
            *self.inputs.values(),
            *((one.claim, one.scaling) for _, one in sorted(ledger._requests.items())),
            *(one for _, one in sorted(ledger._claims.items())),
            *((one.workers, one.target) for _, one in sorted(ledger._grants.items())),
            ledger.outdated,
            *sorted(ledger._unsettled),
            *sorted(ledger._short),
        )

    def actions(self, numbers: Sequence[int]) -> Iterator[Action]:
        """Yield what can happen. `numbers`: what inputs may ask for."""
        for name, one in self.inputs.items():
            if one.granted is None:
                yield from (("ask", name, number) for number in numbers)
            else:
                yield "write", name, 0
            if one.waits_for_controller:
                yield "controller", name, 0
            if one.terminating:
                yield "end", name, 0
        yield "restart", "", 0
        if self.ledger.outdated:
            yield "reallocate", "", 0

    def act(self, what: str, name: str = "", number: int = 0) -> None:
        """Let one thing happen."""
        match what:
            case "ask":
                one = self.inputs[name]._replace(wanted=number)
                request = one.request(("t", name), self._priorities[name])
                granted = self.ledger.request(request).workers
                self.inputs[name] = one._replace(granted=granted)
            case "write":
                self.inputs[name] = self.inputs[name].written()
            case "controller":
                self.inputs[name] = self.inputs[name].controlled()
            case "end":
                one = self.inputs[name]
                self.inputs[name] = one._replace(terminating=one.terminating - 1)
            case "reallocate":
                self.ledger.reallocate()
            case _:
                self._restart()

    def settle(self) -> None:
        """Do one round: each party does all that it has to do, and the pods end."""
        for name, one in self.inputs.items():
            if one.granted is not None:
                self.act("write", name)
            self._reconcile(name)
            while self.inputs[name].waits_for_controller:
                self.act("controller", name)
            self.inputs[name] = self.inputs[name]._replace(terminating=0)
            self._reconcile(name)
        if self.ledger.outdated:
            self.ledger.reallocate()

    def _reconcile(self, name: str) -> None:
        self.act("ask", name, self.inputs[name].wanted)
        self.act("write", name)

    @property
    def pods(self) -> int:
        """The number of all pods, terminating ones included."""
        return sum(one.running + one.terminating for one in self.inputs.values())

    def is_settled(self) -> bool:
        """Return whether the budget is used up, or all have what they want, and no pod is left."""
        replicas = sum(one.replicas for one in self.inputs.values())
        wanted = sum(one.wanted for one in self.inputs.values())
        return replicas == min(self.limit, wanted) == self.pods

    def fault(self, rounds: int, good: set[object] | None = None) -> str:
        """Return what is wrong, or what is still wrong after some rounds without changes.

        `good` gets the states from which the world settles in one round less.
        """
        if self.pods > self.limit:
            return "too many pods"
        world, known = self.copy(), set() if good is None else good
        for _ in range(rounds):
            world.settle()
            if (state := world.state()) in known:
                return ""
            if world.is_settled():
                known.add(state)
                return ""
        return "not settled"


WEIGHTS = {"ask": 0.7, "restart": 0.05}
"""How often a random run takes an action that is possible. Default: 1."""


def random_fault(seed: int, names: str, limit: int, steps: int) -> str:
    """Let random actions happen. Return what is wrong, and the actions. Empty: nothing."""
    chance, world, done = random.Random(seed), World(names, limit), []
    wanted = dict.fromkeys(names, 0)
    for _ in range(steps):
        if chance.random() < 0.1:
            wanted[chance.choice(names)] = chance.choice((0, chance.randint(1, limit + 3)))
        actions = [(what, name, wanted.get(name, 0)) for what, name, _ in world.actions((0,))]
        (action,) = chance.choices(actions, [WEIGHTS.get(what, 1) for what, *_ in actions])
        world.act(*action)
        done.append(action)
        if world.pods > limit:
            break
    fault = world.fault(ROUNDS)
    return f"{fault}: {done}" if fault else ""


def exhaustive_fault(names: str, limit: int, most: int | None = None) -> tuple[str, int]:
    """Let all actions happen in all orders.

    Returns:
        What is wrong, with the fewest actions that lead to it (empty: nothing), and the number of
        states that were reached. Each state was checked.
    """
    first = World(names, limit)
    parents: dict[object, tuple[object, Action] | None] = {first.state(): None}
    good: set[object] = set()
    waiting = deque([first])
    while waiting and (most is None or len(parents) < most):
        world = waiting.popleft()
        state: object = world.state()
        if fault := world.fault(ROUNDS, good):
            done: list[Action] = []
            while (parent := parents[state]) is not None:
                state = parent[0]
                done.insert(0, parent[1])
            return f"{fault}: {done}", len(parents)
        for action in world.actions((0, limit)):
            other = world.copy()
            other.act(*action)
            if (reached := other.state()) not in parents:
                parents[reached] = state, action
                waiting.append(other)
    return "", len(parents)
