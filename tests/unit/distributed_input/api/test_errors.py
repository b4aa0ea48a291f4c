"""Errors on the wire."""

from __future__ import annotations

import traceback

import pytest

from distributed_input.api import errors
from distributed_input.api.errors import ConfigError, DatasetFnError, short

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


@short
def public(error: BaseException, cause: Exception | None = None) -> None:
    """Raise."""
    _internal(error, cause)


def _internal(error: BaseException, cause: Exception | None) -> None:
    try:
        raise OSError("no such file")
    except OSError:
        raise error from cause


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(type(error), error, error.__traceback__))


@pytest.mark.parametrize("error", [ConfigError("no input"), KeyboardInterrupt()])
def test_only_the_callers_frames_are_left(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        public(error, ZeroDivisionError())
    assert "_internal" not in shown(caught.value)
    assert "no such file" not in shown(caught.value)
    assert "ZeroDivisionError:" not in shown(caught.value)
    assert public.__name__ == "public"


def test_an_error_of_the_users_code_keeps_its_cause() -> None:
    with pytest.raises(DatasetFnError) as caught:
        public(DatasetFnError("dataset_fn failed"), KeyError("label"))
    assert "KeyError: 'label'" in shown(caught.value)


def test_other_errors_are_complete() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        public(ZeroDivisionError())
    assert "_internal" in shown(caught.value)
