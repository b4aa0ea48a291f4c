"""Errors on the wire."""

from __future__ import annotations

import pytest

from distributed_input.api import errors

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type)
    and issubclass(value, errors.DistributedInputError)
    and value is not errors.DistributedInputError
]


@pytest.mark.parametrize("kind", CLASSES)
def test_every_class_survives_the_wire(kind: type[errors.DistributedInputError]) -> None:
    error = errors.from_kind(kind.__name__, "why")
    assert type(error) is kind
    assert str(error) == "why"


def test_an_unknown_class_is_terminal() -> None:
    assert type(errors.from_kind("OfALaterVersion", "why")) is errors.TerminalError
