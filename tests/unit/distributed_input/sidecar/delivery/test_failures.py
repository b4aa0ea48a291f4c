from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError, from_kind
from distributed_input.api.protocol import TO_TRAINER_BYTES
from distributed_input.sidecar.delivery.failures import failure_message


def test_the_trainer_can_raise_the_same_error() -> None:
    failure = failure_message(ConfigError("spec.epochs: wrong"), 3).failure
    error = from_kind(failure.kind, failure.message)
    assert (type(error), str(error), failure.generation) == (ConfigError, "spec.epochs: wrong", 3)


@pytest.mark.parametrize("character", ["x", "数", "\udcff"], ids=["1", "3", "6 bytes"])
def test_a_long_error_fits_into_a_packet(character: str) -> None:
    message = failure_message(ConfigError("row 7: " + character * 1_000_000))
    assert message.ByteSize() <= TO_TRAINER_BYTES
    assert message.failure.message.startswith("row 7: ")
    assert message.failure.kind == "ConfigError"
