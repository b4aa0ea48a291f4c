"""Connections between simulated processes: latency, partitions, keepalive, refused connects.

A connection delivers messages in order, each after a drawn latency. Messages of different
connections overtake each other. While a connection is blocked, its messages are held, as TCP would
send them again. It breaks once keepalive or the handshake has waited too long.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testing.delivery.virtual.scheduler import Scheduler, SimProcess

KEEPALIVE_SECONDS = 8.0
HANDSHAKE_SECONDS = 3.0


class Network:
    """All servers and connections.

    Args:
        scheduler: gives time and choices.
        latency: longest usual delay of a message in seconds.
        spike: probability that a message takes much longer.
    """

    def __init__(self, scheduler: Scheduler, latency: float, spike: float) -> None:
        self.scheduler = scheduler
        self.servers: dict[str, Any] = {}
        self.connections: dict[Connection, None] = {}
        self._latency, self._spike = latency, spike
        self._blocked: dict[frozenset[str], int] = {}

    def delay(self) -> float:
        """Return the delay of one message."""
        random = self.scheduler.random
        delay = self._latency * random()
        if self._spike and random() < self._spike:
            delay += 0.5 * random()
        return delay

    def is_blocked(self, one: SimProcess, other: SimProcess) -> bool:
        """Return whether nothing passes between two processes."""
        return bool(self._blocked) and frozenset((site(one), site(other))) in self._blocked

    def block(self, one: str, other: str) -> None:
        """Cut two sites off from each other."""
        pair = frozenset((one, other))
        self._blocked[pair] = self._blocked.get(pair, 0) + 1
        self.scheduler.note(None, f"partition {one} | {other}")
        for connection in list(self.connections):
            connection.check_impaired()

    def heal(self, one: str, other: str) -> None:
        """Undo one `block`."""
        pair = frozenset((one, other))
        left = self._blocked.get(pair, 0) - 1
        if left > 0:
            self._blocked[pair] = left
            return
        if self._blocked.pop(pair, None):
            self.scheduler.note(None, f"heal {one} | {other}")
        for connection in list(self.connections):
            connection.check_impaired()


def site(process: SimProcess) -> str:
    """Return the place of a process, which its successors share."""
    return process.name.partition(".")[0]


class Connection:
    """A connection of a client process to a server.

    Attributes:
        open: False once it is broken.
    """

    def __init__(self, network: Network, client: SimProcess, server: Any) -> None:
        self.open = True
        self.client, self.server = client, server
        self.client_calls: dict[Any, None] = {}
        self.server_calls: dict[Any, None] = {}
        self._network, self._scheduler = network, network.scheduler
        self._free_at = [0.0, 0.0]
        self._held: list[tuple[SimProcess, Callable[[], None]]] = []
        self._impaired = 0  # number of the present impairment; 0: none
        self._impairments = 0
        self._established = False
        self._cut_after: int | None = None
        network.connections[self] = None
        client.endpoints[self] = None
        server.process.endpoints[self] = None
        self.check_impaired()
        self._established = not self._impaired

    @property
    def _blocked(self) -> bool:
        return self._network.is_blocked(self.client, self.server.process)

    def send(self, to_server: bool, action: Callable[[], None], size: int = 0) -> None:
        """Call `action` at the other end when the message arrives, unless the connection breaks."""
        sender = self.client if to_server else self.server.process
        if not (self.open and sender.alive):
            return
        if self._cut_after is not None:
            self._cut_after -= size + 1
            if self._cut_after < 0:
                self.break_now("Connection reset by peer")
                return
        scheduler = self._scheduler
        when = max(self._free_at[to_server], scheduler.now + self._network.delay())
        self._free_at[to_server] = when + 1e-7
        receiver = self.server.process if to_server else self.client
        scheduler.at(when, lambda: self._arrive(receiver, action))

    def _arrive(self, receiver: SimProcess, action: Callable[[], None]) -> None:
        if not (self.open and receiver.alive):
            return
        if self._held or self._blocked:
            self._held.append((receiver, action))
            return
        self._established = True
        action()

    def check_impaired(self) -> None:
        """Start or end the time after which keepalive breaks the connection."""
        if not self.open:
            return
        blocked = self._blocked
        if not blocked and self._held:
            held, self._held = self._held, []
            for receiver, action in held:
                self._arrive(receiver, action)
        if not (blocked or self.client.paused or self.server.process.paused):
            self._impaired = 0
        elif not self._impaired:
            self._impairments += 1
            number = self._impaired = self._impairments
            seconds = KEEPALIVE_SECONDS if self._established else HANDSHAKE_SECONDS

            def check() -> None:
                if self._impaired == number:
                    self.break_now("keepalive watchdog timeout")

            self._scheduler.after(seconds, check)

    process_paused = process_resumed = check_impaired

    def cut_after(self, size: int) -> None:
        """Break the connection after about `size` more bytes."""
        self._cut_after = size

    def process_died(self) -> None:
        """Let the living end see the end of the other."""
        if not self.open:
            return
        if self._blocked:
            self._scheduler.after(KEEPALIVE_SECONDS, lambda: self.break_now("keepalive timeout"))
        else:
            self._scheduler.after(self._network.delay(), lambda: self.break_now("Socket closed"))

    def break_now(self, reason: str) -> None:
        """Break both ends."""
        if not self.open:
            return
        self.open = False
        self._held.clear()
        self._network.connections.pop(self, None)
        self.client.endpoints.pop(self, None)
        self.server.process.endpoints.pop(self, None)
        self._scheduler.note(self.client, f"connection to {self.server.process} broke: {reason}")
        for call in [*self.client_calls, *self.server_calls]:
            call.connection_broke(reason)
        self.client_calls.clear()
        self.server_calls.clear()
