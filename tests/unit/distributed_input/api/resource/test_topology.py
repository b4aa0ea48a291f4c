"""The number of trainers that an input is for."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.resource.input import InputSpec
from distributed_input.api.resource.topology import (
    possible_trainers,
    trainer_counts,
    trainers_problem,
)

BATCH = {"batching": {"globalBatchSize": 12}}


def spec(**fields: Any) -> InputSpec:
    return InputSpec.model_validate(fields)


@pytest.mark.parametrize(
    ("fields", "final", "text"),
    [
        ({"partitions": 8}, True, "spec.partitions: 5 trainers cannot divide 8 partitions. Use"),
        ({"partitions": 8}, False, "spec.partitions: 5 trainers cannot divide 8 partitions. Use"),
        (BATCH, True, "spec.partitions: 5 trainers cannot divide 6 partitions. Use"),
        (BATCH, False, "None"),  # the trainer may pass another batch size
        ({"partitions": 8, "processingMode": "ParallelEpochs"}, True, "None"),
    ],
)
def test_five_trainers(fields: dict[str, Any], final: bool, text: str) -> None:
    assert str(trainers_problem(spec(**fields), 5, batch_size_is_final=final)).startswith(text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"partitions": 4}, "4 partitions for 1, 2 or 4 trainers"),
        (BATCH, "6 partitions for 1, 2, 3 or 6 trainers"),
        ({"processingMode": "ParallelEpochs"}, "any number of trainers, each with its own epochs"),
        (
            {},
            "1 trainer can read it. How many can share it depends on the dataset's batch size. To "
            "choose, set spec.partitions: 8 is for 1, 2, 4 or 8 trainers",
        ),
    ],
)
def test_possible_trainers(fields: dict[str, Any], text: str) -> None:
    assert possible_trainers(spec(**fields)) == text


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, None),
        ({"partitions": 6}, [1, 2, 3, 6]),
        ({"partitions": 6, "processingMode": "ParallelEpochs"}, None),
        ({"batching": {"globalBatchSize": 64}}, [1, 2, 4, 8]),
    ],
)
def test_trainer_counts(fields: dict[str, Any], counts: list[int] | None) -> None:
    assert trainer_counts(spec(**fields)) == counts
