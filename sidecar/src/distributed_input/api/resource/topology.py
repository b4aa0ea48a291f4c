"""The number of trainers that an input is for."""

from __future__ import annotations

from distributed_input.api import topology
from distributed_input.api.resource.input import InputSpec
from distributed_input.api.resource.problems import Problem


def partitions(spec: InputSpec) -> int | None:
    """Return the number of partitions, or None if the batch size of the dataset sets it."""
    rows = spec.batching.global_batch_size
    return spec.partitions or (topology.default_partitions(rows) if rows else None)


def is_known(spec: InputSpec) -> bool:
    """Return whether the resource determines which numbers of trainers can read an input."""
    return partitions(spec) is not None or spec.processing_mode == "ParallelEpochs"


def trainer_counts(spec: InputSpec) -> list[int] | None:
    """Return the numbers of trainers that can read an input. None: any, or not known yet."""
    found = partitions(spec)
    if found is None or spec.processing_mode == "ParallelEpochs":
        return None
    return topology.divisors(found)


def possible_trainers(spec: InputSpec) -> str:
    """Return the numbers of trainers that can read an input, as text."""
    if spec.processing_mode == "ParallelEpochs":
        return "any number of trainers, each with its own epochs"
    found = partitions(spec)
    if found is None:
        return (
            "1 trainer can read it. How many can share it depends on the dataset's batch size. To "
            "choose, set spec.partitions: 8 is for 1, 2, 4 or 8 trainers"
        )
    return f"{found} partitions for {topology.possible_trainers(found)} trainers"


def trainers_problem(
    spec: InputSpec, trainers: int, *, batch_size_is_final: bool
) -> Problem | None:
    """Return why a number of trainers cannot read an input, or None if they can.

    The batch size is final if no trainer replaces that of the resource, as it may with
    `distribute(..., global_batch_size=...)`.
    """
    text = topology.trainers_problem(
        trainers,
        spec.partitions,
        spec.batching.global_batch_size if batch_size_is_final else None,
        parallel=spec.processing_mode == "ParallelEpochs",
    )
    return Problem(("spec", "partitions"), text) if text else None
