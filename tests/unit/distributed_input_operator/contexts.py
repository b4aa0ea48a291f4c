"""What reconciliations share, with a fake API server."""

from __future__ import annotations

from typing import Any

from distributed_input_operator.controller.context import ControllerContext
from distributed_input_operator.controller.dispatchers import DispatcherClient
from distributed_input_operator.controller.tokens import InputTokens
from distributed_input_operator.kube.store import Store
from tests.unit.distributed_input_operator.snapshots import SETTINGS


def context_of(api: Any, store: Store | None = None) -> ControllerContext:
    """Return the context of a new leader. The store is empty if none is given."""
    tokens = InputTokens(api, "operators")
    return ControllerContext(api, store or Store(), tokens, DispatcherClient(), SETTINGS)
