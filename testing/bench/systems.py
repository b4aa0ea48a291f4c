"""The systems under test: tf.data in the trainer, tf.data service and DistributedInput."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testing.bench.case import DATA_PLANES, LOCAL, REPO, SERVICE_AUTO, Case
from testing.bench.processes import BenchError
from testing.compat.tf_data_service_servers import TfDataServiceServers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.tls_cluster import INPUT, TlsCluster
from testing.processes.forks import own_address

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class TrainerSetup:
    """The options and the environment with which one trainer reaches its system."""

    pids: Mapping[str, list[int]] = field(default_factory=dict)
    """Process ids by role: dispatcher, worker, sidecar."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for the trainer's dataset."""
    env: Mapping[str, str] = field(default_factory=dict)


Setup = Callable[[int], AbstractContextManager[TrainerSetup]]
"""Starts what belongs to the trainer with an index. Entered once for each trainer."""


@contextlib.contextmanager
def serve(case: Case, system: str) -> Iterator[Setup]:
    """Start the servers of a system for a case. They serve one trainer after another."""
    if system == LOCAL:
        yield lambda _: contextlib.nullcontext(TrainerSetup())
    elif system in DATA_PLANES:
        with _distributed_input(case, system) as setup:
            yield setup
    else:
        with TfDataServiceServers(static=False, workers=case.workers) as servers:
            compression = "AUTO" if system == SERVICE_AUTO else None
            pids = _pids(servers)
            options = {"address": servers.address, "compression": compression}
            yield lambda _: contextlib.nullcontext(TrainerSetup(pids, options))


def _pids(servers: Cluster | TfDataServiceServers) -> dict[str, list[int]]:
    workers = [worker.pid for worker in servers.workers]
    return {"dispatcher": [servers.dispatcher.pid], "worker": workers}


@contextlib.contextmanager
def _distributed_input(case: Case, system: str) -> Iterator[Setup]:
    plane = DATA_PLANES[system]
    fields = {"partitions": case.partitions} if case.partitions else {}
    flags = ["--parallelism", str(case.parallelism)] if case.parallelism else []
    if not plane.loopback:
        if not (host := own_address()):
            raise BenchError(f"{system}: this machine has no address but loopback")
        flags += ["--listen", f"{host}:0"]
    with TlsCluster() if plane.encrypted else Cluster() as cluster:
        cluster.add_workers(case.workers, "--path", str(REPO), *flags)
        one = default_spec(case.target, case.args, transfer=plane.transfer, **fields)

        @contextlib.contextmanager
        def setup(index: int) -> Iterator[TrainerSetup]:
            with sidecar(cluster, one, case.trainers, index) as started:
                env = {"DISTRIBUTED_INPUT_DIR": str(started.shared)}
                yield TrainerSetup({**_pids(cluster), "sidecar": [started.pid]}, env=env)

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
