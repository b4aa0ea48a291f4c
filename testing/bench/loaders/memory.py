"""Measure the memory of the ranks of a pod that read 16 sources.

Run `python -m testing.bench.loaders.memory`. Eight processes read batches of 64 images: with
PyTorch's DataLoader and four worker processes each, and with one sidecar and a mixture. Memory is
the proportional set size (PSS): a page that several processes share counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from testing.bench.case import REPO
from testing.bench.loaders import shards
from testing.bench.processes import with_descendants
from testing.bench.systems import default_spec
from testing.frameworks import environment
from testing.integration.cluster import Cluster

_BATCH, _BATCHES = 64, 20


def main() -> None:
    """Print the memory of the processes of each system."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2, help="of DistributedInput")
    options = parser.parse_args()
    shards.write()
    with _ranks("DataLoader", options.ranks, {}) as pids:
        print(f"DataLoader: {options.ranks} ranks {_pss(pids) >> 20} MiB", flush=True)
    names = [str(number) for number in range(shards.SOURCES)]
    mixture = {"weights": dict.fromkeys(names, 1)}
    with Cluster() as cluster:
        workers = cluster.add_workers(options.workers, "--path", str(REPO))
        target, size = "testing.bench.loaders.shards:dataset_fn", _BATCH * options.ranks
        fields: dict[str, Any] = {"globalBatchSize": size, "mixture": mixture}
        one = default_spec(target, {"kind": "source"}, **fields)
        (sidecar,) = cluster.add_sidecars({"train": one}, ranks_per_trainer=options.ranks)
        env = {"DISTRIBUTED_INPUT_DIR": str(sidecar.shared)}
        with _ranks("DistributedInput", options.ranks, env) as pids:
            rest = {"sidecar": [sidecar.pid], "workers": [worker.pid for worker in workers]}
            sizes = {f"{options.ranks} ranks": pids, **rest}
            found = (f"{name} {_pss(some) >> 20} MiB" for name, some in sizes.items())
            print(f"DistributedInput: {', '.join(found)}", flush=True)


@contextlib.contextmanager
def _ranks(system: str, ranks: int, env: dict[str, str]) -> Iterator[list[int]]:
    """Start the ranks, and yield their process ids when all have read some batches."""
    case = json.dumps({"system": system, "kind": "sources", "batches": _BATCHES})
    command = environment.run_module(
        "testing.bench.loaders.loop", case, name="loaders", packages=environment.LOADERS
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = []
    try:
        for rank in range(ranks):
            number = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)}
            environ = {**os.environ, **env, **number}
            started.append(subprocess.Popen(command, cwd=REPO, env=environ, **pipes))  # type: ignore[call-overload]
        for process in started:
            if "ready" not in (line := process.stdout.readline()):
                raise SystemExit(f"a rank of {system} ended: {line}")
        yield [process.pid for process in started]
    finally:
        for process in started:
            with contextlib.suppress(OSError):
                process.stdin.close()  # it ends
        for process in started:
            process.wait()


def _pss(pids: Iterable[int]) -> int:
    """Return the proportional set size of process trees, in bytes."""
    total = 0
    for process in with_descendants(pids):
        with contextlib.suppress(OSError):
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            total += int(re.findall(r"^Pss:\s+(\d+)", text, re.MULTILINE)[0]) << 10
    return total


if __name__ == "__main__":
    main()
