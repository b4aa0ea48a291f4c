"""What an input refuses before it asks its connection."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import trainer_pb2
from distributed_input.trainer.input import Input


def test_ranks_that_read_the_same_batches_neither_set_weights_nor_skip() -> None:
    """One could read batches of the new weights while another one reads those of the old ones."""
    member: Any = SimpleNamespace(
        _consumer=SimpleNamespace(welcome=trainer_pb2.Welcome(consumers=1, readers=2))
    )
    with pytest.raises(ConfigError, match="ranks that read the same batches"):
        Input.set_weights(member, {"books": 1.0})
    with pytest.raises(ConfigError, match="ranks that read the same batches"):
        Input.skip(member, 1)
