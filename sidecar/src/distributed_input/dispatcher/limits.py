"""What the dispatcher bounds, so that no client can make it grow without end."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class DispatcherLimits:
    """Times in seconds, sizes in bytes.

    Attributes:
        heartbeat: how often workers and consumers are told to report.
        expiry: silent for so long, a worker or consumer counts as gone. Five lost heartbeats: a
            process that is short of CPU for a moment stays, and a dead worker stops being offered
            before many streams have tried it. (Broken streams are noticed by their own sidecars.)
        hold: a job just registered is kept for so long without a consumer's heartbeat.
        forget: a job that nobody uses, and what is known of it, is dropped after so long.
        dataset_bytes: of all traced datasets together.
        workers, consumers, jobs: at once; consumers of one job.
        fact_epochs: epochs of one job of which facts are kept.
    """

    heartbeat: float = 1.0
    expiry: float = 5.0
    hold: float = 10.0
    forget: float = 3600.0
    dataset_bytes: int = 2 * GIB
    workers: int = 10_000
    consumers: int = 10_000
    jobs: int = 1000
    fact_epochs: int = 64
