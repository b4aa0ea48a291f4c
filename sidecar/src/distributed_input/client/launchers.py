"""Launchers such as torchrun, which start several processes of one trainer on a machine. Pure.

A job has one reader for each sidecar, so these processes cannot each read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distributed_input.api.errors import DistributedInputError, FencedError

_VARIABLES = (
    ("LOCAL_RANK", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "WORLD_SIZE")),  # torchrun, DeepSpeed
    ("OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    ("MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),  # MPICH, Intel MPI
    ("SLURM_LOCALID", ("SLURM_NTASKS_PER_NODE",)),
)
"""For each launcher: the variable with the rank on the machine, and those with the number of ranks
on it, of which the first counts."""


@dataclass(frozen=True)
class LocalRank:
    """This process among several of its launcher on this machine."""

    variable: str
    rank: int
    count: int

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.count} processes on this machine ({self.variable})"

    @property
    def remedy(self) -> str:
        """What to do, because a job has one reader for each sidecar."""
        return (
            f"This process is {self}, and all ranks of a machine share one sidecar. Run one "
            "process in each trainer: on this machine `distributed-input run FILE --trainers "
            f"{self.count} -- python train.py`, in a cluster a pod for each rank; the property "
            "`consumer` of the input is the pair (rank, number of ranks). Or let rank 0 read, and "
            "send its batches to the others. A job for each rank does not help: each job reads "
            "all rows"
        )


def local_rank(env: Mapping[str, str]) -> LocalRank | None:
    """Return the rank of this process if a launcher started several processes on this machine."""
    for variable, counts in _VARIABLES:
        rank = env.get(variable, "")
        count = next((env[name] for name in counts if name in env), "1")
        if rank.isdecimal() and count.isdecimal() and int(count) > 1:
            return LocalRank(variable, int(rank), int(count))
    return None


def with_remedy(error: DistributedInputError, env: Mapping[str, str]) -> DistributedInputError:
    """Return an error, with the remedy for ranks if it is the FencedError of a rank.

    The advice in the message is for two readers in one program.
    """
    rank = local_rank(env)
    if rank is None or not isinstance(error, FencedError):
        return error
    cause, _, _ = str(error).partition(". ")
    return FencedError(f"{cause}. {rank.remedy}")
