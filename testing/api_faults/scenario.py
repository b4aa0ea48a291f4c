"""The life of an input: created, changed, deleted. Each part ends with an expected state."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from testing.api_faults.operators import RestartingOperator
from testing.api_faults.state import State, difference, state_of
from testing.operator.cluster import Cluster, Json
from testing.operator.processes import manifest

NAME = "subject"
SPEC = {"workers": {"replicas": 1}}
CHANGE = {
    "dispatcher": {"port": 7171},
    "workers": {
        "replicas": 2,
        "template": {
            "spec": {"containers": [{"name": "worker", "env": [{"name": "LEVEL", "value": "2"}]}]}
        },
    },
    "tfDataService": {},
}
"""It replaces the pods of both parts, adds ports to Services and the NetworkPolicy, and scales."""
ENCRYPTED = {**SPEC, "encryption": None}
"""An input without the field is encrypted."""
ENCRYPTED_CHANGE = {key: one for key, one in CHANGE.items() if key != "tfDataService"}
"""An encrypted input has no tf.data service."""
SECONDS = 60.0
_QUIET_SECONDS = 2.0
_POLL_SECONDS = 0.2


class DivergedError(AssertionError):
    """The cluster did not converge to the expected state in time."""


def live(
    cluster: Cluster,
    name: str,
    expected: list[State] | None = None,
    *,
    between: Callable[[], None] = lambda: None,
    operator: RestartingOperator | None = None,
    quiet: float = 0.0,
    delete: bool = True,
    spec: Json = SPEC,
    change: Json = CHANGE,
) -> list[State]:
    """Run the life of an input. Return its states after its creation and after its change.

    Args:
        cluster: a client that is not disturbed.
        name: of the input.
        expected: the states to wait for. None: wait until the input is ready and nothing changes.
        between: called after each part.
        operator: started again whenever it is dead.
        quiet: seconds for which a state that was reached must stay.
        delete: whether it ends.
        spec: with which it begins.
        change: of its spec.
    """
    states = []
    for number, act in enumerate(
        (
            lambda: cluster.create(manifest(name, **spec)),
            lambda: cluster.patch("DistributedInput", name, {"spec": change}),
        )
    ):
        act()
        wanted = expected[number] if expected else None
        states.append(converged(cluster, name, wanted, operator=operator, quiet=quiet))
        between()
    if not delete:
        return states
    cluster.delete("DistributedInput", name)
    _wait(lambda: remains(cluster, name), operator)
    return states


def remains(cluster: Cluster, name: str) -> str:
    """Return what is left of an input that was deleted. Empty: nothing."""
    children = [f"{kind}/{one}" for kind, one in cluster.children(name)]
    pods = [
        f"Pod/{one['metadata']['name']}"
        for part in ("worker", "dispatcher")
        for one in cluster.pods(name, part)
    ]
    return ", ".join([*children, *pods])


def converged(
    cluster: Cluster,
    name: str,
    expected: State | None = None,
    *,
    operator: RestartingOperator | None = None,
    quiet: float = 0.0,
    seconds: float = SECONDS,
) -> State:
    """Wait until an input has a state. Without an expected one: until it is ready and stays equal.

    Raises DivergedError with the difference.
    """
    if expected is None:
        return settled(cluster, [name])[name]
    since = [0.0]

    def problem() -> str:
        found = difference(state_of(cluster, name), expected)
        if found or not since[0]:
            since[0] = time.monotonic()
        return found or ("" if time.monotonic() - since[0] >= quiet else "it was another state")

    _wait(problem, operator, seconds)
    return expected


def settled(cluster: Cluster, names: Iterable[str]) -> dict[str, State]:
    """Wait until these inputs are ready and nothing changes. Return their states by name.

    Raises DivergedError with what is missing.
    """
    last: list[dict[str, State]] = [{}]
    since = [0.0]

    def problem() -> str:
        found = {name: state_of(cluster, name) for name in names}
        if found != last[0]:
            last[0], since[0] = found, time.monotonic()
        waiting = [name for name, state in found.items() if not _is_ready(state)]
        if waiting:
            return f"not ready: {[(name, found[name]['status']) for name in waiting]}"
        return "" if time.monotonic() - since[0] >= _QUIET_SECONDS else "it changed"

    _wait(problem, None)
    return last[0]


def _is_ready(state: State) -> bool:
    status = state.get("status", {"conditions": [], "observed": False})
    return bool("Reconciling=False" in " ".join(status["conditions"]) and status["observed"])


def _wait(
    problem: Callable[[], str], operator: RestartingOperator | None, seconds: float = SECONDS
) -> None:
    deadline = time.monotonic() + seconds
    while found := problem():
        if time.monotonic() > deadline:
            raise DivergedError(f"after {seconds:g} s: {found}")
        if operator is not None and not operator.alive:
            operator.start()
        time.sleep(_POLL_SECONDS)
