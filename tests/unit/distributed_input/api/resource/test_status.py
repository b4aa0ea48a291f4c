"""The status of a DistributedInput."""

from __future__ import annotations

from distributed_input.api.resource.status import Status


def test_a_new_object_has_no_conditions_and_no_measurements():
    status = Status.model_validate({})
    assert (status.conditions, status.trainers, status.autoscaling) == ([], None, None)


def test_a_status_with_fields_of_a_newer_operator_can_be_read():
    status = Status.model_validate({"observedGeneration": 3, "later": {"x": 1}})
    assert status.observed_generation == 3
