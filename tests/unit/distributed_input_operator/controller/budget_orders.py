"""All orders of the actions of `budget_world`, for a few workers.

What decides the next step is one value, a state: the workers of each input, and the number of a
ledger. Ledgers with equal contents have one number. The ledger's own code runs once for each
number and request.

Writes, controllers and the ends of pods change the workers of one input and nothing else, and only
`ask` and `restart` read them. So they can happen right before the next of these two: a state stands
for all that the inputs' own steps still reach, and the pods of all of it are counted. `alone=True`
takes each of these steps alone, which shows that no state is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Sequence
from functools import cache
from itertools import product
from typing import NamedTuple

from distributed_input_operator.controller.ledger import Ledger
from tests.unit.distributed_input_operator.controller.budget_world import (
    RECONCILIATIONS,
    ROUNDS,
    Workers,
    contents,
    copied,
    is_settled,
    new_ledger,
)

Inputs = tuple[Workers, ...]
Steps = frozenset[Workers] | tuple[Workers, ...]


class State(NamedTuple):
    """What decides what can happen next."""

    inputs: Inputs
    ledger: int
    """The number of the ledger."""


class Found(NamedTuple):
    """What a search found."""

    fault: str
    """What is wrong, and the fewest actions that lead to it. Empty: nothing."""
    states: Collection[State]
    transitions: int


@cache
def own_steps(one: Workers) -> frozenset[Workers]:
    """Return all workers that the own steps of an input reach, these included."""
    reached, waiting = {one}, [one]
    while waiting:
        new = set(_next(waiting.pop())) - reached
        reached |= new
        waiting.extend(new)
    return frozenset(reached)


def _next(one: Workers) -> Iterator[Workers]:
    if one.granted is not None:
        yield one.written()
    if one.waits_for_controller:
        yield one.controlled()
    if one.terminating:
        yield one.ended()


@cache
def _most_pods(one: Workers) -> int:
    return max(step.pods for step in own_steps(one))


@cache
def _written_or_lost(steps: Steps) -> set[Workers]:
    return {step._replace(granted=None) for step in steps}


class Ledgers:
    """The ledgers that were reached. The names of inputs are their places: the last comes first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._reached: list[Ledger] = []
        self._numbers: dict[object, int] = {}
        # Tables from numbers to numbers, which go with this object.
        self.ask, self.reallocate = cache(self._ask), cache(self._reallocate)
        self.restart = cache(self._restart)

    def outdated(self, number: int) -> bool:
        """Return whether a ledger is to be reallocated."""
        return self._reached[number].outdated

    def _number(self, ledger: Ledger) -> int:
        number = self._numbers.setdefault(contents(ledger), len(self._reached))
        if number == len(self._reached):
            self._reached.append(ledger)
        return number

    def _ask(self, number: int, at: int, one: Workers) -> tuple[int, int]:
        ledger = copied(self._reached[number])
        granted = ledger.request(one.request(("t", str(at)), at)).workers
        return self._number(ledger), granted

    def _reallocate(self, number: int) -> int:
        ledger = copied(self._reached[number])
        ledger.reallocate()
        return self._number(ledger)

    def _restart(self, inputs: Inputs) -> int:
        found = (one.found(("t", str(at))) for at, one in enumerate(inputs))
        return self._number(new_ledger(self.limit, found))


class Search:
    """A search for all states that two or more inputs of one budget reach."""

    def __init__(self, ledgers: Ledgers, numbers: Sequence[int], *, alone: bool = False) -> None:
        """Prepare a search.

        Args:
            ledgers: where the numbers of the states' ledgers are from.
            numbers: what an input may ask for. 0 withdraws.
            alone: whether a state stands for itself only.
        """
        self._ledgers, self._numbers, self._alone = ledgers, numbers, alone
        self._restarted: set[Inputs] = set()

    def run(self, inputs: int = 2) -> Found:
        """Reach all states, and check each of them."""
        nothing = (Workers(),) * inputs
        first = State(nothing, self._ledgers.restart(nothing))
        before: dict[State, tuple[State, str] | None] = {first: None}
        waiting, transitions = deque([first]), 0
        while waiting:
            state = waiting.popleft()
            if fault := self._fault(state):
                return Found(f"{fault}: {_actions(before, state)}", before.keys(), transitions)
            for action, reached in self._successors(state):
                transitions += 1
                if reached not in before:
                    before[reached] = state, action
                    waiting.append(reached)
        return Found("", before.keys(), transitions)

    def _successors(self, state: State) -> Iterator[tuple[str, State]]:
        inputs, ledger = state
        for at, one in enumerate(inputs):
            for step in self._steps(one):
                if step.granted is None:
                    for number in self._numbers:
                        yield f"{at} asks", self._asked(state, at, step._replace(wanted=number))
            for step in _next(one) if self._alone else ():
                yield f"step of {at}", State(_with(inputs, at, step), ledger)
        if self._ledgers.outdated(ledger):
            yield "reallocate", State(inputs, self._ledgers.reallocate(ledger))
        if inputs not in self._restarted:  # A new operator does not depend on the last ledger.
            self._restarted.add(inputs)
            for steps in product(*(_written_or_lost(self._steps(one)) for one in inputs)):
                yield "restart", State(steps, self._ledgers.restart(steps))

    def _steps(self, one: Workers) -> Steps:
        return (one,) if self._alone else own_steps(one)

    def _asked(self, state: State, at: int, one: Workers) -> State:
        ledger, granted = self._ledgers.ask(state.ledger, at, one._replace(goal=0))
        return State(_with(state.inputs, at, one._replace(granted=granted)), ledger)

    def _fault(self, state: State) -> str:
        """Return what is wrong, or what is still wrong after some rounds without changes."""
        limit = self._ledgers.limit
        if sum(map(_most_pods, state.inputs)) > limit:
            return "too many pods"
        for _ in range(ROUNDS):
            if is_settled(state.inputs, limit):
                return ""
            state = self._round(state)
        return "" if is_settled(state.inputs, limit) else "not settled"

    def _round(self, state: State) -> State:
        """Reconcile each input when its pods rest, and reallocate."""
        for at in (at for at in range(len(state.inputs)) for _ in range(RECONCILIATIONS)):
            state = self._asked(state, at, state.inputs[at].rested())
            state = State(_with(state.inputs, at, state.inputs[at].written()), state.ledger)
        if self._ledgers.outdated(state.ledger):
            state = State(state.inputs, self._ledgers.reallocate(state.ledger))
        return state


def _with(inputs: Inputs, at: int, one: Workers) -> Inputs:
    return (*inputs[:at], one, *inputs[at + 1 :])


def _actions(before: dict[State, tuple[State, str] | None], state: State) -> str:
    """Return the actions that led to a state, each with what it led to."""
    done: list[str] = []
    while (last := before[state]) is not None:
        done.insert(0, f"{last[1]} -> {state.inputs}")
        state = last[0]
    return "; ".join(done)
