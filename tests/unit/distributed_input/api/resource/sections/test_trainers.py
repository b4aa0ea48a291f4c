"""Validation of the section `trainers`."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from distributed_input.api.resource.sections.processes import TrainersSpec


def test_by_default_trainers_have_cost_and_weight_1():
    trainers = TrainersSpec()
    assert trainers.accelerator is None
    assert (trainers.accelerators_per_trainer, trainers.weight, trainers.priority) == (1, "1", 0)


@pytest.mark.parametrize(
    "fields",
    [
        {"accelerator": ""},
        {"acceleratorsPerTrainer": 0},
        {"weight": "0"},
        {"weight": 1001},
        {"weight": 0.5},
        {"priority": -1001},
    ],
)
def test_values_out_of_range_are_refused(fields):
    with pytest.raises(ValidationError):
        TrainersSpec.model_validate(fields)
