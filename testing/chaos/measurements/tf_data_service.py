"""The same faults in tf.data service and in DistributedInput.

Run `python -m testing.chaos.measurements.tf_data_service`. A dispatcher, two workers and one
trainer read 40 elements. One worker is killed after a number of elements. It restarts at the same
address, at a new address, or never.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from testing.chaos.measurements import document
from testing.chaos.run import run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks, Process, ProcessError

ELEMENTS = 40
RESTARTS = {"same": "at the same address", "new": "at a new address", "never": "never"}
_POLL_SECONDS = 0.02
_DOWN_SECONDS = 0.3
_STEP_SECONDS = 0.02


@dataclass(frozen=True)
class Result:
    """The elements that a trainer received in an epoch.

    Attributes:
        ended: whether the epoch ended before the deadline.
    """

    ended: bool
    lost: int
    repeated: int


class _Service:
    """The processes of tf.data service."""

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
            "testing.chaos.measurements.tf_data_service_process",
            name,
            self.folder,
            [role, *flags],
            heavy=True,
        )
        self._parts.append(part)
        return part


def tf_data_service_run(forks: Forks, restart: str, after: int, deadline: float = 20.0) -> Result:
    """Read one epoch from tf.data service. A worker is killed after `after` elements."""
    service = _Service(forks)
    try:
        log = service.folder / "elements"
        client = service.client(log)
        _until(lambda: len(_lines(log)) >= after, client, deadline)
        service.workers[after % 2].kill()
        time.sleep(_DOWN_SECONDS)  # the time without this worker
        if restart != "never":
            address = service.addresses[after % 2] if restart == "same" else ""
            service.worker(address).ready()
        _until(lambda: "end" in _lines(log), client, deadline)
        return _result(_lines(log))
    finally:
        service.close()


def distributed_input_run(forks: Forks, restart: str, after: int, deadline: float = 20.0) -> Result:
    """Read one epoch from DistributedInput with the same fault."""
    fault = Fault("kill_worker", after, target=after % 2, restart=restart, seconds=_DOWN_SECONDS)
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
    return Result(verdict.epochs == 1 and outcome.passed, verdict.lost, verdict.repeated)


def _until(done: object, client: Process, deadline: float) -> None:
    """Wait for `done()`, the client's end or the deadline. Poll, because a file has no event."""
    end = time.monotonic() + deadline
    while not done() and client.alive and time.monotonic() < end:  # type: ignore[operator]
        time.sleep(_POLL_SECONDS)


def _lines(log: Path) -> list[str]:
    return log.read_text().split() if log.exists() else []


def _result(lines: Sequence[str]) -> Result:
    got = Counter(int(line) for line in lines if line != "end")
    return Result("end" in lines, ELEMENTS - len(got), got.total() - len(got))


def compare(forks: Forks, points: Sequence[int], at_once: int) -> str:
    """Return the table in Markdown: for each kind of restart, one run for each point of death."""
    rows = []
    runs = {"tf.data service": tf_data_service_run, "DistributedInput": distributed_input_run}
    with ThreadPoolExecutor(at_once) as pool:
        for restart, label in RESTARTS.items():
            for system, one in runs.items():
                jobs = [pool.submit(one, forks, restart, point) for point in points]
                rows.append(_row(label, system, [job.result() for job in jobs]))
    head = (
        "| Killed worker restarts | System | Epochs | Never ended | Ended with loss "
        "| Elements lost | Repeated |\n|---|---|---|---|---|---|---|\n"
    )
    return head + "\n".join(rows)


def _row(label: str, system: str, results: Sequence[Result]) -> str:
    ended = [result for result in results if result.ended]
    with_loss = [result.lost for result in ended if result.lost]
    span = f"{min(with_loss)} to {max(with_loss)} of {ELEMENTS}" if with_loss else "none"
    repeated = sum(result.repeated for result in results)
    return (
        f"| {label} | {system} | {len(results)} | {len(results) - len(ended)} | {len(with_loss)} "
        f"| {span} | {repeated} |"
    )


def main() -> int:
    """Compare both systems; print the table or write it into a document."""
    parser = document.parser("tf_data_service", __doc__, runs=10)
    parser.add_argument("--jobs", type=int, default=2, help="runs at once. Default: 2")
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
        document.write_section(args.out, "tf-data-service", found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
