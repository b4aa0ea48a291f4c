"""The cases: a workload with its settings, on several systems."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class DataPlane:
    """How rows of DistributedInput reach the trainer."""

    transfer: str = "Auto"
    """As in spec.sidecar.transfer."""
    encrypted: bool = False
    one_host: bool = False
    """Workers and trainers are on one host, so that rows use shared memory."""


LOCAL = "tf.data in the trainer"
SERVICE = "tf.data service, no compression"
SERVICE_AUTO = "tf.data service, AUTO compression"
OURS = "DistributedInput"
OURS_TCP = "DistributedInput, not encrypted"
OURS_GRPC = "DistributedInput, gRPC only, not encrypted"
OURS_GRPC_TLS = "DistributedInput, gRPC only"
OURS_MEMORY = "DistributedInput, shared memory"
DATA_PLANES = {
    OURS: DataPlane(encrypted=True),
    OURS_TCP: DataPlane(),
    OURS_GRPC: DataPlane(transfer="GRPC"),
    OURS_GRPC_TLS: DataPlane(transfer="GRPC", encrypted=True),
    OURS_MEMORY: DataPlane(one_host=True),
}
SYSTEMS = (LOCAL, SERVICE_AUTO, SERVICE, *DATA_PLANES)
SHORT = {
    "local": LOCAL,
    "service-auto": SERVICE_AUTO,
    "service": SERVICE,
    "ours": OURS,
    "ours-tcp": OURS_TCP,
    "ours-grpc": OURS_GRPC,
    "ours-grpc-tls": OURS_GRPC_TLS,
    "ours-memory": OURS_MEMORY,
}
"""Names of the systems on the command line."""
DEFAULT = ("local", "service", "ours", "ours-tcp", "ours-grpc", "ours-memory")
"""Systems that are measured if the command line names none."""


@dataclass(frozen=True)
class Case:
    """A workload with its settings.

    The dataset is endless, so that the throughput is measured and not the start.
    """

    family: str
    name: str
    target: str
    """The dataset function, module:function, for all systems."""
    args: Mapping[str, Any]
    workers: int = 1
    trainers: int = 1
    """Trainers that share the rows of one job. More than one only for DistributedInput."""
    systems: tuple[str, ...] = SYSTEMS
    service_args: Mapping[str, Any] = field(default_factory=dict)
    """Additional arguments for tf.data service."""
    partitions: int | None = None
    """Partitions of DistributedInput. Default: the product's default."""
    parallelism: int | None = None
    """Rows that a DistributedInput worker computes at once. Default: the product's default."""
    sharding: str = "OFF"
    """ShardingPolicy of tf.data service."""
    unit: str = "GB"
    """Unit for CPU time: GB (1e9 bytes) or krows (1,000 rows)."""

    @property
    def title(self) -> str:
        """A title for the report."""
        counts = f"{self.workers} worker{'s' * (self.workers > 1)}"
        if self.trainers > 1:
            counts += f", {self.trainers} trainers"
        return f"{self.family}: {self.name}, {counts}"


def selected(
    cases: Iterable[Case], systems: Collection[str], workers: Collection[int]
) -> Iterator[Case]:
    """Yield the cases, limited to these systems and, if not empty, to these numbers of workers."""
    for case in cases:
        chosen = tuple(system for system in case.systems if system in systems)
        if chosen and (not workers or case.workers in workers):
            yield replace(case, systems=chosen)
