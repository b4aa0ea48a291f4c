"""Measures the operator against a real API server: python -m testing.operator.measure --inputs 500.

- cold: the operator starts, the inputs are there and their children are not;
- warm: it starts again, the children are there;
- idle: requests over a time in which nothing changes;
- one change after the other: from sending it until a watch shows that the child's spec changed;
  and many changes at once: how many a second come through.

With --bare there is neither controller-manager nor scheduler: the children are made, and nobody
acts on them. With --workers the pods are scheduled to pretended nodes (kwok); without, there are
none. With --folder the cluster is kept there and the next run goes on with it: what takes too long
for one run can be made in several.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POD, WATCHED
from testing.cluster.control_plane import ControlPlane
from testing.cluster.kwok import FakeNodes
from testing.operator.cluster import Cluster, Refused
from testing.operator.processes import Operator, manifest
from testing.operator.resource_usage import Audit, Costs, resident, told
from tests.operator.conftest import install

NAMESPACE = "measured"
_ACCOUNT = "operator"
_PARALLEL = 8
_NODES, _CAPACITY = 20, {"pods": "2000", "cpu": "8000", "memory": "32Ti"}
_PLANE: dict[str, Mapping[str, object]] = {
    # Their own limits, for small clusters, would be what is measured.
    "kube-controller-manager": {
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
        "concurrent-deployment-syncs": 20,
        "concurrent-replicaset-syncs": 20,
        # All of it on the same cores: pretended nodes that are late are not lost.
        "node-monitor-grace-period": "10m",
    },
    "kube-scheduler": {"kube-api-qps": 1000, "kube-api-burst": 2000},
}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_WRITES = ("create", "update", "patch", "delete")


class Bench:
    """The cluster, the operator, and what is known of them."""

    def __init__(
        self,
        args: argparse.Namespace,
        api: Api,
        operator: Operator,
        audit: Audit,
        pids: dict[str, int],
    ) -> None:
        self.args, self.api, self.operator, self.audit = args, api, operator, audit
        self._pids = pids
        self.names = [f"m{number}" for number in range(args.inputs)]

    def restart(self) -> tuple[float, Costs]:
        """Another life of the operator; when it began to work, and what all cost from then on."""
        if self.operator.process.poll() is None:
            self.operator.stop()  # gives its lease back
        self.operator.restart()
        self.audit.requests()
        self.operator.wait_until_leading()
        return time.monotonic(), self.costs()

    def costs(self) -> Costs:
        """CPU of all processes, from now on."""
        return Costs({"operator": self.operator.process.pid, **self._pids})

    async def count(self, plural: str) -> int:
        """How many of a kind there are."""
        kind = next(one for one in WATCHED if one.plural == plural)
        page = await self.api.request("GET", kind.path(NAMESPACE), query={"limit": "1"})
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def children(self) -> int:
        """Inputs that have all their children, or a few more: they are made at the same time."""
        counts = [await self.count("deployments") // 2, await self.count("services") // 2]
        return min(*counts, await self.count("poddisruptionbudgets"))

    async def waiting(self) -> int:
        """Pods that do not run yet, of which 500 at most are counted, and pods that are not even
        there.
        """
        wanted = self.args.inputs * (self.args.workers + 1)
        query = {"limit": "500", "fieldSelector": "status.phase!=Running"}
        page = await self.api.request("GET", POD.path(NAMESPACE), query=query)
        return len(page["items"]) + max(0, wanted - await self.count("pods"))


async def _create(bench: Bench) -> None:
    """Inputs that are not there yet."""
    gate = asyncio.Semaphore(_PARALLEL)

    async def one(name: str) -> None:
        body = manifest(name, workers={"replicas": bench.args.workers})
        async with gate:
            try:
                await bench.api.request("POST", INPUT.path(NAMESPACE), body=body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    started = time.monotonic()
    await asyncio.gather(*map(one, bench.names))
    print(f"{len(bench.names)} inputs made in {time.monotonic() - started:.1f} s", flush=True)


async def _cold(bench: Bench, seconds: float) -> None:
    before = await bench.children()
    started, costs = bench.restart()
    while (there := await bench.children()) < len(bench.names):
        if time.monotonic() - started > seconds:
            break
        await asyncio.sleep(0.5)
    took = time.monotonic() - started
    made = there - before
    print(f"cold: {made} inputs' children in {took:.1f} s: {made / took:.1f} inputs a second")
    _tell(bench, costs, max(1, made))


async def _pods(bench: Bench, seconds: float) -> None:
    gone = bench.operator.process.poll() is not None  # an earlier run made the children
    started, costs = bench.restart() if gone else (time.monotonic(), bench.costs())
    while (waiting := await bench.waiting()) and time.monotonic() - started < seconds:
        await asyncio.sleep(2)
    took = time.monotonic() - started
    print(f"pods: {await bench.count('pods')} there, {waiting} still awaited, {took:.1f} s later")
    _tell(bench, costs)


async def _quiet(bench: Bench) -> None:
    """Wait until the operator has nothing to write."""
    while _writes(bench.audit.requests()):
        await asyncio.sleep(5)


async def _warm(bench: Bench, seconds: float) -> None:
    started, costs = bench.restart()
    requests = Counter[str]()
    # The first look at each input reads its token.
    while requests["get secrets"] < len(bench.names):
        if time.monotonic() - started > seconds:
            break
        await asyncio.sleep(0.5)
        requests += bench.audit.requests()
    looked, took = requests["get secrets"], time.monotonic() - started
    print(f"warm: {looked} inputs looked at in {took:.1f} s: {looked / took:.1f} inputs a second")
    _tell(bench, costs, requests=requests)


async def _idle(bench: Bench, seconds: float) -> None:
    bench.audit.requests()
    costs = bench.costs()
    await asyncio.sleep(seconds)
    requests = bench.audit.requests()
    print(f"idle: {_writes(requests)} writes in {seconds:g} s")
    _tell(bench, costs, requests=requests)


async def _one_by_one(bench: Bench, count: int, gap: float) -> None:
    costs = bench.costs()
    taken = []
    async with _changes(bench.api) as changed:
        for name in random.sample(bench.names, count):
            sent, seen = await _change(bench, name, changed)
            taken.append(await asyncio.wait_for(seen, 60) - sent)
            await asyncio.sleep(gap)
    taken.sort()
    p99 = taken[max(0, int(len(taken) * 0.99) - 1)]
    print(f"spec to child: p50 {statistics.median(taken):.3f} s, p99 {p99:.3f} s, ", end="")
    print(f"most {taken[-1]:.3f} s, of {count}, one after the other")
    _tell(bench, costs, count)


async def _at_once(bench: Bench, count: int) -> None:
    gate, costs = asyncio.Semaphore(_PARALLEL), bench.costs()
    async with _changes(bench.api) as changed:

        async def one(name: str) -> asyncio.Future[float]:
            async with gate:
                return (await _change(bench, name, changed))[1]

        started = time.monotonic()
        seen = await asyncio.gather(*map(one, random.sample(bench.names, count)))
        sent = time.monotonic() - started
        await asyncio.wait_for(asyncio.gather(*seen), 300)
    took = max(one.result() for one in seen) - started
    print(f"{count} changes, sent within {sent:.1f} s: all seen within {took:.1f} s, ", end="")
    print(f"{count / took:.1f} changes a second")
    _tell(bench, costs, count)


async def _change(
    bench: Bench, name: str, changed: dict[str, asyncio.Future[float]]
) -> tuple[float, asyncio.Future[float]]:
    """Ask for one worker more, or one less: it replaces no pods. When, and when that was seen."""
    path, asked = INPUT.path(NAMESPACE, name), bench.args.workers
    known = await bench.api.request("GET", path)
    more = asked + (known["spec"]["workers"]["replicas"] == asked)
    future = changed[f"{name}-worker"] = asyncio.get_running_loop().create_future()
    sent = time.monotonic()
    body = {"spec": {"workers": {"replicas": more}}}
    await bench.api.request("PATCH", path, body=body, headers=_MERGE)
    return sent, future


@contextlib.asynccontextmanager
async def _changes(api: Api) -> AsyncIterator[dict[str, asyncio.Future[float]]]:
    """Futures by Deployment: set to the time at which its spec was seen to change."""
    changed: dict[str, asyncio.Future[float]] = {}
    listed = await api.request(
        "GET",
        DEPLOYMENT.path(NAMESPACE),
        headers={"Accept": _METADATA.replace("data;", "dataList;")},
    )
    known = {one["metadata"]["name"]: one["metadata"]["generation"] for one in listed["items"]}
    client = api._client
    serialized = await client.param_serialize(
        "GET",
        DEPLOYMENT.path(NAMESPACE),
        query_params=[
            ("watch", "true"),
            ("resourceVersion", listed["metadata"]["resourceVersion"]),
        ],
        header_params={"Accept": _METADATA},
        auth_settings=["BearerToken"],
    )
    answer = await client.call_api(*serialized, _request_timeout=3600)

    async def watch() -> None:
        async for line in answer.response.content:
            meta = json.loads(line)["object"]["metadata"]
            name, generation = meta["name"], meta["generation"]
            if generation > known.get(name, 0):
                known[name] = generation
                if name in changed and not changed[name].done():
                    changed[name].set_result(time.monotonic())

    watching = asyncio.create_task(watch())
    try:
        yield changed
    finally:
        watching.cancel()
        answer.response.close()


def _writes(requests: Counter[str]) -> int:
    """Requests that change something; its own Lease and what it asks of its rights do not count."""
    return sum(
        count
        for what, count in requests.items()
        if what.startswith(_WRITES) and not what.endswith(("leases", "reviews"))
    )


def _tell(bench: Bench, costs: Costs, each: int = 0, requests: Counter[str] | None = None) -> None:
    requests = bench.audit.requests() if requests is None else requests
    pid = bench.operator.process.pid
    share = f" ({requests.total() / each:.1f} an input)" if each else ""
    print(f"  {costs}; operator's memory {resident(pid)} MiB, at most {resident(pid, 'VmHWM')}")
    print(f"  its requests{share}: {told(requests)}", flush=True)


async def _measure(bench: Bench) -> None:
    args = bench.args
    await _create(bench)
    if await bench.children() < args.inputs:
        await _cold(bench, args.seconds)
    if args.workers:
        await _pods(bench, args.seconds)
    if "rest" in args.parts:
        await _quiet(bench)
        await _warm(bench, args.seconds)
        await _quiet(bench)
        await _idle(bench, args.idle)
        await _one_by_one(bench, min(args.changes, args.inputs), args.gap)
        await _at_once(bench, min(args.changes, args.inputs))
    print(f"load {os.getloadavg()[0]:.1f}")


async def _run(
    args: argparse.Namespace,
    plane: ControlPlane,
    operator: Operator,
    audit: Audit,
    pids: dict[str, int],
) -> None:
    await config.load_kube_config(config_file=str(plane.kubeconfig))
    async with ApiClient() as client:
        await _measure(Bench(args, Api(client), operator, audit, pids))


def _prepare(cluster: Cluster) -> None:
    """The definitions, a namespace, and an account for the operator, so that its requests show."""
    install(cluster)
    binding = {
        "metadata": {"name": NAMESPACE},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": _ACCOUNT, "namespace": NAMESPACE}],
    }
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": _ACCOUNT}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    ):
        with contextlib.suppress(Refused):  # there from the last run
            cluster.call("POST", path, body)


@contextlib.contextmanager
def _nodes(plane: ControlPlane) -> Iterator[FakeNodes]:
    """Nodes for all pods; they stay when this ends, for the next run. Their pods' addresses are of
    this machine, where nobody listens: who asks a dispatcher is refused at once.
    """
    nodes = FakeNodes(plane, "127.1.0.1/16")
    nodes.daemon.start()
    try:
        for number in range(_NODES):
            with contextlib.suppress(Exception):
                nodes.add(f"node-{number}", capacity=_CAPACITY)
        yield nodes
    finally:
        nodes.daemon.stop()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=500)
    parser.add_argument("--workers", type=int, default=0, help="of each input, on kwok's nodes")
    parser.add_argument("--bare", action="store_true", help="nobody acts on the children")
    parser.add_argument("--idle", type=float, default=300.0, help="seconds")
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument("--gap", type=float, default=0.05, help="seconds between changes")
    parser.add_argument("--folder", type=Path, help="of the cluster, to go on with it")
    parser.add_argument("--seconds", type=float, default=900, help="for each part at most")
    parser.add_argument("--parts", choices=("make", "rest"), default="rest", help="where to end")
    return parser.parse_args()


def main() -> None:
    """Start a control plane, an operator and inputs; print what was measured."""
    args = _arguments()
    with contextlib.ExitStack() as stack:
        folder = args.folder or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        audit = Audit(folder, f"system:serviceaccount:{NAMESPACE}:{_ACCOUNT}")
        flags: dict[str, Mapping[str, object]] = {**_PLANE, "kube-apiserver": audit.flags}
        plane = stack.enter_context(ControlPlane(folder, flags=flags))
        pids = {one.name: one.pid for one in plane.daemons if one.pid}
        if args.workers:
            nodes = stack.enter_context(_nodes(plane))
            pids["kwok"] = nodes.daemon.pid or 0
        with plane.client() as client:
            _prepare(Cluster(client, NAMESPACE))
        kubeconfig = plane.service_account_kubeconfig(NAMESPACE, _ACCOUNT)
        if args.bare:
            for one in (plane.controller_manager, plane.scheduler):
                one.stop()
                del pids[one.name]
        operator = Operator(kubeconfig, NAMESPACE, folder)
        stack.callback(operator.kill)
        operator.kill()  # it comes when the inputs are there
        asyncio.run(_run(args, plane, operator, audit, pids))


if __name__ == "__main__":
    main()
