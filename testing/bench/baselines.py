"""The baselines: tf.data in the trainer's process, and tf.data service.

`python -m testing.bench.baselines dispatcher|worker READY_FILE [DISPATCHER]` runs one server.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testing.bench.case import LOCAL, SERVICE_AUTO, Case, System, TrainerSetup
from testing.bench.processes import Server, server


@dataclass(frozen=True)
class _Static:
    """Servers that any number of trainers use, one after another."""

    options: Mapping[str, Any]
    pids: Mapping[str, list[int]]

    @contextlib.contextmanager
    def trainer_setup(self, _index: int) -> Iterator[TrainerSetup]:
        yield TrainerSetup(self.options, self.pids)


@contextlib.contextmanager
def serve(case: Case, system: str, folder: Path) -> Iterator[System]:
    """Start the servers of a baseline: none, or a dispatcher and workers."""
    if system == LOCAL:
        yield _Static({}, {})
        return
    with contextlib.ExitStack() as stack:
        dispatcher = stack.enter_context(_server("dispatcher", folder))
        address = dispatcher.wait_ready()["address"]
        workers = [
            stack.enter_context(_server("worker", folder, i, address)) for i in range(case.workers)
        ]
        for worker in workers:
            worker.wait_ready()
        options = {
            "address": f"grpc://{address}",
            "compression": "AUTO" if system == SERVICE_AUTO else None,
        }
        pids = {"dispatcher": [dispatcher.pid], "worker": [worker.pid for worker in workers]}
        yield _Static(options, pids)


def _server(
    part: str, folder: Path, index: int = 0, *rest: str
) -> contextlib.AbstractContextManager[Server]:
    ready = folder / f"{part}-{index}.ready"
    argv = [sys.executable, "-m", "testing.bench.baselines", part, str(ready), *rest]
    return server(argv, ready, folder / f"{part}-{index}.log")


def main() -> None:
    """Run a server of tf.data service until stdin ends."""
    import tensorflow as tf

    service = tf.data.experimental.service
    if sys.argv[1] == "dispatcher":
        made = service.DispatchServer()
        address = made.target.partition("://")[2]
    else:
        made = service.WorkerServer(service.WorkerConfig(dispatcher_address=sys.argv[3]))
        address = ""
    ready = Path(sys.argv[2])
    temporary = ready.with_suffix(".new")
    temporary.write_text(json.dumps({"address": address}))
    os.rename(temporary, ready)
    sys.stdin.read()


if __name__ == "__main__":
    main()
