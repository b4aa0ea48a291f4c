"""Does anything grow? `python -m testing.chaos.soak`: one long run, a fault every few seconds.

Two trainers (in this process, with the ledger) and three workers. Some processes live through it
all, others are killed again and again; whoever lives for long enough gets a line.
"""

from __future__ import annotations

import argparse
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

from testing.chaos.__main__ import told
from testing.chaos.document import write_section
from testing.chaos.faults import Applied
from testing.chaos.fleet import Fleet
from testing.chaos.run import run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks

_LOOK_SECONDS = 5.0
_WARM_SECONDS = 60.0
"""Imports, buffers and caches: what a process takes once."""
_LEAST_SECONDS = 120.0
"""A slope over less says nothing."""
_STEPS_APART = 200
_TOPOLOGY = Topology(consumers=2, workers=3, partitions=4, batch=16, epochs=0, proxied=True)
_DATA = Data(rows=(100,) * 12, row_bytes=10_000, text=True)
# Targets leave one worker and one sidecar alone.
_CYCLE = (
    Fault("kill_worker", 0, target=1, comeback="same", seconds=1.0),
    Fault("cut_connection", 0, target=0, after_bytes=50_000),
    Fault("rewind_trainer", 0),
    Fault("drain_worker", 0, target=2, comeback="new", seconds=0.5),
    Fault("kill_sidecar", 0, target=1, seconds=0.5),
    Fault("delay_connection", 0, target=0, seconds=0.5),
    Fault("stop_worker", 0, target=1, comeback="same", seconds=1.0),
    Fault("crash_trainer", 0),
)
_DISPATCHER = Fault("kill_dispatcher", 0, seconds=1.0)
_DISPATCHER_EVERY = 5  # cycles


@dataclass
class Memory:
    """Memory of one process by seconds since the run began: bytes of its own, resident or swapped
    out, and of files, such as the ring and code.
    """

    name: str
    times: list[float] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)

    def note(self, at: float, size: tuple[int, int]) -> None:
        """One look."""
        self.times.append(at)
        self.sizes.append(size)

    def cells(self) -> list[str] | None:
        """Of its line in the table, once warm; None where it lived briefly."""
        warm = [i for i, at in enumerate(self.times) if at - self.times[0] >= _WARM_SECONDS]
        if not warm or self.times[-1] - self.times[warm[0]] < _LEAST_SECONDS:
            return None
        times, sizes = np.array(self.times)[warm], np.array(self.sizes)[warm]
        half = len(times) // 2
        slopes = [np.polyfit(times[at:], sizes[at:, 0], 1)[0] * 60 / 2**10 for at in (0, half)]
        own, files = (f"{part[0]:.1f} to {part[-1]:.1f} MiB" for part in sizes.T / 2**20)
        told = [f"{slope:+.0f} KiB a minute" for slope in slopes]
        return [self.name, f"{(times[-1] - times[0]) / 60:.1f} min", own, *told, files]


class Sampler:
    """Looks at all processes of a fleet now and then, in a thread."""

    def __init__(self) -> None:
        self._memories = [Memory("trainers, with the ledger")]
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, fleet: Fleet) -> None:
        """Look from now on."""
        self._thread = threading.Thread(target=self._look, args=(fleet,), daemon=True)
        self._thread.start()

    def end(self) -> list[Memory]:
        """Look no more; what was seen."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(2 * _LOOK_SECONDS)
        return self._memories

    def _look(self, fleet: Fleet) -> None:
        began = time.monotonic()
        while not self._over.wait(_LOOK_SECONDS):
            now = time.monotonic() - began
            self._memories[0].note(now, _memory(os.getpid()))
            for number, process in enumerate(list(fleet.processes), 1):
                if number == len(self._memories):
                    self._memories.append(Memory(process.name))
                size = _memory(process.pid)
                if process.alive:  # still, so that the id is not another's
                    self._memories[number].note(now, size)


def _memory(pid: int) -> tuple[int, int]:
    """Of its own and of files, bytes; nothing where the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = dict(line.split(":", 1) for line in lines)
    own, swapped, files, shared = (
        int(sizes.get(name, "0").split()[0]) << 10
        for name in ("RssAnon", "VmSwap", "RssFile", "RssShmem")
    )
    return own + swapped, files + shared  # idle pages may be swapped out


def schedule(minutes: float, step_ms: float) -> Schedule:
    """A run of so many minutes."""
    most = int(minutes * 60_000 / step_ms / _STEPS_APART)
    faults = []
    for number, fault in zip(range(most), itertools.cycle(_CYCLE), strict=False):
        every = _DISPATCHER_EVERY * len(_CYCLE)
        chosen = _DISPATCHER if number % every == every - 1 else fault
        values = {**vars(chosen), "step": (number + 1) * _STEPS_APART}
        faults.append(Fault(**values))
    return Schedule(
        0, _TOPOLOGY, _DATA, tuple(faults), save_every=10, step_ms=step_ms, label="soak",
        lasting=60 * minutes, deadline=60 * minutes + 300,
    )  # fmt: skip


def faults(applied: Sequence[Applied]) -> str:
    """How many of each kind there were: a slope without them says little."""
    counts = Counter(fault.kind for fault in applied).most_common()
    told = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in counts)
    return f"{len(applied)} faults: {told or 'none'}."


def table(memories: Sequence[Memory]) -> str:
    """A line for each process that lived for long enough."""
    titles = "process", "measured for", "its own", "slope", "of the second half", "of files"
    rows = [cells for memory in memories if (cells := memory.cells()) is not None]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))


def main() -> int:
    """Run; 0 where every row was right."""
    parser = argparse.ArgumentParser(prog="python -m testing.chaos.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--step-ms", type=float, default=20.0, help="that a training step takes")
    parser.add_argument("--out", type=Path, help="Markdown file whose section is replaced")
    args = parser.parse_args()
    sampler = Sampler()
    with Forks() as forks:
        outcome = run(schedule(args.minutes, args.step_ms), forks, watch=sampler.begin)
    memories = sampler.end()
    verdict = outcome.verdict
    text = (
        f"{outcome.seconds / 60:.0f} minutes, {verdict.epochs} epochs, {verdict.delivered} rows: "
        f"{verdict.lost} lost, {verdict.repeated} repeated, {verdict.damaged} damaged.\n"
        f"{faults(outcome.applied)}\n\n{table(memories)}"
    )
    print(text)
    if not outcome.good:
        print(told(outcome), file=sys.stderr)
    elif args.out:
        write_section(args.out, "soak", text)
    return 0 if outcome.good else 1


if __name__ == "__main__":
    sys.exit(main())
