"""A clock that a test sets."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from distributed_input.sidecar.steps import progress_deadline


class Clock:
    """The clock of all deadlines, in seconds. Its time advances only if the test does it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(progress_deadline, "time", SimpleNamespace(monotonic=lambda: self.now))
