"""Limits of the dispatcher, which bound its memory whatever its clients send."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True)
class DispatcherLimits:
    """Times in seconds, sizes in bytes.

    Attributes:
        heartbeat: interval of the heartbeats of workers and consumers.
        expiry: a worker or consumer without a heartbeat for this long has ended. Five lost
            heartbeats: a process that briefly lacks CPU stays, and an ended worker is removed
            before many streams have tried it. (The sidecars detect failed streams themselves.)
        hold: a new job is in use for this long without a heartbeat of a consumer.
        forget: a job and its facts are removed after this time without use.
        dataset_bytes: total size of all traced datasets.
        workers, consumers, jobs: maximum numbers; of consumers, per job.
        fact_epochs: number of epochs per job for which facts are kept.
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
