"""What one tenant may do to others: each attack runs until its context ends."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import INPUT
from testing.operator.cluster import Cluster
from testing.operator.processes import manifest
from testing.operator.webhooks import free_port
from testing.tenants.hostile_dispatcher import hostile_dispatcher

LOUD = "loud"
"""The attacker's namespace."""
_COUNT = "count/distributedinputs.distributed-input.dev"
_QUOTAS = f"/api/v1/namespaces/{LOUD}/resourcequotas"
_QUOTA_SECONDS = 60.0
MERGE = {"Content-Type": "application/merge-patch+json"}
_PARALLEL = 16
_LARGE = {"note": "x" * 200_000}
_DEPTH = 900
_DISPATCHERS = 20
_MORE_INPUTS = 200


@dataclass
class Attempts:
    """Requests of the attacker that succeeded, and that were refused."""

    accepted: int = 0
    refused: int = 0
    refusal: str = ""
    """The last refusal."""

    async def send(self, api: Api, method: str, name: str, body: Any) -> None:
        """Send one request for an input of the attacker."""
        path = INPUT.path(LOUD, name) if method == "PATCH" else INPUT.path(LOUD)
        headers = MERGE if method == "PATCH" else None
        try:
            await api.request(method, path, body=body, headers=headers)
        except ApiError as error:
            self.refused, self.refusal = self.refused + 1, str(error)
        else:
            self.accepted += 1


async def create(api: Api, names: list[str], annotations: Mapping[str, str], **spec: Any) -> None:
    """Create inputs of the attacker. An input that exists stays."""
    gate = asyncio.Semaphore(_PARALLEL)

    async def one(name: str) -> None:
        async with gate:
            await Attempts().send(api, "POST", name, _input(name, annotations, **spec))

    await asyncio.gather(*map(one, names))


def _input(name: str, annotations: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    body = manifest(name, **{"workers": {"replicas": 0}, **spec})
    body["metadata"]["annotations"] = dict(annotations or {})
    return body


@contextlib.asynccontextmanager
async def flood(
    api: Api, method: str, request: Callable[[int], tuple[str, Any]]
) -> AsyncIterator[Attempts]:
    """Send requests as fast as the API server allows. `request` makes the next name and body."""
    attempts = Attempts()
    numbers = itertools.count()

    async def forever() -> None:
        while True:
            await attempts.send(api, method, *request(next(numbers)))

    tasks = [asyncio.create_task(forever()) for _ in range(_PARALLEL)]
    try:
        yield attempts
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def edits(api: Api, count: int, annotations: Mapping[str, str]) -> AsyncIterator[Attempts]:
    """Change `count` inputs in a loop."""
    prefix = "large" if annotations else "edited"
    names = [f"{prefix}-{number}" for number in range(count)]
    await create(api, names, annotations)

    def change(number: int) -> tuple[str, Any]:
        env = [{"name": "ROUND", "value": str(number)}]
        return names[number % count], {
            "spec": {
                "workers": {"template": {"spec": {"containers": [{"name": "worker", "env": env}]}}}
            }
        }

    async with flood(api, "PATCH", change) as attempts:
        yield attempts


@contextlib.asynccontextmanager
async def new_inputs(api: Api) -> AsyncIterator[Attempts]:
    """Create inputs without end. A ResourceQuota allows 200 more."""
    found = await api.request("GET", INPUT.path(LOUD))
    exist = len(found["items"])
    hard = {_COUNT: str(exist + _MORE_INPUTS)}
    quota = {"metadata": {"name": "inputs"}, "spec": {"hard": hard}}
    with contextlib.suppress(ApiError):
        await api.request("POST", _QUOTAS, body=quota)
    await api.request("PATCH", f"{_QUOTAS}/inputs", body=quota, headers=MERGE)
    async with asyncio.timeout(_QUOTA_SECONDS):
        while (await _quota(api)).get("hard") != hard or _COUNT not in (await _quota(api))["used"]:
            await asyncio.sleep(0.5)

    def created(number: int) -> tuple[str, Any]:
        name = f"created-{exist}-{number}"
        return name, _input(name)

    try:
        async with flood(api, "POST", created) as attempts:
            yield attempts
    finally:
        await api.request("DELETE", f"{_QUOTAS}/inputs")


async def _quota(api: Api) -> dict[str, Any]:
    found = await api.request("GET", f"{_QUOTAS}/inputs")
    return {"used": {}, **found.get("status", {})}


def _deep(number: int) -> tuple[str, Any]:
    value: Any = 1
    for _ in range(_DEPTH):
        value = {"a": value}
    name, entry = f"deep-{number}", {"function": "digits:dataset_fn", "args": {"a": value}}
    return name, _input(name, dataset={"type": "EntryPoint", "entryPoint": entry})


@contextlib.asynccontextmanager
async def statuses(api: Api, cluster: Cluster) -> AsyncIterator[Attempts]:
    """Run dispatchers that each report 100,000 workers. They count the operator's requests."""
    port = free_port()
    # Inputs of an earlier attack have another port.
    names = [f"reports-{port}-{number}" for number in range(_DISPATCHERS)]
    await create(api, names, {}, dispatcher={"port": port})
    with hostile_dispatcher(port) as calls:
        attempts = Attempts()

        def start_pods() -> None:
            for name in names:
                cluster.simulate_kubelet(name, "dispatcher", "127.0.0.1")

        async def run_pods() -> None:
            while True:
                await asyncio.to_thread(start_pods)
                found = await asyncio.to_thread(cluster.condition, names[0], "Unmeasured")
                attempts.refused = calls()
                attempts.refusal = found.get("message", "")
                await asyncio.sleep(1)

        running = asyncio.create_task(run_pods())
        try:
            yield attempts
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def chosen(
    name: str, api: Api, cluster: Cluster, inputs: int
) -> contextlib.AbstractAsyncContextManager[Attempts]:
    """Return the attack with a name."""
    attacks: dict[str, Callable[[], contextlib.AbstractAsyncContextManager[Attempts]]] = {
        "none": lambda: contextlib.nullcontext(Attempts()),
        "edits": lambda: edits(api, inputs, {}),
        "large objects": lambda: edits(api, inputs // 5, _LARGE),
        "deep fields": lambda: flood(api, "POST", _deep),
        "statuses": lambda: statuses(api, cluster),
        "new inputs": lambda: new_inputs(api),
    }
    return attacks[name]()


NAMES = ("none", "edits", "large objects", "deep fields", "statuses", "new inputs")
