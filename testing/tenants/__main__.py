"""Measures another tenant's latency during attacks: python -m testing.tenants --inputs 300.

The latency is the time from a change of an input's spec until its Deployment has it. For each
attack there are two operators, one after the other: this one, and one that works in the order of
events.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient

from distributed_input.api import names
from distributed_input_operator.kube.api import Api
from distributed_input_operator.kube.kinds import DEPLOYMENT, INPUT
from testing.charts.rendering import find_one, manifests
from testing.cluster.control_plane import ControlPlane
from testing.operator.cluster import Cluster
from testing.operator.processes import Operator, manifest
from testing.operator.resource_usage import cpu_seconds, memory_mib
from testing.tenants import attacks
from tests.operator.conftest import install

COLUMNS = (
    "Attack",
    "Accepted",
    "Refused",
    "With turns: median / longest",
    "Without",
    "Ratios",
    "Memory",
    "CPU",
    "Changes",
)
QUIET, VICTIM = "quiet", "victim"
"""The other tenant's namespace and input."""
_LIMIT_SECONDS = 60.0
_GAP_SECONDS = 0.1
_WARM_SECONDS = 5.0
_POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"


class _FirstCome(Operator):
    module = "testing.tenants.first_come"


@dataclass(frozen=True)
class Result:
    """What one operator did during one attack."""

    latencies: tuple[float, ...]
    attempts: attacks.Attempts
    seconds: float
    memory: int
    busy: float

    @property
    def median(self) -> float:
        """Median latency in seconds."""
        return statistics.median(self.latencies)

    @property
    def longest(self) -> float:
        """The longest latency in seconds."""
        return self.latencies[-1]


async def latency(api: Api, number: int) -> float:
    """Change the input of the other tenant. Return the seconds until its Deployment changes."""
    env = [{"name": "NUMBER", "value": str(number)}]
    started = time.monotonic()
    body = {
        "spec": {
            "workers": {"template": {"spec": {"containers": [{"name": "worker", "env": env}]}}}
        }
    }
    await api.request("PATCH", INPUT.path(QUIET, VICTIM), body=body, headers=attacks.MERGE)
    while time.monotonic() - started < _LIMIT_SECONDS:
        found = await api.get(DEPLOYMENT, QUIET, names.worker(VICTIM))
        if found is not None:
            (container,) = found["spec"]["template"]["spec"]["containers"]
            if env[0] in container.get("env", ()):
                break
        await asyncio.sleep(0.01)
    return time.monotonic() - started


async def _measure(
    api: Api, cluster: Cluster, operator: Operator, attack: str, args: argparse.Namespace
) -> Result:
    await latency(api, -1)
    async with attacks.chosen(attack, api, cluster, args.inputs) as attempts:
        await asyncio.sleep(_WARM_SECONDS)
        began, used, before = time.monotonic(), cpu_seconds(operator.process.pid), replace(attempts)
        found: list[float] = []
        while time.monotonic() - began < args.seconds:
            found.append(await latency(api, len(found)))
            await asyncio.sleep(_GAP_SECONDS)
        seconds = time.monotonic() - began
        during = replace(
            attempts,
            accepted=attempts.accepted - before.accepted,
            refused=attempts.refused - before.refused,
        )
        busy = (cpu_seconds(operator.process.pid) - used) / seconds
    memory = memory_mib(operator.process.pid, "VmHWM")
    return Result(tuple(sorted(found)), during, seconds, memory, busy)


async def _run_attack(
    args: argparse.Namespace, plane: ControlPlane, cluster: Cluster, folder: Path, attack: str
) -> None:
    flags = ("--namespace", attacks.LOUD, "--namespace", QUIET)
    results: list[Result] = []
    for kind in (Operator, _FirstCome):
        operator = kind(plane.kubeconfig, attacks.LOUD, folder, *flags)
        try:
            await asyncio.to_thread(operator.wait_until_leading)
            async with ApiClient() as client:
                results.append(await _measure(Api(client), cluster, operator, attack, args))
        finally:
            assert await asyncio.to_thread(operator.stop) == 0, operator.read_log()[-2000:]
    ours, other = results
    made, seconds = ours.attempts, ours.seconds
    cells = (
        attack,
        f"{made.accepted / seconds:.0f}/s",
        f"{made.refused / seconds:.0f}/s",
        f"{ours.median:.2f} / {ours.longest:.2f} s",
        f"{other.median:.2f} / {other.longest:.2f} s",
        f"{other.median / ours.median:.1f} / {other.longest / ours.longest:.1f}",
        f"{ours.memory} / {other.memory} MiB",
        f"{ours.busy:.0%} / {other.busy:.0%}",
        f"{len(ours.latencies)}, {len(other.latencies)}",
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    if made.refusal:
        print(f"    refused: {made.refusal[:300]}", flush=True)


def prepare(cluster: Cluster) -> None:
    """Create both namespaces, what their administrator sets, and the other tenant's input."""
    install(cluster)
    for one in (QUIET, attacks.LOUD):
        cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": one}})
    for kind, ending in (("", "ies"), ("Binding", "ybindings")):
        policy = find_one(manifests(QUIET), f"ValidatingAdmissionPolicy{kind}", "-depth")
        cluster.call("POST", f"{_POLICIES}{ending}", policy)
    Cluster(cluster._api, QUIET).create(manifest(VICTIM, workers={"replicas": 0}))


async def _run(args: argparse.Namespace, plane: ControlPlane, folder: Path) -> None:
    await config.load_kube_config(config_file=str(plane.kubeconfig))
    with plane.client() as client:
        cluster = Cluster(client, attacks.LOUD)
        prepare(cluster)
        print(f"| {' | '.join(COLUMNS)} |")
        print("|---" * len(COLUMNS) + "|", flush=True)
        for attack in args.attacks:
            await _run_attack(args, plane, cluster, folder, attack)
    print(f"load {os.getloadavg()[0]:.1f}")


def main() -> None:
    """Start a control plane, and measure each attack."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=300, help="of the attacker, for edits")
    parser.add_argument("--seconds", type=float, default=15.0, help="for each attack and operator")
    parser.add_argument("--attacks", nargs="*", choices=attacks.NAMES, default=attacks.NAMES)
    args = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        plane = stack.enter_context(ControlPlane(folder))
        asyncio.run(_run(args, plane, folder))


if __name__ == "__main__":
    main()
