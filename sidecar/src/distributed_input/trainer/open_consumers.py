"""The consumers of this process: one of each job, and none that a fork inherited.

A fork inherits the socket, but none of the threads. If it read, it would take units from its
parent. If it closed the consumer, it would stop its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, TypeAlias

from distributed_input.api.errors import DistributedInputError, FencedError

Consumer: TypeAlias = Any
"""A `trainer.consumer.Consumer`, which imports this module."""
_consumers: weakref.WeakSet[Consumer] = weakref.WeakSet()
_lock = threading.Lock()


def add(consumer: Consumer) -> None:
    """Add a connected consumer, and end an older one of the same job: a sidecar serves one.

    Units that were sent to the older consumer would occupy its slots until it is freed.
    """
    with _lock:
        older = [other for other in _consumers if other.source == consumer.source]
        _consumers.add(consumer)
    for other in older:
        other.end(
            FencedError(
                f"input {consumer.source[1]} was opened again: one reader at a time. Close the "
                "first, or give the second a job of its own: connect(..., job=...)"
            )
        )


def stop_all(error: DistributedInputError) -> None:
    """Stop all consumers of this process, because the program ends."""
    with _lock:
        consumers = list(_consumers)
    for consumer in consumers:
        consumer.stop(error)


def _disown_all() -> None:
    """Disown the consumers that this process, a fork, has inherited."""
    global _lock  # noqa: PLW0603 - another thread of the parent may hold it
    _lock = threading.Lock()
    inherited = list(_consumers)
    _consumers.clear()
    for consumer in inherited:
        consumer.disown()


os.register_at_fork(after_in_child=_disown_all)
