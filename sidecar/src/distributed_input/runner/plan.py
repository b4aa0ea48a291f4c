"""The processes of a run, their command lines and environments: pure functions.

The command lines have the same flags as in pods, so that a configuration that works here works
there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed_input.api import environment, flags
from distributed_input.api.config import InputConfig
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.process_wrapper import mark

GRACE_SECONDS = 2.0
"""Grace period of our own processes at the end of a run, when no trainer is left."""


PROGRAMS: Mapping[str, tuple[str, ...]] = {
    kind: (sys.executable, "-m", f"distributed_input.{kind}")
    for kind in ("dispatcher", "worker", "sidecar", "tf_data_service")
}
"""The commands that start our processes, by kind. Tests replace them."""


@dataclass(frozen=True)
class PlannedTfDataService:
    """TensorFlow's own tf.data service for one input, on fixed ports of this machine."""

    port: int
    workers: tuple[int, ...]
    static: bool = False
    """Its dispatcher gets the list of workers when it starts."""
    cache_bytes: int = 0
    """Size of cross-trainer caches; 0: TensorFlow's default."""

    @property
    def address(self) -> str:
        """The address that `tf.data.experimental.service.distribute` takes."""
        return f"grpc://127.0.0.1:{self.port}"


@dataclass(frozen=True)
class PlannedInput:
    """One DistributedInput of the run."""

    name: str
    config: InputConfig = field(default_factory=InputConfig)
    workers: int = 1
    idle_cpus: bool = False
    """The workers use only CPUs that the trainers leave idle."""
    parallelism: int | None = None
    """Rows that a worker computes at once; None: the worker's default."""
    tf_data_service: PlannedTfDataService | None = None
    store_dir: Path | None = None
    """Folder of computed splits, which later runs use too; None: they are not stored."""
    store_bytes: int | None = None

    @property
    def path(self) -> str | None:
        """The folder that workers insert at the start of sys.path."""
        return self.config.dataset.source.path


@dataclass(frozen=True)
class Plan:
    """Everything about a run that is known before any process starts."""

    inputs: tuple[PlannedInput, ...]
    command: tuple[str, ...]
    """The trainer's command."""
    trainers: int = 1
    ranks_per_trainer: int = 1
    """Processes of each trainer. Each runs the trainer's command, and is a consumer."""
    trainers_per_rank: int = 1
    """Trainers that read the same rows."""
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: PROGRAMS)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of shared memory over all inputs and consumers."""
        return self.consumers * sum(one.config.sidecar.buffer_bytes for one in self.inputs)

    @property
    def consumers(self) -> int:
        """Number of processes that run the trainer's command."""
        return self.trainers * self.ranks_per_trainer

    @property
    def workers(self) -> int:
        """Number of workers over all inputs."""
        return sum(one.workers for one in self.inputs)

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs' names, in the order of the file."""
        return tuple(one.name for one in self.inputs)

    def process_name(
        self, kind: str, of: PlannedInput | None = None, index: int | None = None
    ) -> str:
        """Return a process's name: worker-0, or train-worker-0 if there are several inputs."""
        words = [of.name] if of and len(self.inputs) > 1 else []
        return "-".join([*words, kind, *([] if index is None else [str(index)])])


@dataclass(frozen=True)
class PlannedProcess:
    """One process of ours."""

    name: str
    command: Callable[[int], list[str]]
    """Returns the command of a start, whose number is used once in a run."""
    input_name: str = ""
    """The input that it belongs to; empty: all inputs."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Its variables in addition to `process_env`."""
    in_users_folder: bool = False
    """The user's code may name files relative to the user's folder."""


def dispatcher_address(plan: Plan, paths: RunFolders, of: PlannedInput) -> str:
    """Return the address of an input's dispatcher. It is the same after a crash."""
    return paths.socket("dispatcher", plan.inputs.index(of))


def dispatchers(plan: Plan, paths: RunFolders) -> list[PlannedProcess]:
    """Return the dispatchers, which all other processes need."""
    return [_dispatcher(plan, paths, of) for of in plan.inputs]


def other_processes(plan: Plan, paths: RunFolders) -> list[PlannedProcess]:
    """Return the workers, the processes of tf.data services, and the sidecars."""
    found = [_worker(plan, paths, of, index) for of in plan.inputs for index in range(of.workers)]
    for of in plan.inputs:
        if of.tf_data_service is not None:
            found += _tf_data_processes(plan, paths, of, of.tf_data_service)
    return [*found, *(_sidecar(plan, paths, trainer) for trainer in range(plan.trainers))]


def _dispatcher(plan: Plan, paths: RunFolders, of: PlannedInput) -> PlannedProcess:
    name = plan.process_name("dispatcher", of)
    arguments = flags.arguments(
        listen=dispatcher_address(plan, paths, of),
        **_process_settings(paths, name, paths.token(of.name)),
    )
    command = _fixed(plan.programs["dispatcher"], arguments)
    return PlannedProcess(name, command, of.name)


def _worker(plan: Plan, paths: RunFolders, of: PlannedInput, index: int) -> PlannedProcess:
    name = plan.process_name("worker", of, index)

    def command(start: int) -> list[str]:
        arguments = flags.arguments(
            listen=paths.socket("worker", start),
            dispatcher=dispatcher_address(plan, paths, of),
            advertise=flags.ADVERTISE_AUTO,
            parallelism=of.parallelism,
            path=of.path,
            relaxed=of.config.determinism == "relaxed",
            idle_cpus=of.idle_cpus,
            state_dir=str(paths.states) if paths.states else None,
            store_dir=str(of.store_dir) if of.store_dir else None,
            store_bytes=of.store_bytes,
            **_process_settings(paths, name, paths.token(of.name)),
        )
        return [*plan.programs["worker"], *arguments]

    return PlannedProcess(name, command, of.name, worker_env({}, plan.workers), True)


def _tf_data_processes(
    plan: Plan, paths: RunFolders, of: PlannedInput, service: PlannedTfDataService
) -> list[PlannedProcess]:
    """Return the dispatcher and the workers of an input's tf.data service.

    The dispatcher's journal exists until the end of the run. The port of a worker is the same at
    every start, because TensorFlow identifies workers by address.
    """
    name = plan.process_name("tf-data-dispatcher", of)
    workers = [f"127.0.0.1:{port}" for port in service.workers]
    dispatcher = flags.arguments(
        port=service.port,
        work_dir=str(paths.journal(of.name)),
        static_workers=",".join(workers) if service.static else "",
        ready_file=str(paths.ready(name)),
    )
    arguments = {name: ["dispatcher", *dispatcher]}
    for index, (port, address) in enumerate(zip(service.workers, workers, strict=True)):
        worker_name = plan.process_name("tf-data-worker", of, index)
        worker = flags.arguments(
            dispatcher=f"127.0.0.1:{service.port}",
            port=port,
            advertise=address,
            cache_bytes=service.cache_bytes,
            path=of.path,
            ready_file=str(paths.ready(worker_name)),
        )
        arguments[worker_name] = ["worker", *worker]
    program, env = plan.programs["tf_data_service"], worker_env({})
    return [
        PlannedProcess(one, _fixed(program, own), of.name, env, one != name)
        for one, own in arguments.items()
    ]


def _sidecar(plan: Plan, paths: RunFolders, trainer: int) -> PlannedProcess:
    """Return the sidecar of a trainer, for all inputs."""
    name = plan.process_name("sidecar", index=trainer)
    several = len(plan.inputs) > 1
    arguments = flags.arguments(
        config=str(paths.config),
        dispatcher=[
            f"{of.name}=" * several + dispatcher_address(plan, paths, of) for of in plan.inputs
        ],
        dir=str(paths.trainer(trainer)),
        consumer_index=trainer,
        consumer_count=plan.trainers,
        ranks_per_trainer=_ranks_flag(plan),
        **_process_settings(paths, name, paths.tokens),
    )
    return PlannedProcess(name, _fixed(plan.programs["sidecar"], arguments))


def _ranks_flag(plan: Plan) -> str | None:
    """Return the ranks of each trainer for its sidecar. None: the default."""
    if plan.trainers_per_rank > 1:
        return f"1/{plan.trainers_per_rank}"
    return str(plan.ranks_per_trainer) if plan.ranks_per_trainer > 1 else None


def _fixed(program: Sequence[str], arguments: Sequence[str]) -> Callable[[int], list[str]]:
    """Return a command that is the same at each start."""
    return lambda _: [*program, *arguments]


def _process_settings(paths: RunFolders, name: str, token: Path) -> dict[str, str | float]:
    """Return the flags that dispatchers, workers and sidecars have in common."""
    return {
        "grace_seconds": GRACE_SECONDS,
        "token_file": str(token),
        "ready_file": str(paths.ready(name)),
        "metrics_listen": flags.METRICS_OFF,
    }


def sidecar_config(plan: Plan) -> dict[str, Any]:
    """Return the content of the sidecars' configuration file."""
    return {"inputs": {one.name: one.config.to_json() for one in plan.inputs}}


def process_env(base: Mapping[str, str], run: str, name: str, runner_pid: int) -> dict[str, str]:
    """Return the environment of one of our processes."""
    env = _without_own_variables(base)
    env[environment.RUN_MARK_ENV] = mark(run, name)
    env[environment.DIE_WITH_PARENT_ENV] = str(runner_pid)
    # The process may have another working folder, so relative entries become absolute.
    if env.get("PYTHONPATH"):
        entries = env["PYTHONPATH"].split(os.pathsep)
        env["PYTHONPATH"] = os.pathsep.join(os.path.abspath(p) if p else p for p in entries)
    env.pop("TF_CONFIG", None)  # it describes the trainers' cluster
    return env


def worker_env(env: Mapping[str, str], workers: int = 1) -> dict[str, str]:
    """Return the environment of one of `workers` on this machine. It hides the accelerators.

    TensorFlow allocates all memory of every visible GPU, and the trainer needs the GPUs.
    """
    return {
        **env,
        "CUDA_VISIBLE_DEVICES": "-1",
        "HIP_VISIBLE_DEVICES": "-1",
        environment.MACHINE_WORKERS_ENV: str(workers),
    }


def trainer_env(
    base: Mapping[str, str], plan: Plan, paths: RunFolders, consumer: int, ports: Sequence[int]
) -> dict[str, str]:
    """Return the environment of consumer `consumer`, without the mark, which its wrapper sets.

    `ports` has ports of this machine: one per consumer, for a local MultiWorkerMirroredStrategy,
    and one for torch.distributed. A TF_CONFIG that the user has set stays.
    """
    trainer, rank = divmod(consumer, plan.ranks_per_trainer)
    env = _without_own_variables(base)
    env[environment.DIR_ENV] = str(paths.trainer(trainer))
    env[environment.NAMES_ENV] = ",".join(plan.names)
    env[environment.CONSUMER_INDEX_ENV] = str(trainer)
    env[environment.CONSUMER_COUNT_ENV] = str(plan.trainers)
    services = {
        one.name: one.tf_data_service.address
        for one in plan.inputs
        if one.tf_data_service is not None
    }
    if services:
        env[environment.TF_DATA_SERVICE_ENV] = environment.tf_data_service_value(services)
    if _ranks_flag(plan):
        env |= _rank_variables(plan, trainer, rank, ports[-1])
    if plan.consumers > 1 and "TF_CONFIG" not in base:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports[: plan.consumers]]}
        task = {"type": "worker", "index": consumer}
        env["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    if consumer > 0:
        env.setdefault("PYTHONUNBUFFERED", "1")  # its output is a pipe
    return env


def _rank_variables(plan: Plan, trainer: int, rank: int, port: int) -> dict[str, str]:
    """Return the variables that torchrun would set, with each trainer as a node."""
    return {
        "RANK": str(trainer * plan.ranks_per_trainer + rank),
        "WORLD_SIZE": str(plan.consumers),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(plan.ranks_per_trainer),
        "GROUP_RANK": str(trainer),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def _without_own_variables(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without the variables of an outer run or a pod."""
    return {k: v for k, v in base.items() if k not in environment.LOCAL_RUN_ENV}
