"""Which processes a run consists of, their command lines and environments: pure.

The command lines are the ones that pods get, so that what works here works there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed_input.runner.folders import Folders
from distributed_input.runner.processes import guard

GRACE_SECONDS = 2.0
"""For our own parts at the end: nobody is served any more."""
_DIE_WITH_PARENT_ENV = "DISTRIBUTED_INPUT_DIE_WITH_PARENT"
_OURS = frozenset(
    {
        guard.MARK_ENV,
        _DIE_WITH_PARENT_ENV,
        "DISTRIBUTED_INPUT_TOKEN",
        "DISTRIBUTED_INPUT_DIR",
        "DISTRIBUTED_INPUT_NAMES",
        "DISTRIBUTED_INPUT_CONSUMER_INDEX",
        "DISTRIBUTED_INPUT_CONSUMER_COUNT",
        "DISTRIBUTED_INPUT_TF_DATA_SERVICE",
    }
)


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"distributed_input.{name}")


@dataclass(frozen=True)
class Programs:
    """How the parts are called; stand-ins in tests."""

    dispatcher: tuple[str, ...] = field(default_factory=lambda: _module("dispatcher"))
    worker: tuple[str, ...] = field(default_factory=lambda: _module("worker"))
    sidecar: tuple[str, ...] = field(default_factory=lambda: _module("sidecar"))
    stock: tuple[str, ...] = field(default_factory=lambda: _module("tf_data_service"))


@dataclass(frozen=True)
class Stock:
    """TensorFlow's own tf.data service for one input: ports of this machine, known beforehand."""

    port: int
    workers: tuple[int, ...]
    static: bool = False
    """Its dispatcher is told the workers at its start."""
    cache_bytes: int = 0
    """Of cross-trainer caches; 0: TensorFlow's default."""

    @property
    def address(self) -> str:
        """What `tf.data.experimental.service.distribute` takes."""
        return f"grpc://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class Input:
    """One DistributedInput as the data plane sees it."""

    name: str
    config: Mapping[str, Any]
    """Defaulted fields, camelCase: what the sidecar reads."""
    workers: int = 1
    parallelism: int | None = None
    """Rows that a worker computes at once; None: its own choice."""
    port: int = 0
    """Of the dispatcher; 0: any."""
    path: str | None = None
    """A folder that workers put before sys.path."""
    relaxed: bool = False
    """Workers run without op determinism."""
    stock: Stock | None = None
    """TensorFlow's own tf.data service, where it is wanted."""

    @property
    def buffer(self) -> int:
        """Bytes that each trainer's sidecar keeps ready."""
        return int(self.config.get("sidecar", {}).get("bufferBytes", 0))


@dataclass(frozen=True)
class Plan:
    """Everything that is known before anything is started."""

    inputs: tuple[Input, ...]
    command: tuple[str, ...]
    """The trainer's."""
    trainers: int = 1
    programs: Programs = field(default_factory=Programs)

    @property
    def buffers(self) -> int:
        """Bytes of shared memory over all inputs and trainers."""
        return self.trainers * sum(one.buffer for one in self.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names, in the order of the file."""
        return tuple(one.name for one in self.inputs)

    def part(self, kind: str, of: Input | None = None, index: int | None = None) -> str:
        """The name of a part: worker-0, or train-worker-0 where there are several inputs."""
        words = [of.name] if of and len(self.inputs) > 1 else []
        return "-".join([*words, kind, *([] if index is None else [str(index)])])


@dataclass(frozen=True)
class Files:
    """Where the parts of a run find and leave things."""

    folders: Folders

    def tokens(self) -> Path:
        """A file for each input, by its name: what a sidecar takes."""
        return self.folders.path / "tokens"

    def token(self, of: Input) -> Path:
        """The token of one input."""
        return self.tokens() / of.name

    def ready(self, part: str) -> Path:
        """What a part writes once it serves."""
        return self.folders.path / f"{part}.ready"

    def journal(self, of: Input) -> Path:
        """Of an input's stock dispatcher."""
        return self.folders.path / "journals" / of.name

    def config(self) -> Path:
        """The sidecars' configuration."""
        return self.folders.path / "inputs.json"

    def shared(self, consumer: int) -> Path:
        """Socket and ring of one consumer; short, for a socket's path has at most 107 bytes."""
        return self.folders.shared / str(consumer)


def dispatcher_command(plan: Plan, files: Files, of: Input, listen: str) -> list[str]:
    """The dispatcher of input `of`, on `listen`: port 0 first, after a crash its old one."""
    part = plan.part("dispatcher", of)
    common = _common(files, part, files.token(of))
    return [*plan.programs.dispatcher, "--listen", listen, *common]


def worker_command(plan: Plan, files: Files, of: Input, index: int, dispatcher: str) -> list[str]:
    """Worker `index` of input `of`, at a new port in every life."""
    command = [*plan.programs.worker, "--listen", "127.0.0.1:0", "--advertise", "auto"]
    part = plan.part("worker", of, index)
    command += ["--dispatcher", dispatcher, *_common(files, part, files.token(of))]
    if of.parallelism:
        command += ["--parallelism", str(of.parallelism)]
    if of.path:
        command += ["--path", of.path]
    if of.relaxed:
        command += ["--relaxed"]
    return command


def stock_dispatcher_command(plan: Plan, files: Files, of: Input, stock: Stock) -> list[str]:
    """The stock dispatcher of an input; its journal lasts as long as the run."""
    part = plan.part("tf-data-dispatcher", of)
    command = [*plan.programs.stock, "dispatcher", "--ready-file", str(files.ready(part))]
    command += ["--port", str(stock.port), "--work-dir", str(files.journal(of))]
    if stock.static:
        workers = ",".join(f"127.0.0.1:{port}" for port in stock.workers)
        command += ["--static-workers", workers]
    return command


def stock_worker_command(
    plan: Plan, files: Files, of: Input, stock: Stock, index: int
) -> list[str]:
    """A stock worker, at the same port in every life: TensorFlow takes it for the same one."""
    part = plan.part("tf-data-worker", of, index)
    command = [*plan.programs.stock, "worker", "--ready-file", str(files.ready(part))]
    command += ["--dispatcher", f"127.0.0.1:{stock.port}", "--port", str(stock.workers[index])]
    command += ["--advertise", f"127.0.0.1:{stock.workers[index]}"]
    command += ["--cache-bytes", str(stock.cache_bytes)]
    return [*command, *(("--path", of.path) if of.path else ())]


def sidecar_command(
    plan: Plan, files: Files, consumer: int, dispatchers: Mapping[str, str]
) -> list[str]:
    """The sidecar of trainer `consumer`, for all inputs; `dispatchers` by the inputs' names."""
    named = len(plan.inputs) > 1
    command = [*plan.programs.sidecar]
    for one in plan.inputs:
        address = dispatchers[one.name]
        command += ["--dispatcher", f"{one.name}={address}" if named else address]
    command += ["--config", str(files.config()), "--dir", str(files.shared(consumer))]
    command += ["--consumer-index", str(consumer), "--consumer-count", str(plan.trainers)]
    return [*command, *_common(files, plan.part("sidecar", index=consumer), files.tokens())]


def _common(files: Files, part: str, token: Path) -> list[str]:
    return [
        *("--token-file", str(token), "--ready-file", str(files.ready(part))),
        *("--metrics-listen", "off", "--grace-seconds", f"{GRACE_SECONDS:g}"),
    ]


def sidecar_config(plan: Plan) -> dict[str, Any]:
    """The content of the sidecars' configuration file."""
    return {"inputs": {one.name: dict(one.config) for one in plan.inputs}}


def part_env(base: Mapping[str, str], run: str, part: str, runner_pid: int) -> dict[str, str]:
    """The environment of one of our own processes."""
    env = _without_ours(base)
    env[guard.MARK_ENV] = guard.mark(run, part)
    env[_DIE_WITH_PARENT_ENV] = str(runner_pid)
    # The part may run in another folder than ours.
    if env.get("PYTHONPATH"):
        parts = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) if p else p for p in parts)
    env.pop("TF_CONFIG", None)  # the trainers' cluster is none of a worker's business
    return env


def worker_env(env: Mapping[str, str]) -> dict[str, str]:
    """A worker's environment: as a part's, without the accelerators that the trainer needs.

    TensorFlow takes all memory of every GPU it sees, and here the GPUs are the trainer's.
    """
    return {**env, "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}


def trainer_env(
    base: Mapping[str, str], plan: Plan, files: Files, consumer: int, ports: Sequence[int]
) -> dict[str, str]:
    """The environment of trainer `consumer`; its mark is the guard's to set.

    `ports` on this machine, one a trainer, are for a local MultiWorkerMirroredStrategy. A
    TF_CONFIG of the user's stays.
    """
    env = _without_ours(base)
    env["DISTRIBUTED_INPUT_DIR"] = str(files.shared(consumer))
    env["DISTRIBUTED_INPUT_NAMES"] = ",".join(plan.names)
    env["DISTRIBUTED_INPUT_CONSUMER_INDEX"] = str(consumer)
    env["DISTRIBUTED_INPUT_CONSUMER_COUNT"] = str(plan.trainers)
    stock = {one.name: one.stock.address for one in plan.inputs if one.stock is not None}
    if stock:
        named = ",".join(f"{name}={address}" for name, address in stock.items())
        env["DISTRIBUTED_INPUT_TF_DATA_SERVICE"] = (
            named if len(stock) > 1 else next(iter(stock.values()))
        )
    if plan.trainers > 1 and "TF_CONFIG" not in base:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        task = {"type": "worker", "index": consumer}
        env["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    if consumer > 0:
        env.setdefault("PYTHONUNBUFFERED", "1")  # its output goes through a pipe
    return env


def _without_ours(base: Mapping[str, str]) -> dict[str, str]:
    """`base` without what an outer run, or a pod, has set for us."""
    return {k: v for k, v in base.items() if k not in _OURS}
