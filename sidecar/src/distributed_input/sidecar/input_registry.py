"""The inputs that a sidecar serves, and the jobs of theirs that its trainers ask for."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Sequence

from distributed_input.api.errors import ConfigError
from distributed_input.assignment.jobs import check_name
from distributed_input.sidecar.inputs import Input

_JOBS = 8  # of one input at once: each has a ring of its own


class Served:
    """Every input's own job from the start; others from when a trainer asks for them.

    Args:
        make: an input's job, by their names.
        names: of the inputs.
    """

    def __init__(self, make: Callable[[str, str], Input], names: Sequence[str]) -> None:
        self.names = sorted(names)
        self._make = make
        self._lock = threading.Lock()
        self._made = {(name, ""): make(name, "") for name in names}

    def start(self) -> None:
        """Begin to look for the dispatchers."""
        for made in self.all():
            made.link.start()

    def all(self) -> list[Input]:
        """Those that there are now."""
        with self._lock:
            return list(self._made.values())

    def find(self, name: str, job: str) -> Input:
        """A job of an input.

        Args:
            name: of the input; empty where there is but one.
            job: of the input; empty: its own.

        Raises:
            ConfigError: there is no such input, no such name for a job, or no room for another.
        """
        name = name or self._only()
        if name not in self.names:
            known = ", ".join(self.names)
            raise ConfigError(f"this sidecar serves no input {name!r}; it serves {known}")
        with self._lock:
            found = self._made.get((name, job))
            if found is None:
                check_name(job)
                self._make_room(name)
                found = self._made[name, job] = self._make(name, job)
                found.link.start()
            return found

    def _only(self) -> str:
        if len(self.names) == 1:
            return self.names[0]
        known = ", ".join(self.names)
        raise ConfigError(f"this sidecar serves {known}: connect() needs the name of one")

    def _make_room(self, name: str) -> None:
        """A job that is over keeps telling the others its facts, until its place is wanted."""
        own = self._made[name, ""].ring
        rings = sum(made.ring.size for made in self._made.values()) + own.size
        if rings > shutil.disk_usage(own.path.parent).total:
            raise ConfigError(
                f"no room for another job of input {name} beside this trainer: the volume that it "
                "shares with its sidecar holds the buffers of two (spec.sidecar.buffer): lower it"
            )
        others = [key for key in self._made if key[0] == name and key[1]]
        if len(others) < _JOBS - 1:
            return
        idle = [key for key in others if self._made[key].idle]
        if not idle:
            raise ConfigError(
                f"{_JOBS} jobs of input {name} are being read through one sidecar: close one "
                "before another is opened"
            )
        self._made.pop(idle[0]).close()

    def close(self) -> None:
        """Drop all readers; trainers get a retryable error."""
        for made in self.all():
            made.close()
