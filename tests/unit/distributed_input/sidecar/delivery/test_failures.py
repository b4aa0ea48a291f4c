from __future__ import annotations

from distributed_input.api.errors import ConfigError, from_kind
from distributed_input.sidecar.delivery.failures import failure_message


def test_the_trainer_can_raise_the_same_error() -> None:
    failure = failure_message(ConfigError("spec.epochs: wrong"), 3).failure
    error = from_kind(failure.kind, failure.message)
    assert (type(error), str(error), failure.generation) == (ConfigError, "spec.epochs: wrong", 3)
