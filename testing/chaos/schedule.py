"""The values that describe a schedule. Equal seeds give equal values."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True)
class Data:
    """A dataset in which each row is a function of (seed, epoch, split, row); see `rows`.

    Attributes:
        rows: number of rows of each split. The first split has at least one row.
        vary: whether the number of rows differs between epochs.
        row_bytes: size of a row's payload.
        sleep_ms: milliseconds to compute a row.
        text: whether there is a column of variable width.
        graph: whether the dataset is a tf.data graph and not a Python iterable. `sleep_ms` has no
            effect on a graph.
        flaky: whether every worker produces the rows of a split in a different order, which is an
            error.
    """

    rows: tuple[int, ...]
    vary: bool = False
    row_bytes: int = 64
    sleep_ms: float = 0.0
    text: bool = False
    graph: bool = False
    flaky: bool = False


@dataclass(frozen=True)
class Topology:
    """The number of processes, and the job's settings.

    Attributes:
        batch: global batch size; 0 to pass whole elements.
        epochs: number of epochs; 0 for as many as `Schedule.duration` allows.
        mode: "distributed_epoch" or "parallel_epochs".
        replicas: number of units in each consumer's step. With whole elements, the last step may
            have fewer.
        ring_steps: number of steps that fit into shared memory.
        proxied: whether a proxy stands between sidecars and workers.
        slow_worker: extra milliseconds that the first worker needs for a row.
        weights: weights of the sources of a mixture; (): no mixture. Each source has as many of the
            splits.
        exhausted: what follows if a source has ended: "stop" or "drop".
        changes: weights that the loop sets before a step of each epoch, by increasing step.
        jobs: number of jobs that read the input at once and share the workers' rows. The steps of
            the first job time the faults. Each job has all consumers and a separate ledger.
    """

    consumers: int = 1
    workers: int = 2
    partitions: int = 4
    batch: int = 8
    remainder: str = "keep"
    mode: str = "distributed_epoch"
    determinism: str = "warn"
    epochs: int = 1
    replicas: int = 1
    read_ahead: int | None = 1
    ring_steps: int = 4
    seed: int = 0
    proxied: bool = False
    slow_worker: float = 0.0
    jobs: int = 1
    weights: tuple[int, ...] = ()
    exhausted: str = "stop"
    changes: tuple[tuple[int, tuple[int, ...]], ...] = ()

    @property
    def whole(self) -> bool:
        """Whether elements pass whole."""
        return not self.batch

    @property
    def parallel(self) -> bool:
        """Whether every consumer gets the whole dataset."""
        return self.mode == "parallel_epochs"


KINDS = (
    "kill_worker",
    "stop_worker",
    "drain_worker",
    "kill_all_workers",
    "add_worker",
    "cut_connection",
    "delay_connection",
    "kill_dispatcher",
    "kill_sidecar",
    "crash_trainer",
    "rewind_trainer",
)


@dataclass(frozen=True)
class Fault:
    """An action on the processes.

    Attributes:
        kind: one of KINDS.
        step: number of steps of the loop before the fault, over all epochs and restarts.
        delay_ms: delay after that step; 0: before the next step.
        target: index of the worker, consumer or connection, modulo their number.
        restart: address of a killed worker's replacement: "new", "same", or "never" (if other
            workers live).
        seconds: time until the process restarts or continues, or data flows again.
        then_kill: whether a stopped process is killed and not continued.
        after_bytes: number of bytes that a connection still passes before it is cut.
        consumers: number of consumers after a crash of the trainers.
        sidecars: what happens to the sidecars when the trainers crash: they "stay", are "killed",
            or "linger" beside new ones.
    """

    kind: str
    step: int
    delay_ms: int = 0
    target: int = 0
    restart: str = "new"
    seconds: float = 0.0
    then_kill: bool = False
    after_bytes: int = 0
    consumers: int = 0
    sidecars: str = "stay"


Transfer: TypeAlias = Literal["drawn", "tcp", "tls", "grpc"]
"""How rows reach the sidecars. drawn: over gRPC through proxies in some schedules, and over shared
memory in the others. tcp, tls: over direct connections, without proxies; tls encrypts all channels.
grpc: always over gRPC.
"""


@dataclass(frozen=True)
class Schedule:
    """One run: the topology, the dataset and the faults.

    Attributes:
        save_every: number of steps between checkpoints. The loop also saves at the end of an epoch.
        saver: index of the consumer whose position a crash restores. Without effect if each
            position restores only its own consumer.
        step_ms: duration of a training step.
        timeout: the input's timeout in seconds. A schedule that reaches it has failed.
        deadline: seconds after which the run counts as hung.
        duration: seconds after which no epoch begins, if the topology has no number of epochs.
        transfer: how rows reach the sidecars; see `Transfer`.
    """

    seed: int
    topology: Topology
    data: Data
    faults: tuple[Fault, ...] = ()
    save_every: int = 3
    saver: int = 0
    step_ms: float = 0.0
    timeout: float = 30.0
    deadline: float = 90.0
    duration: float = 0.0
    transfer: Transfer = "drawn"
    label: str = field(default="", compare=False)

    def __str__(self) -> str:
        lines = [f"schedule {self.label or self.seed}: {_format_fields(self.topology)}"]
        lines.append(f"  data {_format_fields(self.data)}")
        lines.append(
            f"  save every {self.save_every} steps from consumer {self.saver}, "
            f"step {self.step_ms:g} ms"
        )
        lines += [
            f"  at step {f.step}: {f.kind} {_format_fields(f, ('kind', 'step'))}"
            for f in self.faults
        ]
        return "\n".join(lines)


def _format_fields(value: Any, without: tuple[str, ...] = ()) -> str:
    """Return the fields of a dataclass that differ from their defaults."""
    shown = (
        f"{f.name}={getattr(value, f.name)}"
        for f in fields(value)
        if f.name not in without and getattr(value, f.name) != f.default
    )
    return " ".join(shown)
