"""Access to labels, annotations and variables of a trainer pod."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.injection.trainer_pod import (
    RefusedError,
    controller,
    env,
    env_text,
    parse_number,
    requested_inputs,
)
from tests.unit.distributed_input_operator.injection.trainer_pods import pod


def test_requested_inputs_have_no_duplicates_and_keep_their_order():
    assert requested_inputs(pod("train, eval,train")) == ("train", "eval")


def test_a_pod_without_a_requested_input_is_refused():
    without: Any = pod()
    del without["metadata"]["annotations"]
    for trainer in (pod(" , "), without):
        with pytest.raises(RefusedError, match=names.INPUTS_ANNOTATION):
            requested_inputs(trainer)


def test_a_variable_comes_from_the_first_container_that_has_it():
    source = {"fieldRef": {"fieldPath": "metadata.name"}}
    trainer = pod(
        containers=[
            {"name": "a"},
            {"name": "b", "env": [{"name": "EMPTY"}, {"name": "REF", "valueFrom": source}]},
            {"name": "c", "env": [{"name": "EMPTY", "value": "x"}]},
        ]
    )
    assert env(trainer, "EMPTY") == {"value": ""}
    assert env(trainer, "REF") == {"valueFrom": source}
    assert env_text(trainer, "REF") == ""
    assert env(trainer, "MISSING") is None


def test_only_the_controller_counts_among_the_owners():
    trainer = pod(owner=("Job", "fit"))
    trainer["metadata"]["ownerReferences"].insert(0, {"kind": "Node", "name": "n"})
    found = controller(trainer)
    assert found is not None
    assert found["kind"] == "Job"
    assert controller(pod()) is None


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5", "²"])
def test_other_text_is_not_a_number(text: str):
    with pytest.raises(RefusedError, match="NAME: "):
        parse_number(text, "NAME")


def test_a_number_with_thousands_of_digits_is_refused():
    assert parse_number("123456789", "N") == 123456789
    with pytest.raises(RefusedError, match="N: the number has more than 9 digits"):
        parse_number("9" * 5000, "N")
