"""The sampler, with dispatchers that respond, go away and come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runner.dashboard import sampler as module
from distributed_input.runner.dashboard.sampler import Sampler
from distributed_input.runner.dispatchers import FoundDispatcher
from distributed_input.runner.display.stats import StatusSample


class Dispatchers:
    """Dispatchers whose answers a test sets. Each call of the sampler is an event."""

    def __init__(self, *names: str) -> None:
        self.names: Sequence[str] = names
        self.failure: Exception | None = None
        self.missing: Exception | None = None
        self.opened = 0
        self._asked = threading.Condition()
        self._calls = 0

    @contextmanager
    def open(self) -> Iterator[Sequence[FoundDispatcher]]:
        self.opened += 1
        if self.missing is not None:
            self._count()
            raise self.missing
        yield [FoundDispatcher(name, self) for name in self.names]  # type: ignore[arg-type]

    address = "h:1"

    def status(self, timeout: float) -> StatusSample:
        self._count()
        if self.failure is not None:
            raise self.failure
        return StatusSample()

    def _count(self) -> None:
        with self._asked:
            self._calls += 1
            self._asked.notify_all()

    def wait(self, calls: int = 3) -> None:
        """Wait for this number of further calls. The effects of all but the last are visible."""
        with self._asked:
            last = self._calls + calls
            assert self._asked.wait_for(lambda: self._calls >= last, 10)


@contextmanager
def running(found: Dispatchers) -> Iterator[Callable[[], dict[str, Any]]]:
    with Sampler(found.open, lambda one: {"more": 1}, seconds=0.01, timeout=1) as sampler:
        found.wait()
        yield sampler.values


def test_the_values_of_each_input() -> None:
    with running(Dispatchers("a", "b")) as values:
        found = values()
    assert [one["input"] for one in found["inputs"]] == ["a", "b"]
    assert (found["error"], found["interval"]) == (None, 0.01)
    first = found["inputs"][0]
    assert (first["error"], first["more"], first["problems"]) == (None, 1, [])
    assert first["chart"]


def test_a_dispatcher_that_goes_away_and_comes_back() -> None:
    dispatchers = Dispatchers("a")
    with running(dispatchers) as values:
        dispatchers.failure = UnavailableError("it did not respond")
        dispatchers.wait()
        (one,) = values()["inputs"]
        assert one["error"] == "it did not respond"
        assert one["chart"]
        assert dispatchers.opened > 1
        dispatchers.failure = None
        dispatchers.wait()
        assert values()["inputs"][0]["error"] is None


def test_a_run_that_starts_later_and_ends() -> None:
    dispatchers = Dispatchers("a")
    dispatchers.missing = ConfigError("no run")
    with running(dispatchers) as values:
        assert values() == {"interval": 0.01, "error": "no run", "inputs": []}
        dispatchers.missing = None
        dispatchers.wait()
        assert values()["inputs"][0]["error"] is None
        dispatchers.missing = ConfigError("no run")
        dispatchers.failure = UnavailableError("it did not respond")
        dispatchers.wait(4)
        assert values()["inputs"][0]["error"] == "no run"


def test_another_run_replaces_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEARCH_SECONDS", 0.02)
    monkeypatch.setattr(module, "_FORGET_SECONDS", 0.2)
    dispatchers = Dispatchers("a")
    with running(dispatchers) as values:
        dispatchers.names = ["b"]
        dispatchers.wait(10)
        errors = {one["input"]: one["error"] for one in values()["inputs"]}
        assert errors.get("a", "its run has ended") == "its run has ended"
        assert errors["b"] is None
        for _ in range(100):
            dispatchers.wait(10)
            if len(values()["inputs"]) == 1:
                break
        assert [one["input"] for one in values()["inputs"]] == ["b"]
