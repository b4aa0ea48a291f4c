"""Puts the simulated modules into the product's modules, in a process that only simulates.

Each product module that imports `threading`, `time`, `socket`, `select`, `uuid` or `os` gets the
replacement under the same name. The product has no hooks for this.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import greenlet

from testing.delivery.virtual import stand_in
from testing.delivery.virtual.primitives import SimThreading, SimTime, current
from testing.delivery.virtual.sockets import SimSelect, SimSocketModule

_PARTS = tuple(
    f"distributed_input.{one}." for one in ("dispatcher", "worker", "sidecar", "trainer", "link")
)
_MIN_REPLAY_SECONDS = 0.01  # splits take less than a second, and states are to be used
_installed: list[bool] = []
_DEFAULTS: dict[Any, Any] = {
    time.monotonic: SimTime.monotonic,
    time.sleep: SimTime.sleep,
    time.process_time: lambda: 0.0,  # the datasets wait and do not compute
}


class _Uuid:
    """The module `uuid`."""

    class _Value:
        def __init__(self, bits: int) -> None:
            self.hex = f"{bits:032x}"

    @classmethod
    def uuid4(cls) -> _Value:
        return cls._Value(current.scheduler.dice.getrandbits(128))


class _Os:
    """The module `os` with the id of the simulated process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def getpid() -> int:
        task = current.scheduler.current
        return task.process.pid if task is not None else 0


class _PerProcess:
    """A module's global set, one for each simulated process."""

    @staticmethod
    def _values() -> list[Any]:
        scheduler = getattr(current, "scheduler", None)
        task = scheduler.current if scheduler is not None else None
        if task is None:  # a fork of the simulation itself
            return []
        values: list[Any] = task.process.storage.setdefault("globals", [])
        return values

    def __iter__(self) -> Iterator[Any]:
        return iter(list(self._values()))

    def add(self, value: Any) -> None:
        self._values().append(value)

    def clear(self) -> None:
        self._values().clear()


def install() -> None:
    """Import the product and replace what it uses. Further calls do nothing."""
    if _installed:
        return
    _installed.append(True)
    stand_in.install()
    import distributed_input.dispatcher.main
    import distributed_input.sidecar.main
    import distributed_input.trainer.input
    import distributed_input.worker.serve  # noqa: F401

    replaced = {"threading": SimThreading, "time": SimTime, "socket": SimSocketModule}
    replaced |= {"select": SimSelect, "uuid": _Uuid}
    assert all(any(name.startswith(part) for name in sys.modules) for part in _PARTS)
    for name, module in list(sys.modules.items()):
        if name.startswith(_PARTS):
            for attribute, replacement in replaced.items():
                if attribute in vars(module):
                    setattr(module, attribute, replacement)
            if vars(module).get("os") is os and ".trainer." in name:
                module.os = _Os()
            _replace_defaults(module)
    _install_faults()
    _install_seams()
    sys.unraisablehook = _report_unraisable


def _report_unraisable(unraisable: Any) -> None:
    """Report an error that Python ignores, unless it ends a task that closes a generator."""
    if not issubclass(unraisable.exc_type, greenlet.GreenletExit):
        sys.__unraisablehook__(unraisable)


def _replace_defaults(module: Any) -> None:
    """Replace the clock in the default values of functions, which were bound at import."""
    for holder in list(vars(module).values()):
        for function in [holder, *(vars(holder).values() if isinstance(holder, type) else ())]:
            defaults = getattr(function, "__defaults__", None)
            if defaults and not set(_DEFAULTS).isdisjoint(filter(callable, defaults)):
                function.__defaults__ = tuple(
                    _DEFAULTS.get(value, value) if callable(value) else value for value in defaults
                )
            for cell in getattr(function, "__closure__", None) or ():
                if cell.cell_contents is time.monotonic:  # a dataclass's default_factory
                    cell.cell_contents = SimTime.monotonic


def _install_faults() -> None:
    from testing.chaos import faults

    faults.threading, faults.time = SimThreading, SimTime  # type: ignore[assignment]


def _install_seams() -> None:
    """Replace TensorFlow's part of the worker, channels, logs; cache what is pure."""
    from distributed_input.link.heartbeats import dispatcher_client
    from distributed_input.rows import stored_split
    from distributed_input.rows.elements import ElementSpec
    from distributed_input.runtime import heap, logs
    from distributed_input.sidecar.streams import worker_pool
    from distributed_input.trainer import open_consumers
    from distributed_input.worker import service
    from distributed_input.worker.states import state_saver
    from distributed_input.worker.store import block_store
    from testing.chaos import rows
    from testing.delivery import dataset, world

    heap.memory_limit = lambda root=None: None  # an execution must not depend on the machine
    service.describe = dataset.describe  # type: ignore[assignment]
    service.import_module = lambda draft: None
    state_saver.MIN_REPLAY_SECONDS = _MIN_REPLAY_SECONDS
    block_store.NODE = "node"
    stored_split.SplitFile.write = world.unless_full(stored_split.SplitFile.write)
    worker_pool.open_channel = world.open_channel  # type: ignore[assignment]
    worker_pool.host_answers = world.host_answers
    dispatcher_client.open_channel = world.open_channel  # type: ignore[assignment]
    open_consumers._consumers = _PerProcess()  # type: ignore[assignment]
    open_consumers.threading = threading  # a fork gives it a new lock, which must be real as well
    logs.Log._emit = world.record_log
    ElementSpec.from_json = staticmethod(functools.lru_cache(maxsize=64)(ElementSpec.from_json))
    rows.element = dataset.element
