"""Measures the operator against a real API server: python -m tests.operator.measure --inputs 500.

- writes over a time in which nothing changes,
- from a change of the spec to the change of the child, by two watches of this process,
- memory of the operator's process.

There is no kubelet: pods stay as they are, and inputs wait for them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input_operator.api import Api
from distributed_input_operator.kinds import DEPLOYMENT, INPUT
from tests.cluster.control_plane import ControlPlane
from tests.operator.cluster import Cluster
from tests.operator.conftest import install
from tests.operator.running import Operator, manifest, running

NAMESPACE = "measured"
_PARALLEL = 8


async def _create(api: Api, names: list[str]) -> None:
    gate = asyncio.Semaphore(_PARALLEL)

    async def one(name: str) -> None:
        body = manifest(name)
        # Pods would only load this machine: there is nothing to run them.
        body["spec"]["workers"] = {"replicas": 0}
        async with gate:
            await api.request("POST", INPUT.path(NAMESPACE), body=body)

    await asyncio.gather(*map(one, names))


async def _deployments(api: Api) -> dict[str, Any]:
    found = await api.request("GET", DEPLOYMENT.path(NAMESPACE))
    return {one["metadata"]["name"]: one for one in found["items"]}


async def _all_there(api: Api, names: list[str], seconds: float) -> float:
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        found = await _deployments(api)
        if all(f"{name}-worker" in found for name in names):
            return time.monotonic() - started
        await asyncio.sleep(1)
    raise SystemExit(f"not all children within {seconds:g} s: {len(found)} deployments")


async def _latencies(api: Api, names: list[str], count: int, gap: float) -> list[float]:
    """Seconds from the answer to our change until the child's change is visible to a watch."""
    changed: dict[str, asyncio.Future[float]] = {}
    watching = asyncio.create_task(_watch(api, changed))
    taken = []
    for name in random.sample(names, count):
        changed[name] = asyncio.get_running_loop().create_future()
        body = {"spec": {"workers": {"terminationGracePeriodSeconds": random.randint(61, 3000)}}}
        sent = time.monotonic()
        await api.request(
            "PATCH",
            INPUT.path(NAMESPACE, name),
            body=body,
            headers={"Content-Type": "application/merge-patch+json"},
        )
        taken.append(await asyncio.wait_for(changed[name], 60) - sent)
        await asyncio.sleep(gap)
    watching.cancel()
    return taken


async def _watch(api: Api, changed: dict[str, asyncio.Future[float]]) -> None:
    client = api._client
    serialized = await client.param_serialize(
        "GET",
        DEPLOYMENT.path(NAMESPACE),
        query_params=[("watch", "true")],
        header_params={"Accept": "application/json"},
        auth_settings=["BearerToken"],
    )
    answer = await client.call_api(*serialized, _request_timeout=3600)
    async for line in answer.response.content:
        event = json.loads(line)
        name = event["object"]["metadata"]["name"].removesuffix("-worker")
        if event["type"] == "MODIFIED" and name in changed and not changed[name].done():
            changed[name].set_result(time.monotonic())


def _rss(operator: Operator) -> float:
    """MiB, now and at most."""
    text = Path(f"/proc/{operator.process.pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in text.splitlines())
    return int(fields["VmHWM"].split()[0]) / 1024


async def _measure(args: argparse.Namespace, plane: ControlPlane, operator: Operator) -> None:
    await config.load_kube_config(config_file=str(plane.kubeconfig))
    async with ApiClient() as client:
        api = Api(client)
        names = [f"m{number}" for number in range(args.inputs)]
        started = time.monotonic()
        await _create(api, names)
        made = time.monotonic() - started
        print(f"{args.inputs} inputs made in {made:.1f} s, ", end="")
        print(f"children all there {await _all_there(api, names, 900):.1f} s later", flush=True)
        before = operator.writes()
        while True:
            await asyncio.sleep(5)
            if operator.writes() == before:
                break
            before = operator.writes()
        await asyncio.sleep(args.idle)
        print(f"writes in {args.idle:g} s of nothing: {operator.writes() - before:g}", flush=True)
        taken = sorted(await _latencies(api, names, min(args.changes, len(names)), args.gap))
        p99 = taken[max(0, int(len(taken) * 0.99) - 1)]
        print(f"spec to child: p50 {statistics.median(taken):.3f} s, p99 {p99:.3f} s, ", end="")
        print(f"most {taken[-1]:.3f} s, of {len(taken)}")
        print(f"operator's memory at most {_rss(operator):.0f} MiB; load {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Start a control plane, an operator and inputs; print what was measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--idle", type=float, default=300.0, help="seconds")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between changes")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, ControlPlane(Path(folder)) as plane:
        with plane.client() as client:
            cluster = Cluster(client, NAMESPACE)
            cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
            install(cluster)
        with running(plane.kubeconfig, NAMESPACE, Path(folder)) as operator:
            asyncio.run(_measure(args, plane, operator))


if __name__ == "__main__":
    main()
