"""Notices a sidecar's end while nobody waits for a batch: a trainer may compute for long."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed_input.client.channel import Channel
    from distributed_input.client.reader import Reader

_LOOK_SECONDS = 1.0  # until a reader that was dropped, not closed, is let go of


def watch(reader: Reader, channel: Channel) -> None:
    """Have `reader` leave `channel` as soon as that has ended; returns at once."""
    arguments = (weakref.ref(reader), channel)
    threading.Thread(target=_watch, args=arguments, name="sidecar-watch", daemon=True).start()


def _watch(reader: weakref.ref[Reader], channel: Channel) -> None:
    while not channel.ended_within(_LOOK_SECONDS):
        if reader() is None:
            return
    left = reader()
    if left is not None:
        left.leave(channel)
