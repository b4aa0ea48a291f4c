"""A watcher thread that reports the end of a connection while no thread waits for a batch.

A trainer may compute for a long time between two batches. Other trainers may need the next sidecar
of this one before that.
"""

from __future__ import annotations

import threading
import weakref
from typing import Protocol

from distributed_input.link.trainer.trainer_end import Channel

_POLL_SECONDS = 1.0  # until a watcher of a reader that was not closed, only dropped, ends


class ReconnectingReader(Protocol):
    """A reader that can continue with the next sidecar."""

    def reconnect_from(self, channel: Channel) -> None:
        """Continue with the next sidecar if `channel`, which has ended, is the current one."""


def watch(reader: ReconnectingReader, channel: Channel) -> None:
    """Call `reader.reconnect_from(channel)` in a thread when the channel ends; return at once.

    The thread has only a weak reference to the reader.
    """
    arguments = (weakref.ref(reader), channel)
    threading.Thread(target=_watch, args=arguments, name="sidecar-watch", daemon=True).start()


def _watch(reader: weakref.ref[ReconnectingReader], channel: Channel) -> None:
    while not channel.wait_for_hangup(_POLL_SECONDS):
        if reader() is None:
            return
    remaining = reader()
    if remaining is not None:
        remaining.reconnect_from(channel)
