"""The sampler, with dispatchers that respond, go away and come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
        self.silent: Sequence[str] = ()
        self.addresses: Sequence[str] = ()
        self.problems: tuple[str, ...] = ()
        self.opened = 0
        self._asked = threading.Condition()
        self._calls = 0

    @contextmanager
    def open(self) -> Iterator[Sequence[FoundDispatcher]]:
        self.opened += 1
        if self.missing is not None:
            self._count()
            raise self.missing
        yield [
            FoundDispatcher(
                name,
                Client(self, name),  # type: ignore[arg-type]
                self.problems,
                self.addresses[index] if self.addresses else "",
            )
            for index, name in enumerate(self.names)
        ]

    def status(self, name: str) -> StatusSample:
        self._count()
        if self.failure is not None:
            raise self.failure
        if name in self.silent:
            raise UnavailableError(f"{name} did not respond")
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


@dataclass
class Client:
    """The client of one of the dispatchers."""

    found: Dispatchers
    name: str

    def status(self, timeout: float) -> StatusSample:
        return self.found.status(self.name)


@contextmanager
def running(found: Dispatchers, search: float = 30) -> Iterator[Callable[[], dict[str, Any]]]:
    with Sampler(
        found.open, lambda one: {"more": 1}, seconds=0.01, timeout=1, search=search
    ) as sampler:
        found.wait()
        yield sampler.values


def test_the_values_of_each_input():
    with running(Dispatchers("a", "b")) as values:
        found = values()
    assert [one["input"] for one in found["inputs"]] == ["a", "b"]
    assert (found["error"], found["interval"]) == (None, 0.01)
    assert found["stale_after"] == pytest.approx(3 * 0.01 + 2 * 1)
    first = found["inputs"][0]
    assert (first["error"], first["more"], first["problems"]) == (None, 1, [])
    assert first["chart"]


def test_a_dispatcher_that_goes_away_and_comes_back():
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


def test_a_run_that_starts_later_and_ends():
    dispatchers = Dispatchers("a")
    dispatchers.missing = ConfigError("no run")
    with running(dispatchers) as values:
        found = values()
        assert (found["error"], found["inputs"]) == ("no run", [])
        dispatchers.missing = None
        dispatchers.wait()
        assert values()["inputs"][0]["error"] is None
        dispatchers.missing = ConfigError("no run")
        dispatchers.failure = UnavailableError("it did not respond")
        dispatchers.wait(4)
        assert values()["inputs"][0]["error"] == "no run"


def test_another_run_replaces_the_first(monkeypatch):
    monkeypatch.setattr(module, "_FORGET_SECONDS", 0.2)
    dispatchers = Dispatchers("a")
    with running(dispatchers, search=0.02) as values:
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


def test_runs_of_the_same_input_have_a_history_each():
    dispatchers = Dispatchers("a", "a", "b")
    dispatchers.addresses = ["h:1", "h:2", "h:3"]
    with running(dispatchers) as values:
        dispatchers.wait(4)
        found = [(one["input"], one["place"]) for one in values()["inputs"]]
    assert found == [("a", "h:1"), ("a", "h:2"), ("b", None)]


def test_a_run_that_does_not_respond_leaves_the_others():
    dispatchers = Dispatchers("a", "b")
    with running(dispatchers) as values:
        dispatchers.silent = ["a"]
        dispatchers.wait(6)
        found = values()
        errors = {one["input"]: one["error"] for one in found["inputs"]}
        assert errors == {"a": "a did not respond", "b": None}
        assert found["error"] is None
        assert len(found["inputs"][0]["chart"]) < len(found["inputs"][1]["chart"])


def test_a_run_that_never_responded_has_no_figures_but_an_error():
    dispatchers = Dispatchers("a", "b")
    dispatchers.silent = ["a"]
    with running(dispatchers) as values:
        dispatchers.wait()
        found = values()
    assert [one["input"] for one in found["inputs"]] == ["b"]
    assert found["error"] == "a did not respond"


@pytest.mark.parametrize("during", ["missing", "failure"])
def test_an_unforeseen_error_is_shown_and_does_not_end_the_samples(during):
    dispatchers = Dispatchers("a")
    with running(dispatchers) as values:
        dispatchers.failure = UnavailableError("it did not respond")
        setattr(dispatchers, during, FileNotFoundError("tokens"))
        dispatchers.wait(5)
        assert values()["inputs"][0]["error"] == "FileNotFoundError: tokens"
        dispatchers.failure = dispatchers.missing = None
        dispatchers.wait()
        assert values()["inputs"][0]["error"] is None


def test_what_the_operator_reports_is_read_again():
    dispatchers = Dispatchers("a")
    dispatchers.problems = ("at first",)
    with running(dispatchers, search=0.02) as values:
        dispatchers.problems = ("later",)
        while values()["inputs"][0]["problems"] != ["later"]:
            dispatchers.wait(1)
