"""Measures the operator with inputs that trainers read, beside idle ones: make operator-readers.

- steady: looks, opened channels and writes per second, CPU and memory;
- changes: the time from a change until a watch reports the child's new spec;
- restart: the same, for changes from the moment when a new operator leads.

Neither the controller-manager nor the scheduler runs. The pods of dispatchers are objects whose
addresses lead to one server. `--folder` keeps the cluster, as in `testing.operator.measure`.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import time
from pathlib import Path
from typing import Any

from distributed_input.api import names
from distributed_input_operator.controller.control_loop import is_changed
from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POD
from distributed_input_operator.reconcile.rollout import is_observed
from testing.operator import measure
from testing.operator.measure import ACCOUNT, NAMESPACE, Measurement
from testing.operator.readers.dispatchers import Counts, Dispatchers, run_dispatchers

_PARALLEL = 8
_SEEN_SECONDS = 300.0
_CHANGE_SECONDS = 300.0
_MERGE = {"Content-Type": "application/merge-patch+json"}


async def add_dispatcher(api: Api, namespace: str, name: str, number: int, account: str) -> None:
    """Create the ready pod of an input's dispatcher, with a loopback address of its own."""
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{name}-dispatcher-0",
            "labels": names.selector(name, names.DISPATCHER),
        },
        "spec": {
            "serviceAccountName": account,
            "automountServiceAccountToken": False,
            "containers": [{"name": "dispatcher", "image": "sidecar:1"}],
        },
    }
    try:
        await api.request("POST", POD.path(namespace), body=pod)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise
    address = f"127.{2 + number // 60000}.{number // 240 % 250}.{1 + number % 240}"
    ready = [{"type": one, "status": "True"} for one in ("Ready", "ContainersReady")]
    status = {"phase": "Running", "conditions": ready, "podIP": address}
    body = {"status": {**status, "podIPs": [{"ip": address}]}}
    path = POD.path(namespace, pod["metadata"]["name"], "status")
    await api.request("PATCH", path, body=body, headers=_MERGE)


async def _add_dispatchers(api: Api, count: int) -> None:
    gate = asyncio.Semaphore(_PARALLEL)

    async def one(number: int) -> None:
        async with gate:
            await add_dispatcher(api, NAMESPACE, f"m{number}", number, ACCOUNT)

    await asyncio.gather(*map(one, range(count)))


async def _settle_deployments(measurement: Measurement) -> None:
    """Write the status of each Deployment, as the controller-manager would for ready pods.

    Wait until the operator has seen it. Then no input counts as changed.
    """
    gate, api = asyncio.Semaphore(_PARALLEL), measurement.api

    async def one(name: str, generation: int, replicas: int) -> None:
        counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), replicas)
        rolled_out = {"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"}
        status = {"observedGeneration": generation, "conditions": [rolled_out], **counts}
        body = {"status": {**status, "availableReplicas": replicas}}
        async with gate:
            path = DEPLOYMENT.path(NAMESPACE, name, "status")
            await api.request("PATCH", path, body=body, headers=_MERGE)

    found = [
        (item["metadata"]["name"], item["metadata"]["generation"], item["spec"]["replicas"])
        async for item in api.objects(DEPLOYMENT, NAMESPACE)
        if not is_observed(item)
    ]
    started = time.monotonic()
    await asyncio.gather(*(one(*place) for place in found))
    deadline = started + measurement.args.seconds
    while changed := [one async for one in api.objects(INPUT, NAMESPACE) if is_changed(one)]:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(5)
    took = time.monotonic() - started
    print(f"settled in {took:.0f} s: {len(changed)} inputs count as changed", flush=True)


async def _wait_until_seen(dispatchers: Dispatchers, count: int) -> None:
    """Wait until the operator has asked all dispatchers three times on average."""
    deadline = time.monotonic() + _SEEN_SECONDS
    while (found := dispatchers.counts()).inputs < count or found.looks < 3 * count:
        if time.monotonic() > deadline:
            print(f"only {found} after {_SEEN_SECONDS:g} s", flush=True)
            return
        await asyncio.sleep(1)


async def _steady(measurement: Measurement, dispatchers: Dispatchers, seconds: float) -> None:
    measurement.audit.requests()
    usage, before, started = measurement.usage(), dispatchers.counts(), time.monotonic()
    await asyncio.sleep(seconds)
    after, took = dispatchers.counts(), time.monotonic() - started
    requests = measurement.audit.requests()
    statuses = sum(n for one, n in requests.items() if one.endswith("distributedinputs/status"))
    print(f"steady, {took:.0f} s: {_rates(before, after, took)}, ", end="")
    print(f"{statuses / took:.1f} status writes/s, {measure.writes(requests) / took:.1f} writes/s")
    measure.print_usage(measurement, usage, requests=requests)


def _rates(before: Counts, after: Counts, seconds: float) -> str:
    looks, channels = after.looks - before.looks, after.channels - before.channels
    return f"{looks / seconds:.1f} looks/s, {channels / seconds:.2f} channels opened/s"


async def _after_restart(measurement: Measurement, count: int, gap: float) -> None:
    """Restart the operator. Send a change every `gap` seconds from when it leads."""
    started, usage = measurement.restart()
    async with measure.watch_changes(measurement.api) as changed:

        async def one(number: int, name: str) -> tuple[float, float]:
            await asyncio.sleep(number * gap)
            sent, observed = await measure.change(measurement, name, changed)
            return sent - started, await asyncio.wait_for(observed, _CHANGE_SECONDS) - sent

        chosen = random.sample(measurement.names, count)
        found = await asyncio.gather(*(one(*place) for place in enumerate(chosen)))
    worst = max(found, key=lambda pair: pair[1])
    times = sorted(took for _, took in found)
    print(f"restart: {count} changes, one every {gap:g} s from when the operator leads: ", end="")
    print(f"p50 {statistics.median(times):.2f} s, p99 {percentile(times):.2f} s, ", end="")
    print(f"maximum {worst[1]:.2f} s, of a change after {worst[0]:.0f} s")
    measure.print_usage(measurement, usage)


def percentile(ordered: list[float], share: float = 0.99) -> float:
    """Return a percentile of ordered values."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


async def _measure(measurement: Measurement, dispatchers: Dispatchers) -> None:
    args = measurement.args
    if await measurement.children() < args.inputs:
        await measure.create(measurement)
        await measure.measure_cold_start(measurement, args.seconds)
    if await measurement.children() < args.inputs:
        print("not all children exist: run it again with the same --folder")
        return
    await _add_dispatchers(measurement.api, args.readers)
    runs = measurement.operator.process.poll() is None
    if not runs and {"steady", "changes"} & set(args.parts):
        measurement.restart()
    if args.settled:
        if measurement.operator.process.poll() is not None:
            measurement.restart()
        await _settle_deployments(measurement)
    if "steady" in args.parts:
        await _wait_until_seen(dispatchers, args.readers)
        await asyncio.sleep(args.settle)
        await _steady(measurement, dispatchers, args.steady)
    if "changes" in args.parts:
        await measure.measure_single_changes(measurement, args.changes, args.gap)
    if "restart" in args.parts:
        await _after_restart(measurement, args.changes, args.restart_gap)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=2000, help="inputs that trainers read")
    parser.add_argument("--idle", type=int, default=10000, help="inputs without dispatchers")
    parser.add_argument("--steady", type=float, default=60, help="seconds of the steady part")
    parser.add_argument("--settle", type=float, default=60, help="seconds before it")
    parser.add_argument("--changes", type=int, default=100)
    parser.add_argument("--gap", type=float, default=0.2, help="seconds between changes")
    parser.add_argument("--restart-gap", type=float, default=1.5, help="the same, after a restart")
    parser.add_argument(
        "--settled",
        action="store_true",
        help="write the Deployments' statuses. Without them, all inputs count as changed",
    )
    parser.add_argument("--folder", type=Path, help="keep the cluster's data in this folder")
    parser.add_argument("--seconds", type=float, default=900, help="maximum of the cold start")
    parser.add_argument("--parts", nargs="*", default=["steady", "changes", "restart"])
    args = parser.parse_args()
    args.inputs, args.workers, args.encryption = args.readers + args.idle, 0, "None"
    return args


def main() -> None:
    """Start a control plane, the dispatchers' server and an operator. Print the measurements."""
    args = _arguments()
    with (
        measure.started(args.folder) as (plane, operator, audit),
        run_dispatchers(names.DISPATCHER_PORT) as dispatchers,
    ):
        plane.controller_manager.stop()
        plane.scheduler.stop()
        pids = {one.name: one.pid for one in (plane.etcd, plane.api_server) if one.pid}
        measure.run(
            lambda api: Measurement(args, api, operator, audit, pids),
            plane,
            lambda measurement: _measure(measurement, dispatchers),
        )


if __name__ == "__main__":
    main()
