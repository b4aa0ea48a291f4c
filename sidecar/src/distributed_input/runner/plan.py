"""The processes of a run, their command lines and environments: pure functions.

The command lines have the same flags as in pods, so that a configuration that works here works
there.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed_input.api import environment, flags
from distributed_input.api.config import InputConfig
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.process_wrapper import mark

GRACE_SECONDS = 2.0
"""Grace period of our own processes at the end of a run, when no trainer is left."""


def _module(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"distributed_input.{name}")


@dataclass(frozen=True)
class Programs:
    """The commands that start our processes. Tests replace them."""

    dispatcher: tuple[str, ...] = field(default_factory=lambda: _module("dispatcher"))
    worker: tuple[str, ...] = field(default_factory=lambda: _module("worker"))
    sidecar: tuple[str, ...] = field(default_factory=lambda: _module("sidecar"))
    tf_data_service: tuple[str, ...] = field(default_factory=lambda: _module("tf_data_service"))


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
    relaxed: bool = False
    """Random values may differ when a split runs again."""
    tf_data_service: PlannedTfDataService | None = None

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
    programs: Programs = field(default_factory=Programs)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of shared memory over all inputs and trainers."""
        return self.trainers * sum(one.config.sidecar.buffer_bytes for one in self.inputs)

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


def dispatcher_command(plan: Plan, paths: RunFolders, of: PlannedInput, listen: str) -> list[str]:
    """Return the command of an input's dispatcher.

    `listen` is the same after a crash, because other processes have it.
    """
    name = plan.process_name("dispatcher", of)
    common = _process_flags(paths, name, paths.token(of.name))
    return [
        *plan.programs.dispatcher,
        *flags.dispatcher_arguments(flags.DispatcherFlags(listen, common)),
    ]


def worker_command(
    plan: Plan, paths: RunFolders, of: PlannedInput, index: int, listen: str, dispatcher: str
) -> list[str]:
    """Return the command of a worker. `listen` differs at each start."""
    name = plan.process_name("worker", of, index)
    arguments = flags.WorkerFlags(
        listen=listen,
        dispatcher=dispatcher,
        advertise=flags.ADVERTISE_AUTO,
        parallelism=of.parallelism,
        path=of.path,
        relaxed=of.relaxed,
        idle_cpus=of.idle_cpus,
        state_dir=str(paths.states) if paths.states else None,
        process=_process_flags(paths, name, paths.token(of.name)),
    )
    return [*plan.programs.worker, *flags.worker_arguments(arguments)]


def tf_data_dispatcher_command(
    plan: Plan, paths: RunFolders, of: PlannedInput, service: PlannedTfDataService
) -> list[str]:
    """Return the command of an input's tf.data service dispatcher.

    Its journal exists until the end of the run.
    """
    workers = ",".join(f"127.0.0.1:{port}" for port in service.workers)
    arguments = flags.TfDataDispatcherFlags(
        port=service.port,
        work_dir=str(paths.journal(of.name)),
        static_workers=workers if service.static else "",
        ready_file=str(paths.ready(plan.process_name("tf-data-dispatcher", of))),
    )
    return [*plan.programs.tf_data_service, *flags.tf_data_dispatcher_arguments(arguments)]


def tf_data_worker_command(
    plan: Plan, paths: RunFolders, of: PlannedInput, service: PlannedTfDataService, index: int
) -> list[str]:
    """Return the command of a tf.data service worker.

    The port is the same at every start, because TensorFlow identifies workers by address.
    """
    port = service.workers[index]
    arguments = flags.TfDataWorkerFlags(
        dispatcher=f"127.0.0.1:{service.port}",
        port=port,
        advertise=f"127.0.0.1:{port}",
        cache_bytes=service.cache_bytes,
        path=of.path,
        ready_file=str(paths.ready(plan.process_name("tf-data-worker", of, index))),
    )
    return [*plan.programs.tf_data_service, *flags.tf_data_worker_arguments(arguments)]


def sidecar_command(
    plan: Plan, paths: RunFolders, consumer: int, dispatchers: Mapping[str, str]
) -> list[str]:
    """Return the command of trainer `consumer`'s sidecar, for all inputs.

    `dispatchers` has the dispatchers' addresses by input name.
    """
    several = len(plan.inputs) > 1
    where = [f"{n}={dispatchers[n]}" if several else dispatchers[n] for n in plan.names]
    name = plan.process_name("sidecar", index=consumer)
    arguments = flags.SidecarFlags(
        configs=[str(paths.config)],
        dispatchers=where,
        folder=str(paths.consumer(consumer)),
        consumer_index=str(consumer),
        consumer_count=str(plan.trainers),
        process=_process_flags(paths, name, paths.tokens),
    )
    return [*plan.programs.sidecar, *flags.sidecar_arguments(arguments)]


def _process_flags(paths: RunFolders, name: str, token: Path) -> flags.ProcessFlags:
    return flags.ProcessFlags(
        token_file=str(token),
        ready_file=str(paths.ready(name)),
        metrics_listen=flags.METRICS_OFF,
        grace_seconds=GRACE_SECONDS,
    )


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
    """Return a worker's environment, which hides the accelerators.

    TensorFlow allocates all memory of every visible GPU, and the trainer needs the GPUs.

    Args:
        env: environment of a process of ours.
        workers: number of workers that share the memory of this machine.
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
    """Return the environment of trainer `consumer`, without the mark, which its wrapper sets.

    `ports` has one port of this machine per trainer, for a local MultiWorkerMirroredStrategy. A
    TF_CONFIG that the user has set stays.
    """
    env = _without_own_variables(base)
    env[environment.DIR_ENV] = str(paths.consumer(consumer))
    env[environment.NAMES_ENV] = ",".join(plan.names)
    env[environment.CONSUMER_INDEX_ENV] = str(consumer)
    env[environment.CONSUMER_COUNT_ENV] = str(plan.trainers)
    services = {
        one.name: one.tf_data_service.address
        for one in plan.inputs
        if one.tf_data_service is not None
    }
    if services:
        env[environment.TF_DATA_SERVICE_ENV] = environment.tf_data_service_value(services)
    if plan.trainers > 1 and "TF_CONFIG" not in base:
        cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
        task = {"type": "worker", "index": consumer}
        env["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})
    if consumer > 0:
        env.setdefault("PYTHONUNBUFFERED", "1")  # its output is a pipe
    return env


def _without_own_variables(base: Mapping[str, str]) -> dict[str, str]:
    """Return `base` without the variables of an outer run or a pod."""
    return {k: v for k, v in base.items() if k not in environment.LOCAL_RUN_ENV}
