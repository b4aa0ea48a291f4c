"""Helpers that compute the rank of a pod, or the message of its refusal."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input_operator.injection.rank import trainer_rank
from distributed_input_operator.injection.trainer_pod import RefusedError


def rank_of(pod: Any, *owners: Any) -> tuple[Any, int]:
    """Return the index, a number or the path of the field that has it, and the count."""
    found = trainer_rank(pod, owners)
    assert found is not None
    assert found.count is not None
    if "value" in found.index:
        return int(found.index["value"]), found.count
    return found.index["valueFrom"]["fieldRef"]["fieldPath"], found.count


def refusal_of(pod: Any, *owners: Any) -> str:
    """Return the message of the refusal of a pod."""
    with pytest.raises(RefusedError) as caught:
        trainer_rank(pod, owners)
    return str(caught.value)
