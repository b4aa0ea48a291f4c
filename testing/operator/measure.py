"""Measures the operator against a real API server: python -m testing.operator.measure --inputs 500.

- cold: the operator starts, and the inputs exist without children;
- warm: the operator restarts, and the children exist;
- idle: requests while nothing changes;
- single changes: the time from a change until a watch reports the child's new spec;
- concurrent changes: changes per second.

With --bare, the controller-manager and the scheduler do not run. With --workers, the pods run on
fake nodes (kwok); without it, there are no nodes. With --folder, the cluster's data stays in that
folder, and the next run continues with it. This splits a long measurement into several runs.

This module is long because its measurements share one API server, its inputs and its report.
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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input_operator.kube.api import Api, ApiError
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT, POD, WATCHED
from testing.cluster.control_plane import ControlPlane
from testing.cluster.kwok import FakeNodes
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import Operator, manifest
from testing.operator.resource_usage import AuditLog, CpuUsage, format_requests, memory_mib
from tests.operator.conftest import install

NAMESPACE = "measured"
ACCOUNT = "operator"
PARALLEL = 8
_NODES, _CAPACITY = 20, {"pods": "2000", "cpu": "8000", "memory": "32Ti"}
_PLANE_FLAGS: dict[str, Mapping[str, object]] = {
    # The default limits, for small clusters, would be the bottleneck.
    "kube-controller-manager": {
        "kube-api-qps": 1000,
        "kube-api-burst": 2000,
        "concurrent-deployment-syncs": 20,
        "concurrent-replicaset-syncs": 20,
        # All processes share the same cores: do not mark slow fake nodes as unreachable.
        "node-monitor-grace-period": "10m",
    },
    "kube-scheduler": {"kube-api-qps": 1000, "kube-api-burst": 2000},
}
_POLL_SECONDS = 3.0
"""Interval of reading the operator's metrics, which takes half a second for 10,000 inputs."""
_MERGE = {"Content-Type": "application/merge-patch+json"}
_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_WRITES = ("create", "update", "patch", "delete")


class Measurement:
    """The cluster and the operator of a measurement."""

    def __init__(
        self,
        args: argparse.Namespace,
        api: Api,
        operator: Operator,
        audit: AuditLog,
        pids: dict[str, int],
    ) -> None:
        self.args, self.api, self.operator, self.audit = args, api, operator, audit
        self._pids = pids
        self.names = [f"m{number}" for number in range(args.inputs)]

    def restart(self) -> tuple[float, CpuUsage]:
        """Restart the operator. Return the time when it leads and the CPU usage since then."""
        if self.operator.process.poll() is None:
            self.operator.stop()  # releases its lease
        self.operator.restart()
        self.audit.requests()
        self.operator.wait_until_leading()
        return time.monotonic(), self.usage()

    def usage(self) -> CpuUsage:
        """Return the CPU usage of all processes from now on."""
        return CpuUsage({"operator": self.operator.process.pid, **self._pids})

    async def count(self, plural: str) -> int:
        """Return the number of objects of a kind."""
        kind = next(one for one in WATCHED if one.plural == plural)
        page = await self.api.request("GET", kind.path(NAMESPACE), query={"limit": "1"})
        return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))

    async def children(self) -> int:
        """Return the approximate number of inputs that have all their children."""
        counts = [await self.count("deployments") // 2, await self.count("services") // 2]
        return min(*counts, await self.count("poddisruptionbudgets"))

    async def pending(self) -> int:
        """Return the number of pods that do not run (at most 500) or do not exist yet."""
        expected = self.args.inputs * (self.args.workers + 1)
        query = {"limit": "500", "fieldSelector": "status.phase!=Running"}
        page = await self.api.request("GET", POD.path(NAMESPACE), query=query)
        return len(page["items"]) + max(0, expected - await self.count("pods"))


async def create(measurement: Measurement) -> None:
    """Create the inputs that do not exist yet."""
    gate = asyncio.Semaphore(PARALLEL)

    async def one(name: str) -> None:
        args = measurement.args
        body = manifest(name, encryption=args.encryption, workers={"replicas": args.workers})
        async with gate:
            try:
                await measurement.api.request("POST", INPUT.path(NAMESPACE), body=body)
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise

    started = time.monotonic()
    await asyncio.gather(*map(one, measurement.names))
    print(
        f"{len(measurement.names)} inputs created in {time.monotonic() - started:.1f} s", flush=True
    )


async def measure_cold_start(measurement: Measurement, seconds: float) -> None:
    before = await measurement.children()
    started, usage = measurement.restart()
    while (complete := await measurement.children()) < len(measurement.names):
        if time.monotonic() - started > seconds:
            break
        await asyncio.sleep(0.5)
    duration = time.monotonic() - started
    created = complete - before
    print(
        f"cold: {created} inputs' children in {duration:.1f} s: "
        f"{created / duration:.1f} inputs a second"
    )
    print_usage(measurement, usage, max(1, created))


async def _measure_pods(measurement: Measurement, seconds: float) -> None:
    stopped = measurement.operator.process.poll() is not None  # an earlier run created the children
    started, usage = measurement.restart() if stopped else (time.monotonic(), measurement.usage())
    while (pending := await measurement.pending()) and time.monotonic() - started < seconds:
        await asyncio.sleep(2)
    duration = time.monotonic() - started
    print(
        f"pods: {await measurement.count('pods')} exist, {pending} not running "
        f"after {duration:.1f} s"
    )
    print_usage(measurement, usage)


async def _wait_until_quiet(measurement: Measurement) -> None:
    """Wait until the operator sends no more writes."""
    while writes(measurement.audit.requests()):
        await asyncio.sleep(5)


async def _measure_warm_start(measurement: Measurement, seconds: float) -> None:
    started, usage = measurement.restart()
    reconciled = 0
    while reconciled < len(measurement.names) and time.monotonic() - started < seconds:
        await asyncio.sleep(_POLL_SECONDS)
        page = await asyncio.to_thread(measurement.operator.get, "/metrics")
        reconciled = page[1].count("\ndistributed_input_workers_desired{")
    duration = time.monotonic() - started
    print(
        f"warm: {reconciled} inputs reconciled in {duration:.1f} s: "
        f"{reconciled / duration:.1f} inputs a second"
    )
    print_usage(measurement, usage)


async def _measure_idle(measurement: Measurement, seconds: float) -> None:
    measurement.audit.requests()
    usage = measurement.usage()
    await asyncio.sleep(seconds)
    requests = measurement.audit.requests()
    print(f"idle: {writes(requests)} writes in {seconds:g} s")
    print_usage(measurement, usage, requests=requests)


async def measure_single_changes(measurement: Measurement, count: int, gap: float) -> None:
    usage = measurement.usage()
    latencies = []
    async with watch_changes(measurement.api) as changed:
        for name in random.sample(measurement.names, count):
            sent, observed = await change(measurement, name, changed)
            latencies.append(await asyncio.wait_for(observed, 60) - sent)
            await asyncio.sleep(gap)
    latencies.sort()
    p99 = latencies[max(0, int(len(latencies) * 0.99) - 1)]
    print(f"spec to child: p50 {statistics.median(latencies):.3f} s, p99 {p99:.3f} s, ", end="")
    print(f"maximum {latencies[-1]:.3f} s, of {count} single changes")
    print_usage(measurement, usage, count)


async def _measure_concurrent_changes(measurement: Measurement, count: int) -> None:
    gate, usage = asyncio.Semaphore(PARALLEL), measurement.usage()
    async with watch_changes(measurement.api) as changed:

        async def one(name: str) -> asyncio.Future[float]:
            async with gate:
                return (await change(measurement, name, changed))[1]

        started = time.monotonic()
        observed = await asyncio.gather(*map(one, random.sample(measurement.names, count)))
        sent = time.monotonic() - started
        await asyncio.wait_for(asyncio.gather(*observed), 300)
    duration = max(one.result() for one in observed) - started
    print(f"{count} changes, sent within {sent:.1f} s: all seen within {duration:.1f} s, ", end="")
    print(f"{count / duration:.1f} changes a second")
    print_usage(measurement, usage, count)


async def change(
    measurement: Measurement, name: str, changed: dict[str, asyncio.Future[float]]
) -> tuple[float, asyncio.Future[float]]:
    """Add or remove one worker, which replaces no pods. Return the times of request and event."""
    path, workers = INPUT.path(NAMESPACE, name), measurement.args.workers
    known = await measurement.api.request("GET", path)
    replicas = workers + (known["spec"]["workers"]["replicas"] == workers)
    future = changed[f"{name}-worker"] = asyncio.get_running_loop().create_future()
    sent = time.monotonic()
    body = {"spec": {"workers": {"replicas": replicas}}}
    await measurement.api.request("PATCH", path, body=body, headers=_MERGE)
    return sent, future


@contextlib.asynccontextmanager
async def watch_changes(api: Api) -> AsyncIterator[dict[str, asyncio.Future[float]]]:
    """Yield futures by Deployment. Each gets the time when its spec change is observed."""
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
    response = await client.call_api(*serialized, _request_timeout=3600)

    async def watch() -> None:
        async for line in response.response.content:
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
        response.response.close()


def writes(requests: Counter[str]) -> int:
    """Return the number of writes, without leases and access reviews."""
    return sum(
        count
        for request, count in requests.items()
        if request.startswith(_WRITES) and not request.endswith(("leases", "reviews"))
    )


def print_usage(
    measurement: Measurement, usage: CpuUsage, each: int = 0, requests: Counter[str] | None = None
) -> None:
    requests = measurement.audit.requests() if requests is None else requests
    pid = measurement.operator.process.pid
    share = f" ({requests.total() / each:.1f} an input)" if each else ""
    print(f"  {usage}; operator's memory {memory_mib(pid)} MiB, maximum {memory_mib(pid, 'VmHWM')}")
    print(f"  operator's requests{share}: {format_requests(requests)}", flush=True)


async def _measure(measurement: Measurement) -> None:
    args = measurement.args
    await create(measurement)
    if await measurement.children() < args.inputs:
        await measure_cold_start(measurement, args.seconds)
    if args.workers:
        await _measure_pods(measurement, args.seconds)
    if "rest" in args.parts:
        await _wait_until_quiet(measurement)
        await _measure_warm_start(measurement, args.seconds)
        await _wait_until_quiet(measurement)
        await _measure_idle(measurement, args.idle)
        await measure_single_changes(measurement, min(args.changes, args.inputs), args.gap)
        await _measure_concurrent_changes(measurement, min(args.changes, args.inputs))
    print(f"load {os.getloadavg()[0]:.1f}")


def run(
    measurement: Callable[[Api], Measurement],
    plane: ControlPlane,
    body: Callable[[Measurement], Awaitable[None]],
) -> None:
    """Run a measurement with a client of the control plane."""

    async def connected() -> None:
        await config.load_kube_config(config_file=str(plane.kubeconfig))
        async with ApiClient() as client:
            await body(measurement(Api(client)))

    asyncio.run(connected())


def _prepare(cluster: Cluster) -> None:
    """Create the CRDs, a namespace and a ServiceAccount whose requests are audited."""
    install(cluster)
    binding = {
        "metadata": {"name": NAMESPACE},
        "roleRef": {"kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": NAMESPACE}],
    }
    for path, body in (
        ("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}}),
        (f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", {"metadata": {"name": ACCOUNT}}),
        ("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding),
    ):
        with contextlib.suppress(RequestRejected):  # exists since the last run
            cluster.call("POST", path, body)


@contextlib.contextmanager
def _fake_nodes(plane: ControlPlane) -> Iterator[FakeNodes]:
    """Run fake nodes for all pods. The Node objects stay for the next run.

    The pods' addresses are loopback addresses without listeners, so that requests to dispatchers
    fail at once.
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
    parser.add_argument(
        "--workers", type=int, default=0, help="workers per input, on fake nodes. Default: 0"
    )
    parser.add_argument(
        "--encryption", choices=("All", "Control", "None"), default="None", help="Default: None"
    )
    parser.add_argument(
        "--bare", action="store_true", help="run no controller-manager and no scheduler"
    )
    parser.add_argument(
        "--idle", type=float, default=300.0, help="seconds of the idle part. Default: 300"
    )
    parser.add_argument("--changes", type=int, default=200)
    parser.add_argument(
        "--gap", type=float, default=0.05, help="seconds between changes. Default: 0.05"
    )
    parser.add_argument("--folder", type=Path, help="keep the cluster's data in this folder")
    parser.add_argument(
        "--seconds", type=float, default=900, help="maximum seconds per part. Default: 900"
    )
    parser.add_argument(
        "--parts", choices=("make", "rest"), default="rest", help="make: only create; rest: all"
    )
    return parser.parse_args()


@contextlib.contextmanager
def started(kept: Path | None) -> Iterator[tuple[ControlPlane, Operator, AuditLog]]:
    """Run a control plane. Provide an operator that does not run yet, and the log of its requests.

    kept: the folder of the cluster's data. None: a temporary one.
    """
    with contextlib.ExitStack() as stack:
        folder = kept or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        audit = AuditLog(folder, f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}")
        flags: dict[str, Mapping[str, object]] = {**_PLANE_FLAGS, "kube-apiserver": audit.flags}
        plane = stack.enter_context(ControlPlane(folder, flags=flags))
        with plane.client() as client:
            _prepare(Cluster(client, NAMESPACE))
        kubeconfig = plane.service_account_kubeconfig(NAMESPACE, ACCOUNT)
        operator = Operator(kubeconfig, NAMESPACE, folder)
        stack.callback(operator.kill)
        operator.kill()  # restarted when the inputs exist
        yield plane, operator, audit


def main() -> None:
    """Start a control plane, an operator and inputs. Print the measurements."""
    args = _arguments()
    with (
        started(args.folder) as (plane, operator, audit),
        _fake_nodes(plane) if args.workers else contextlib.nullcontext() as nodes,
    ):
        pids = {one.name: one.pid for one in plane.daemons if one.pid}
        if nodes:
            pids["kwok"] = nodes.daemon.pid or 0
        if args.bare:
            for one in (plane.controller_manager, plane.scheduler):
                one.stop()
                del pids[one.name]
        run(lambda api: Measurement(args, api, operator, audit, pids), plane, _measure)


if __name__ == "__main__":
    main()
