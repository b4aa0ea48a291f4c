"""The consumers of this process: one of each job, and none that a fork inherited.

A fork inherits the socket, but none of the threads. If it read, it would take units from its
parent. If it closed the consumer, it would stop its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from distributed_input.api.errors import DistributedInputError, FencedError
from distributed_input.link.trainer.trainer_end import Channel

if TYPE_CHECKING:
    from distributed_input.client.consumer import Consumer

_POLL_SECONDS = 1.0  # until the watcher of a consumer that was not closed, only dropped, ends
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


def watch(consumer: Consumer, channel: Channel) -> None:
    """Let the consumer reconnect when the channel ends, also if no thread waits for a batch.

    A trainer may compute for a long time between two batches. Other trainers may need the next
    sidecar of this one before that. The thread has only a weak reference to the consumer.
    """
    arguments = (weakref.ref(consumer), channel)
    threading.Thread(target=_watch, args=arguments, name="sidecar-watch", daemon=True).start()


def _watch(consumer: weakref.ref[Consumer], channel: Channel) -> None:
    while not channel.wait_for_hangup(_POLL_SECONDS):
        if consumer() is None:
            return
    remaining = consumer()
    if remaining is not None:
        remaining.reconnect_from(channel)


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
