"""DistributedInput as separate processes: dispatcher, workers, and a sidecar for each trainer."""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, input_config
from testing.bench.case import DATA_PLANES, REPO, Case, DataPlane, System, TrainerSetup
from testing.bench.processes import BenchError, Server, server
from testing.certificates import MountedFolder
from testing.processes.network import own_address

_SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class RunningDataPlane:
    case: Case
    plane: DataPlane
    folder: Path
    address: str
    pids: dict[str, list[int]]

    @contextlib.contextmanager
    def trainer_setup(self, index: int) -> Iterator[TrainerSetup]:
        """Start a sidecar with new shared memory, as in a new pod."""
        config = self.folder / "inputs.json"
        config.write_text(
            json.dumps({"inputs": {"bench": _config(self.case, self.plane.transfer)}})
        )
        memory = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="di-bench-", dir=memory) as shared:
            flags = ["--dispatcher", self.address, "--config", str(config), "--dir", shared]
            flags += ["--consumer-index", str(index)]
            flags += ["--consumer-count", str(self.case.trainers)]
            name = f"sidecar-{index}"
            with start_process(
                "sidecar", self.folder, name, *flags, encrypted=self.plane.encrypted
            ) as sidecar:
                sidecar.wait_ready()
                env = {"DISTRIBUTED_INPUT_DIR": shared, "DISTRIBUTED_INPUT_NAMES": "bench"}
                yield TrainerSetup({}, {**self.pids, "sidecar": [sidecar.pid]}, env)


@contextlib.contextmanager
def serve(case: Case, system: str, folder: Path) -> Iterator[System]:
    """Start a dispatcher and the case's workers."""
    plane = DATA_PLANES[system]
    (folder / "token").write_text("bench")
    with contextlib.ExitStack() as stack:
        start = functools.partial(start_process, encrypted=plane.encrypted)
        dispatcher = stack.enter_context(start("dispatcher", folder, "dispatcher"))
        address = dispatcher.wait_ready()["address"]
        flags = ["--dispatcher", address, "--path", str(REPO)]
        if case.parallelism:
            flags += ["--parallelism", str(case.parallelism)]
        if not plane.loopback:
            if not (host := own_address()):
                raise BenchError(f"{system}: this machine has no address but loopback")
            flags += ["--listen", f"{host}:0"]
        workers = [
            stack.enter_context(start("worker", folder, f"worker-{i}", *flags))
            for i in range(case.workers)
        ]
        for worker in workers:
            worker.wait_ready()
        pids = {"dispatcher": [dispatcher.pid], "worker": [worker.pid for worker in workers]}
        yield RunningDataPlane(case, plane, folder, address, pids)


def _config(case: Case, transfer: str) -> dict[str, Any]:
    """Return the data plane's configuration for this case, with the product's defaults."""
    source = {"type": "Path", "path": str(REPO)}
    entry = {"function": case.target, "args": dict(case.args), "source": source}
    spec: dict[str, Any] = {
        "dataset": {"type": "EntryPoint", "entryPoint": entry},
        "sidecar": {"transfer": transfer},
    }
    if case.partitions:
        spec["partitions"] = case.partitions
    resource = DistributedInput.model_validate(
        {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "bench"}, "spec": spec}
    )
    return input_config(resource).to_json()


def start_process(
    part: str,
    folder: Path,
    name: str,
    *flags: str,
    metrics: str = "off",
    encrypted: bool = False,
) -> contextlib.AbstractContextManager[Server]:
    """Start a process of the data plane, with the token in `folder` or with a certificate."""
    ready = folder / f"{name}.ready"
    argv = [sys.executable, "-m", f"distributed_input.{part}", *flags]
    if encrypted:
        # The sidecar takes the folder with the folders of all inputs.
        own = MountedFolder(folder / "tls" / part / "bench").issue(part)
        argv += ["--tls-dir", str(own.parent if part == "sidecar" else own)]
    else:
        argv += ["--token-file", str(folder / "token")]
    argv += ["--ready-file", str(ready)]
    argv += ["--metrics-listen", metrics, "--grace-seconds", "2"]
    return server(argv, ready, folder / f"{name}.log")
