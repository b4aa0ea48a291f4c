from __future__ import annotations

import pytest

from tests.unit.distributed_input.sidecar.steps.clocks import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
