"""The systems under test: tf.data in the trainer, tf.data service and DistributedInput."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.bench.case import DATA_PLANES, LOCAL, REPO, SERVICE_AUTO, Case
from testing.bench.processes import BenchError
from testing.compat.tf_data_service_servers import TfDataServiceServers
from testing.hosts import THIS_HOST, Host, HostsError, network
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.tls_cluster import INPUT, TlsCluster
from testing.processes.forks import own_address

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class TrainerSetup:
    """Where one trainer runs, and how it reaches its system."""

    host: Host = THIS_HOST
    pids: Mapping[str, list[int]] = field(default_factory=dict)
    """Process ids by role: dispatcher, worker, sidecar."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for the trainer's dataset."""
    env: Mapping[str, str] = field(default_factory=dict)


Setup = Callable[[int], AbstractContextManager[TrainerSetup]]
"""Starts what belongs to the trainer with an index. Entered once for each trainer."""


@dataclass(frozen=True)
class Hosts:
    """The hosts of a measurement."""

    trainers: Host = THIS_HOST
    """Of trainers and their sidecars."""
    workers: Host = THIS_HOST
    """Of dispatcher and workers."""

    def one(self) -> Hosts:
        """Return the same CPUs on one host."""
        trainers, workers = (Host(cpus=host.cpus) for host in (self.trainers, self.workers))
        return Hosts(trainers, workers)


@contextlib.contextmanager
def two_hosts() -> Iterator[Hosts]:
    """Create a host for trainers and one for workers, each with half of the CPUs."""
    cpus = sorted(os.sched_getaffinity(0))
    half = len(cpus) // 2
    try:
        with network(cpus[:half] or cpus, cpus[half:]) as (trainers, workers):
            yield Hosts(trainers, workers)
    except HostsError as error:
        raise BenchError(f"{error}. Add --one-host to measure without them.") from error


@contextlib.contextmanager
def one_host() -> Iterator[Hosts]:
    """Use this host, without limits to CPUs. Workers have an address that is not a loopback one."""
    if not (address := own_address()):
        raise BenchError("this machine has no address but loopback")
    yield Hosts(workers=Host(address=address))


@contextlib.contextmanager
def serve(case: Case, system: str, hosts: Hosts) -> Iterator[Setup]:
    """Start the servers of a system for a case."""
    if system == LOCAL:
        yield lambda _: contextlib.nullcontext(TrainerSetup(hosts.trainers))
    elif system in DATA_PLANES:
        with _distributed_input(case, system, hosts) as setup:
            yield setup
    else:
        with TfDataServiceServers(False, case.workers, hosts.workers) as servers:
            compression = "AUTO" if system == SERVICE_AUTO else None
            options = {"address": servers.address, "compression": compression}
            one = TrainerSetup(hosts.trainers, _pids(servers), options)
            yield lambda _: contextlib.nullcontext(one)


def _pids(servers: Cluster | TfDataServiceServers) -> dict[str, list[int]]:
    workers = [worker.pid for worker in servers.workers]
    return {"dispatcher": [servers.dispatcher.pid], "worker": workers}


@contextlib.contextmanager
def _distributed_input(case: Case, system: str, hosts: Hosts) -> Iterator[Setup]:
    plane = DATA_PLANES[system]
    hosts = hosts.one() if plane.one_host else hosts
    places = {"dispatcher": hosts.workers, "worker": hosts.workers, "sidecar": hosts.trainers}
    fields = {"partitions": case.partitions} if case.partitions else {}
    flags = ["--parallelism", str(case.parallelism)] if case.parallelism else []
    with TlsCluster(hosts=places) if plane.encrypted else Cluster(hosts=places) as cluster:
        cluster.add_workers(case.workers, "--path", str(REPO), *flags)
        one = default_spec(case.target, case.args, transfer=plane.transfer, **fields)

        @contextlib.contextmanager
        def setup(index: int) -> Iterator[TrainerSetup]:
            with sidecar(cluster, one, case.trainers, index) as started:
                env = {"DISTRIBUTED_INPUT_DIR": str(started.shared)}
                pids = {**_pids(cluster), "sidecar": [started.pid]}
                yield TrainerSetup(hosts.trainers, pids, env=env)

        yield setup


def default_spec(entry_point: str, args: Mapping[str, Any], **fields: Any) -> Any:
    """Return a resolved spec with the product's defaults, unlike those of the tests."""
    return spec(entry_point, args, **{"buffer": "256Mi", "timeoutSeconds": 600, **fields})


@contextlib.contextmanager
def sidecar(cluster: Cluster, one: Any, trainers: int = 1, index: int = 0) -> Iterator[Sidecar]:
    """Start a sidecar with new shared memory, as in a new pod."""
    memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="di-bench-", dir=memory) as folder:
        (added,) = cluster.add_sidecars({INPUT: one}, trainers, index, Path(folder))
        try:
            yield added
        finally:
            cluster.remove([added])
