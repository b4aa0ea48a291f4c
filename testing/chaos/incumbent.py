"""The same deaths for tf.data service and for us: `python -m testing.chaos.incumbent`.

A dispatcher, two workers and one trainer read 40 elements. One worker is killed when the trainer
has so many of them, and comes back at the same address, at a new one, or not at all.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from testing.chaos.document import write_section
from testing.chaos.run import run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks, Process, ProcessError

ELEMENTS = 40
COMEBACKS = {"same": "at the same address", "new": "at a new address", "never": "not at all"}
_LOOK_SECONDS = 0.02
_AWAY_SECONDS = 0.3
_STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Result:
    """What a trainer got of an epoch.

    Attributes:
        ended: the epoch came to its end before the deadline.
    """

    ended: bool
    lost: int
    repeated: int


class _Service:
    """tf.data service: its processes."""

    def __init__(self, forks: Forks) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tf-service-"))
        self._forks = forks
        self._parts: list[Process] = []
        self.dispatcher = self._start("dispatcher")
        self.address = self.dispatcher.ready()["address"]
        self.workers = [self.worker(), self.worker()]
        self.addresses = [worker.ready()["address"] for worker in self.workers]

    def worker(self, address: str = "") -> Process:
        port = address.rpartition(":")[2] or "0"
        return self._start("worker", "--dispatcher", self.address, "--port", port)

    def client(self, log: Path) -> Process:
        flags = ["--dispatcher", self.address, "--log", str(log), "--elements", str(ELEMENTS)]
        return self._start("client", *flags, "--step", str(_STEP_SECONDS))

    def close(self) -> None:
        for part in self._parts:
            part.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self, role: str, *flags: str) -> Process:
        name = f"{role}-{len(self._parts)}"
        part = self._forks.start(
            "testing.chaos.incumbent_part", name, self.folder, [role, *flags], heavy=True
        )
        self._parts.append(part)
        return part


def service_run(forks: Forks, comeback: str, after: int, deadline: float = 20.0) -> Result:
    """One epoch of tf.data service; a worker is killed when the trainer has `after` elements."""
    service = _Service(forks)
    try:
        log = service.folder / "elements"
        client = service.client(log)
        _until(lambda: len(_lines(log)) >= after, client, deadline)
        service.workers[after % 2].kill()
        time.sleep(_AWAY_SECONDS)  # as long as the death lasts
        if comeback != "never":
            address = service.addresses[after % 2] if comeback == "same" else ""
            service.worker(address).ready()
        _until(lambda: "end" in _lines(log), client, deadline)
        return _result(_lines(log))
    finally:
        service.close()


def our_run(forks: Forks, comeback: str, after: int, deadline: float = 20.0) -> Result:
    """The same with our processes."""
    fault = Fault("kill_worker", after, target=after % 2, comeback=comeback, seconds=_AWAY_SECONDS)
    schedule = Schedule(
        after,
        Topology(partitions=4, batch=0),
        Data(rows=(ELEMENTS // 4,) * 4, row_bytes=8),
        (fault,),
        step_ms=1000 * _STEP_SECONDS,
        timeout=deadline,
        deadline=deadline,
    )
    outcome = run(schedule, forks)
    verdict = outcome.verdict
    return Result(verdict.epochs == 1 and outcome.good, verdict.lost, verdict.repeated)


def _until(done: object, client: Process, deadline: float) -> None:
    """Wait until `done()`, the client's end or the deadline: a file tells nobody of a new line."""
    end = time.monotonic() + deadline
    while not done() and client.alive and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(_LOOK_SECONDS)


def _lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def _result(lines: Sequence[str]) -> Result:
    got = Counter(int(line) for line in lines if line != "end")
    return Result("end" in lines, ELEMENTS - len(got), got.total() - len(got))


def compare(forks: Forks, points: Sequence[int], at_once: int) -> str:
    """The table, in Markdown: every way to come back, a run for each point of death."""
    rows = []
    runs = {"tf.data service": service_run, "DistributedInput": our_run}
    with ThreadPoolExecutor(at_once) as pool:
        for comeback, told in COMEBACKS.items():
            for system, one in runs.items():
                jobs = [pool.submit(one, forks, comeback, point) for point in points]
                rows.append(_row(told, system, [job.result() for job in jobs]))
    head = (
        "| killed worker comes back | system | epochs | that never ended | that ended short "
        "| elements lost in those | repeated |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows)


def _row(told: str, system: str, results: Sequence[Result]) -> str:
    ended = [result for result in results if result.ended]
    short = [result.lost for result in ended if result.lost]
    span = f"{min(short)} to {max(short)} of {ELEMENTS}" if short else "none"
    repeated = sum(result.repeated for result in results)
    return (
        f"| {told} | {system} | {len(results)} | {len(results) - len(ended)} | {len(short)} "
        f"| {span} | {repeated} |"
    )


def main() -> int:
    """Print the table, or write it into a document."""
    parser = argparse.ArgumentParser(prog="python -m testing.chaos.incumbent", description=__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--jobs", type=int, default=2, help="at the same time")
    parser.add_argument("--out", type=Path, help="Markdown file whose section is replaced")
    args = parser.parse_args()
    points = [3 + i * (ELEMENTS - 8) // args.runs for i in range(args.runs)]
    try:
        with Forks() as forks:
            found = compare(forks, points, args.jobs)
    except ProcessError as error:
        print(error, file=sys.stderr)
        return 1
    print(found)
    if args.out:
        write_section(args.out, "incumbent", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
