"""The memory of all processes in a long run: `python -m testing.chaos.measurements.soak`.

Four trainers (in this process, with the ledger) and three workers, with a fault every few seconds.
Some processes live through the whole run, others are killed repeatedly. The table has a line for
each process that lived for at least half of the run.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from testing.chaos.__main__ import describe
from testing.chaos.faults import Applied
from testing.chaos.fleet import Fleet
from testing.chaos.measurements import document
from testing.chaos.run import run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks

_SAMPLE_SECONDS = 5.0
_WARM_SECONDS = 60.0
"""Time in which a process allocates memory once: imports, buffers and caches."""
_MIN_SECONDS = 120.0
"""Minimum time for a meaningful slope."""
_STEPS_APART = 20
_TOPOLOGY = Topology(consumers=4, workers=3, partitions=8, batch=40, epochs=0, proxied=True)
# Slow rows use no CPU time, and most faults find open streams.
_DATA = Data(rows=(20,) * 16, row_bytes=10_000, text=True, sleep_ms=80.0)
# No fault targets worker 0, and sidecars other than 1.
_CYCLE = (
    Fault("kill_worker", 0, target=1, restart="same", seconds=1.0),
    Fault("cut_connection", 0, target=0, after_bytes=50_000),
    Fault("rewind_trainer", 0),
    Fault("drain_worker", 0, target=2, restart="new", seconds=0.5),
    Fault("kill_sidecar", 0, target=1, seconds=0.5),
    Fault("delay_connection", 0, target=0, seconds=0.5),
    Fault("stop_worker", 0, target=1, restart="same", seconds=1.0),
    Fault("crash_trainer", 0),
)
_DISPATCHER = Fault("kill_dispatcher", 0, seconds=1.0)
_DISPATCHER_EVERY = 5  # cycles


@dataclass
class Memory:
    """The memory of one process in bytes, by seconds since the start of the run.

    Each sample has two sizes: the process's own memory, resident or swapped out, and the memory of
    files, such as shared memory and code.
    """

    name: str
    times: list[float] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def add(self, at: float, size: tuple[int, int]) -> None:
        """Add one sample."""
        self.times.append(at)
        self.sizes.append(size)

    @property
    def seconds(self) -> float:
        """Seconds from the first sample to the last one."""
        return self.times[-1] - self.times[0] if self.times else 0.0

    def cells(self) -> list[str] | None:
        """Return the cells of the table after the warm-up; None if the process lived briefly."""
        warm = [i for i, at in enumerate(self.times) if at - self.times[0] >= _WARM_SECONDS]
        if not warm or self.times[-1] - self.times[warm[0]] < _MIN_SECONDS:
            return None
        times, sizes = np.array(self.times)[warm], np.array(self.sizes)[warm]
        half = len(times) // 2
        slopes = [np.polyfit(times[at:], sizes[at:, 0], 1)[0] * 60 / 2**10 for at in (0, half)]
        own, files = (f"{part[0]:.1f} to {part[-1]:.1f} MiB" for part in sizes.T / 2**20)
        rates = [f"{slope:+.0f} KiB/min" for slope in slopes]
        return [self.name, f"{(times[-1] - times[0]) / 60:.1f} min", own, *rates, files]


class Sampler:
    """A thread that samples the memory of all processes of a fleet."""

    def __init__(self) -> None:
        self._memories = [Memory("trainers and ledger")]
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, fleet: Fleet) -> None:
        """Start sampling."""
        self._thread = threading.Thread(target=self._sample, args=(fleet,), daemon=True)
        self._thread.start()

    def end(self) -> list[Memory]:
        """Stop sampling and return the samples."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(2 * _SAMPLE_SECONDS)
        return self._memories

    def _sample(self, fleet: Fleet) -> None:
        began = time.monotonic()
        while not self._ended.wait(_SAMPLE_SECONDS):
            now = time.monotonic() - began
            self._memories[0].add(now, _memory(os.getpid()))
            for number, process in enumerate(list(fleet.processes), 1):
                if number == len(self._memories):
                    self._memories.append(Memory(process.name))
                size = _memory(process.pid)
                if process.alive:  # else the id may belong to a new process
                    self._memories[number].add(now, size)


def _memory(pid: int) -> tuple[int, int]:
    """Return the bytes of own memory and of files; zeros if the process has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = dict(line.split(":", 1) for line in lines)
    own, swapped, files, shared = (
        int(sizes.get(name, "0").split()[0]) << 10
        for name in ("RssAnon", "VmSwap", "RssFile", "RssShmem")
    )
    return own + swapped, files + shared  # the kernel may swap out idle pages


def schedule(minutes: float, step_ms: float) -> Schedule:
    """Return a schedule of this duration."""
    count_of_faults = int(minutes * 60_000 / step_ms / _STEPS_APART)
    faults = []
    for number, fault in zip(range(count_of_faults), itertools.cycle(_CYCLE), strict=False):
        every = _DISPATCHER_EVERY * len(_CYCLE)
        chosen = _DISPATCHER if number % every == every - 1 else fault
        values = {**vars(chosen), "step": (number + 1) * _STEPS_APART}
        faults.append(Fault(**values))
    return Schedule(
        0, _TOPOLOGY, _DATA, tuple(faults), save_every=10, step_ms=step_ms, label="soak",
        duration=60 * minutes, deadline=60 * minutes + 300,
    )  # fmt: skip


def faults(applied: Sequence[Applied]) -> str:
    """Return the number of faults of each kind as text."""
    counts = Counter(fault.kind for fault in applied).most_common()
    text = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts)
    return f"{len(applied)} faults: {text or 'none'}."


def table(memories: Sequence[Memory]) -> str:
    """Return a table with a line for each process that lived for at least half of the run."""
    titles = "Process", "Measured", "Own memory", "Slope", "Slope, second half", "Files"
    half = max(memory.seconds for memory in memories) / 2
    long = [memory for memory in memories if memory.seconds >= half]
    rows = [cells for memory in long if (cells := memory.cells()) is not None]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))


def main() -> int:
    """Run; print the table or write it into a document. Return 0 if every row was correct."""
    parser = document.parser("soak", __doc__)
    parser.add_argument("--minutes", type=float, default=20.0, help="duration. Default: 20")
    parser.add_argument(
        "--step-ms", type=float, default=270.0, help="duration of a training step. Default: 270"
    )
    args = parser.parse_args()
    sampler = Sampler()
    with Forks() as forks:
        outcome = run(schedule(args.minutes, args.step_ms), forks, None, sampler.begin)
    memories = sampler.end()
    verdict = outcome.verdict
    text = (
        f"{outcome.seconds / 60:.0f} minutes, {verdict.epochs} epochs, {verdict.delivered} rows: "
        f"{verdict.lost} lost, {verdict.repeated} repeated, {verdict.damaged} damaged.\n"
        f"{faults(outcome.applied)}\n\n{table(memories)}"
    )
    print(text)
    if not outcome.passed:
        print(describe(outcome), file=sys.stderr)
    elif args.out:
        document.write_section(args.out, "soak", text)
    return 0 if outcome.passed else 1


if __name__ == "__main__":
    sys.exit(main())
