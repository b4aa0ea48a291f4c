"""The number of trainers that an input is for."""

from __future__ import annotations

from distributed_input.api import topology
from distributed_input.api.resource.input import InputSpec
from distributed_input.api.resource.problems import Problem


def possible_trainers(spec: InputSpec) -> str:
    """Return the numbers of trainers that can read an input, as text."""
    rows = spec.batching.global_batch_size
    if spec.processing_mode == "parallel_epochs":
        return "any number of trainers, each with its own epochs"
    partitions = spec.partitions or (topology.default_partitions(rows) if rows else None)
    if partitions is None:
        return "the dataset determines the number of partitions, and so of trainers"
    if spec.order == "any":
        return f"{partitions} partitions for up to {partitions} trainers"
    return f"{partitions} partitions for {topology.possible_trainers(partitions)} trainers"


def trainers_problem(
    spec: InputSpec, trainers: int, *, batch_size_is_final: bool
) -> Problem | None:
    """Return why a number of trainers cannot read an input, or None if they can.

    Args:
        spec: the input.
        trainers: number of trainers.
        batch_size_is_final: no trainer replaces the resource's batch size, as it may with
            `distribute(..., global_batch_size=...)`.
    """
    text = topology.trainers_problem(
        trainers,
        spec.partitions,
        spec.batching.global_batch_size if batch_size_is_final else None,
        any_order=spec.order == "any",
        parallel=spec.processing_mode == "parallel_epochs",
    )
    return Problem(("spec", "partitions"), text) if text else None
