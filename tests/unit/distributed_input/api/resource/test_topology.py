"""The number of trainers that an input is for."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.resource.input import InputSpec
from distributed_input.api.resource.topology import possible_trainers, trainers_problem

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
        ({"partitions": 8, "order": "any"}, True, "None"),
        ({"partitions": 8, "processingMode": "parallel_epochs"}, True, "None"),
    ],
)
def test_five_trainers(fields: dict[str, Any], final: bool, text: str) -> None:
    assert str(trainers_problem(spec(**fields), 5, batch_size_is_final=final)).startswith(text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"partitions": 4}, "4 partitions for 1, 2 or 4 trainers"),
        (BATCH, "6 partitions for 1, 2, 3 or 6 trainers"),
        ({"partitions": 4, "order": "any"}, "4 partitions for up to 4 trainers"),
        ({"processingMode": "parallel_epochs"}, "any number of trainers, each with its own epochs"),
        ({}, "the dataset determines the number of partitions, and so of trainers"),
    ],
)
def test_possible_trainers(fields: dict[str, Any], text: str) -> None:
    assert possible_trainers(spec(**fields)) == text
