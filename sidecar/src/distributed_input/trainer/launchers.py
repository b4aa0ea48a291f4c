"""The rank of this process among all that train together, as launchers such as torchrun set it.

A launcher starts several processes on a machine. If their trainer has as many ranks
(`distributed-input.dev/ranks-per-trainer`), each process is a consumer. Otherwise only one process
can read. Nothing here imports a framework.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError, FencedError
from distributed_input.api.names import RANKS_ANNOTATION
from distributed_input.api.proto import trainer_pb2


@dataclass(frozen=True)
class _Launcher:
    """The variables of one launcher.

    `local` is the rank on the machine. Without it, the others describe no process: operators of
    trainers set RANK and WORLD_SIZE to numbers of pods.
    """

    name: str
    index: str
    count: str
    local: str
    local_counts: tuple[str, ...]
    """Those with the number of ranks on the machine. The first one that is set counts."""


_LAUNCHERS = (
    _Launcher(
        "torchrun",  # and DeepSpeed
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "WORLD_SIZE"),
    ),
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        ("OMPI_COMM_WORLD_LOCAL_SIZE",),
    ),
    _Launcher(
        "mpirun",  # MPICH, Intel MPI
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        ("MPI_LOCALNRANKS",),
    ),
    _Launcher("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", ("SLURM_NTASKS_PER_NODE",)),
)
_TRAINER_TASKS = ("chief", "master", "worker")
"""TF_CONFIG's task types that read inputs, in the order of their ranks."""
_MOST_DIGITS = 9


def rank_of_process() -> trainer_pb2.Rank | None:
    """Return the rank of this process, from a launcher, TF_CONFIG or jax.distributed; or None."""
    return _from_variables(os.environ) or _from_tf_config(os.environ) or _from_jax(sys.modules)


def requested_rank(index: int | None, count: int | None) -> trainer_pb2.Rank | None:
    """Return the rank that the program requests, or None if it passes neither value.

    Raises:
        ConfigError: only one value is passed, or they are no rank.
    """
    if index is None and count is None:
        return None
    if type(index) is not int or type(count) is not int or not 0 <= index < count < 1 << 31:
        raise ConfigError(
            f"connect(rank={index!r}, world_size={count!r}): pass both: the number of processes "
            "that read, and the index of this one, from 0"
        )
    return trainer_pb2.Rank(
        index=index, count=count, source="connect(rank=..., world_size=...)", requested=True
    )


def process_of(rank: trainer_pb2.Rank | None) -> int:
    """Return a number that differs for the processes of a trainer."""
    if rank is None:
        return 0
    return rank.reader if rank.readers > 1 else rank.index


def requested_data_rank(
    index: int | None, count: int | None, requested: trainer_pb2.Rank | None
) -> trainer_pb2.Rank | None:
    """Return the data rank that the program requests, or `requested` if it passes neither value.

    Args:
        index: the data rank of this process.
        count: the number of data ranks.
        requested: the rank among all processes, if the program passes it.

    Raises:
        ConfigError: only one value is passed, they are no rank, or the number of processes is
            unknown or not divided by `count`.
    """
    if index is None and count is None:
        return requested
    source = f"connect(data_rank={index!r}, data_size={count!r})"
    if type(index) is not int or type(count) is not int or not 0 <= index < count < 1 << 31:
        raise ConfigError(
            f"{source}: pass both: the number of groups of processes that read the same batches, "
            "and the index of this process's group, from 0"
        )
    process = requested or rank_of_process()
    if process is None:
        raise ConfigError(
            f"{source}: the number of all processes is unknown. Start them with torchrun, mpirun "
            "or srun, or pass also rank and world_size"
        )
    if process.count % count:
        raise ConfigError(
            f"{source}: {process.count} processes ({process.source}) cannot be divided into "
            f"{count} groups of the same size. Use a data_size that divides {process.count}"
        )
    return trainer_pb2.Rank(
        index=index,
        count=count,
        source=source,
        requested=True,
        readers=process.count // count,
        reader=process.index,
    )


def _from_variables(env: Mapping[str, str]) -> trainer_pb2.Rank | None:
    for one in _LAUNCHERS:
        index, count, local = (_number(env, name) for name in (one.index, one.count, one.local))
        if index is not None and count is not None and local is not None:
            source = f"{one.index} and {one.count} ({one.name})"
            return trainer_pb2.Rank(index=index, count=count, source=source)
    return None


def _from_tf_config(env: Mapping[str, str]) -> trainer_pb2.Rank | None:
    """Return the rank among the tasks chief, master and worker; None for other tasks."""
    try:
        config = json.loads(env.get("TF_CONFIG", ""))
        kind, index = config["task"]["type"], int(config["task"]["index"])
        counts = [len(config["cluster"].get(one, ())) for one in _TRAINER_TASKS]
        place = _TRAINER_TASKS.index(kind)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not 0 <= index < counts[place]:
        return None
    rank = sum(counts[:place]) + index
    return trainer_pb2.Rank(index=rank, count=sum(counts), source="TF_CONFIG")


def _from_jax(modules: Mapping[str, Any]) -> trainer_pb2.Rank | None:
    """Return the rank in jax.distributed, if the program has initialized it.

    `jax.process_index` has the same values, but it would start the accelerators.
    """
    state = getattr(modules.get("jax._src.distributed"), "global_state", None)
    index, count = (getattr(state, name, None) for name in ("process_id", "num_processes"))
    if getattr(state, "client", None) is None or type(index) is not int or type(count) is not int:
        return None
    return trainer_pb2.Rank(index=index, count=count, source="jax.distributed")


def _number(env: Mapping[str, str], name: str) -> int | None:
    text = env.get(name, "")
    is_number = text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS
    return int(text) if is_number else None


def remedy(env: Mapping[str, str]) -> str:
    """Return what to do if a launcher started several processes on this machine, else ""."""
    for one in _LAUNCHERS:
        rank = _number(env, one.local)
        count = _number(env, next((name for name in one.local_counts if name in env), ""))
        if rank is not None and count is not None and count > 1:
            return (
                f"This process is rank {rank} of {count} processes on this machine ({one.local}), "
                "and its trainer has one rank. To let each of them read its own rows, use "
                f"`distributed-input run FILE --ranks-per-trainer {count} -- python train.py` on "
                f'this machine, and the annotation {RANKS_ANNOTATION}: "{count}" of the pod '
                "template in a cluster. Or let rank 0 read, and send its batches to the others. A "
                "job for each rank does not help: each job reads all rows"
            )
    return ""


def with_remedy(
    error: DistributedInputError,
    env: Mapping[str, str],
    welcome: trainer_pb2.Welcome,
) -> DistributedInputError:
    """Return an error, with the remedy for ranks if it is the FencedError of a rank.

    The advice in the message is for two consumers in one program. `welcome`: the answer of the
    sidecar that sent the error.
    """
    if not isinstance(error, FencedError) or welcome.readers > 1:
        return error
    if welcome.ranks > 1:
        advice = (
            f"This process is rank {welcome.consumer} of {welcome.consumers}. Check that no other "
            "process has the same rank"
        )
    else:
        advice = remedy(env)
    return FencedError(f"{str(error).partition('. ')[0]}. {advice}") if advice else error
