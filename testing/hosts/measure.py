"""`python -m testing.hosts.measure`: what faults of the network cost a trainer, with defaults.

A trainer and its sidecar, two workers and the dispatcher have a host each. In the middle of an
epoch, a fault begins. The table has the waits of the steps after that. `--encryption None` measures
connections without TLS.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from testing.hosts import Host, network
from testing.hosts.faults import dropping, forgotten, vanished
from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.integration.tls_cluster import INPUT, TlsCluster

BATCH, PARTITIONS = 16, 8
_STEP_SECONDS = 0.02  # of the trainer, which takes 50 MiB a second


@dataclass(frozen=True)
class Hosts:
    """The hosts of a run."""

    trainer: Host
    workers: Sequence[Host]
    dispatcher: Host


Fault = Callable[[Hosts], contextlib.AbstractContextManager[None]]
FAULTS: dict[str, Fault] = {
    "nothing": lambda hosts: contextlib.nullcontext(),
    "a worker's host vanishes": lambda hosts: vanished(hosts.workers[0]),
    "a worker receives nothing": lambda hosts: dropping(hosts.workers[0], "in"),
    "a worker sends nothing": lambda hosts: dropping(hosts.workers[0], "out"),
    "a worker does not reach the trainer": lambda hosts: dropping(
        hosts.workers[0], "out", "-d", hosts.trainer.address
    ),
    "a NAT forgets a worker's connections": lambda hosts: forgotten(hosts.workers[0]),
    "5 % of a worker's packets are lost": lambda hosts: dropping(
        hosts.workers[0], "out", *"-m statistic --mode random --probability 0.05".split()
    ),
    "the dispatcher's host vanishes": lambda hosts: vanished(hosts.dispatcher),
}


@dataclass(frozen=True)
class Outcome:
    """An epoch with a fault.

    Attributes:
        rows: the ids of all rows, in the order of their arrival.
        waits: seconds that each step after the fault waited.
        causes: why streams were opened again, each once.
    """

    rows: Sequence[int]
    waits: Sequence[float]
    causes: Sequence[str]


@contextlib.contextmanager
def _cluster(encrypted: bool) -> Iterator[tuple[Cluster, Hosts]]:
    with network(*[[]] * 4) as (trainer, first, second, dispatcher):
        hosts = Hosts(trainer, (first, second), dispatcher)
        places = {"dispatcher": dispatcher, "sidecar": trainer}
        places |= {"worker-0": first, "worker-1": second}
        with (TlsCluster if encrypted else Cluster)(hosts=places) as cluster:
            yield cluster, hosts


def read(fault: Fault, steps: int, after: int, encrypted: bool = True) -> Outcome:
    """Read an epoch of so many steps. The fault begins behind step `after`, and stays."""
    rows: list[int] = []
    waits: list[float] = []
    args = {"rows": steps * BATCH}
    one = spec("rows:images", args, globalBatchSize=BATCH, epochs=1, partitions=PARTITIONS)
    with _cluster(encrypted) as (cluster, hosts), contextlib.ExitStack() as faults:
        cluster.add_workers(2)
        (sidecar,) = cluster.add_sidecars({INPUT: one})
        with readers.connect(sidecar, timeout=60.0) as data:
            batches = data.numpy()
            while True:
                began = time.monotonic()
                batch = next(batches, None)
                waits.append(time.monotonic() - began)
                if batch is None:
                    break
                rows += batch["id"].tolist()
                if len(waits) == after:
                    faults.enter_context(fault(hosts))
                time.sleep(_STEP_SECONDS)
        faults.close()
        lines = [json.loads(one) for one in sidecar.new_log_lines().splitlines() if one[:1] == "{"]
        broken = [one for one in lines if one["message"].startswith("stream broke")]
    causes = dict.fromkeys(one["cause"].partition(": ")[2] for one in broken)
    return Outcome(rows, waits[after:], list(causes))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m testing.hosts.measure", description=__doc__)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encryption", choices=("All", "None"), default="All")
    options = parser.parse_args()
    print("| Fault | Longest wait, s | p99, s | p50, s | What the sidecar says |")
    print("|---|---|---|---|---|")
    for name, fault in FAULTS.items():
        found = [
            read(fault, options.steps, options.steps // 3, options.encryption == "All")
            for _ in range(options.rounds)
        ]
        for one in found:
            assert sorted(one.rows) == list(range(options.steps * BATCH)), "rows were lost"
        waits = sorted(wait for one in found for wait in one.waits)
        longest = [max(one.waits) for one in found]
        causes = dict.fromkeys(cause[:80] for one in found for cause in one.causes)
        cells = [
            name,
            f"{statistics.median(longest):.2f} ({min(longest):.2f} to {max(longest):.2f})",
            f"{waits[len(waits) * 99 // 100]:.3f}",
            f"{statistics.median(waits):.4f}",
            "; ".join(list(causes)[:2]) or "-",
        ]
        print("|", " | ".join(cells), "|", flush=True)


if __name__ == "__main__":
    main()
