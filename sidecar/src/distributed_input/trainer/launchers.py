"""Launchers such as torchrun, which start several processes of one trainer on a machine. Pure.

A job has one consumer for each sidecar, so these processes cannot each read it.
"""

from __future__ import annotations

from collections.abc import Mapping

from distributed_input.api.errors import DistributedInputError, FencedError

_VARIABLES = (
    ("LOCAL_RANK", ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "WORLD_SIZE")),  # torchrun, DeepSpeed
    ("OMPI_COMM_WORLD_LOCAL_RANK", ("OMPI_COMM_WORLD_LOCAL_SIZE",)),
    ("MPI_LOCALRANKID", ("MPI_LOCALNRANKS",)),  # MPICH, Intel MPI
    ("SLURM_LOCALID", ("SLURM_NTASKS_PER_NODE",)),
)
"""For each launcher: the variable with the rank on the machine, and those with the number of ranks
on it, of which the first counts."""


def remedy(env: Mapping[str, str]) -> str:
    """Return what to do if a launcher started several processes on this machine, else ""."""
    for variable, counts in _VARIABLES:
        rank = env.get(variable, "")
        count = next((env[name] for name in counts if name in env), "1")
        if rank.isdecimal() and count.isdecimal() and int(count) > 1:
            return (
                f"This process is rank {rank} of {count} processes on this machine ({variable}), "
                "and all ranks of a machine share one sidecar. Run one process in each trainer: on "
                f"this machine `distributed-input run FILE --trainers {count} -- python train.py`, "
                "in a cluster a pod for each rank; the property `consumer` of the input is the "
                "pair (rank, number of ranks). Or let rank 0 read, and send its batches to the "
                "others. A job for each rank does not help: each job reads all rows"
            )
    return ""


def with_remedy(error: DistributedInputError, env: Mapping[str, str]) -> DistributedInputError:
    """Return an error, with the remedy for ranks if it is the FencedError of a rank.

    The advice in the message is for two consumers in one program.
    """
    advice = remedy(env)
    if not advice or not isinstance(error, FencedError):
        return error
    return FencedError(f"{str(error).partition('. ')[0]}. {advice}")
