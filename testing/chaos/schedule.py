"""What a schedule is: plain values, printable, equal for equal seeds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any


@dataclass(frozen=True)
class Data:
    """A dataset whose every row is a function of (seed, epoch, split, row): see `rows`.

    Attributes:
        rows: of each split; a split may have none, but the first has some.
        vary: the number of rows differs from epoch to epoch.
        row_bytes: of a row's payload.
        sleep_ms: that making a row takes.
        text: there is a column of variable width too.
        graph: a tf.data graph rather than a Python iterable; `sleep_ms` does not apply.
        flaky: every worker makes the rows of a split in an order of its own, which is wrong.
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
    """Who is there, and the job's settings.

    Attributes:
        batch: global batch size; 0: elements pass through whole.
        epochs: 0: as many as there is time for.
        order: "strict" or "any".
        mode: "distributed_epoch" or "parallel_epochs".
        replicas: units that each consumer's step is cut into.
        ring_steps: steps that a ring has room for.
        proxied: a proxy stands between sidecars and workers.
        slow_worker: milliseconds more that the first worker takes for a row.
        jobs: that read the input side by side, and so share what workers make; faults come by the
            steps of the first. Each has all consumers, and a ledger of its own.
    """

    consumers: int = 1
    workers: int = 2
    partitions: int = 4
    batch: int = 8
    remainder: str = "keep"
    order: str = "strict"
    mode: str = "distributed_epoch"
    determinism: str = "warn"
    epochs: int = 1
    replicas: int = 1
    read_ahead: int = 1
    ring_steps: int = 4
    seed: int = 0
    proxied: bool = False
    slow_worker: float = 0.0
    jobs: int = 1

    @property
    def whole(self) -> bool:
        """Elements pass through whole."""
        return not self.batch

    @property
    def parallel(self) -> bool:
        """Every consumer gets the whole dataset."""
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
    """Something that is done to the processes.

    Attributes:
        kind: one of KINDS.
        step: when the loop has taken so many steps, of all epochs and lives together.
        delay_ms: so much later; 0: before the loop takes another step.
        target: which worker, consumer or connection, modulo how many there are.
        comeback: of a worker: "new" address, "same" address, or "never" (while others live).
        seconds: until it comes back, is continued, or data flows again.
        then_kill: what was stopped is killed rather than continued.
        after_bytes: a connection is cut when it has carried so many more.
        consumers: after a trainer's crash there are so many.
        sidecars: with a trainer's crash they "stay", are "killed", or "linger" beside new ones.
    """

    kind: str
    step: int
    delay_ms: int = 0
    target: int = 0
    comeback: str = "new"
    seconds: float = 0.0
    then_kill: bool = False
    after_bytes: int = 0
    consumers: int = 0
    sidecars: str = "stay"


@dataclass(frozen=True)
class Schedule:
    """One run: what there is, and what happens to it.

    Attributes:
        save_every: the loop saves its position every so many steps, and at an epoch's end.
        saver: which consumer's position a crash restores (all, where each restores only itself).
        step_ms: that a training step takes.
        timeout: the input's own, in seconds: a schedule that makes it wait so long has failed.
        deadline: seconds after which the run counts as hung.
        lasting: seconds after which no more epochs begin, where the topology has no number of them.
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
    lasting: float = 0.0
    label: str = field(default="", compare=False)

    def __str__(self) -> str:
        lines = [f"schedule {self.label or self.seed}: {_told(self.topology)}"]
        lines.append(f"  data {_told(self.data)}")
        lines.append(
            f"  save every {self.save_every} steps from consumer {self.saver}, "
            f"step {self.step_ms:g} ms"
        )
        lines += [f"  at step {f.step}: {f.kind} {_told(f, ('kind', 'step'))}" for f in self.faults]
        return "\n".join(lines)


def _told(value: Any, without: tuple[str, ...] = ()) -> str:
    """The fields of a dataclass that are not as by default."""
    told = (
        f"{f.name}={getattr(value, f.name)}"
        for f in fields(value)
        if f.name not in without and getattr(value, f.name) != f.default
    )
    return " ".join(told)
