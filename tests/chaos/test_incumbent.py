"""What tf.data service does where we lose nothing: should it learn better, the documents change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from testing.chaos.incumbent import our_run, service_run
from testing.processes.forks import Forks

AFTER = (9, 20)
PATIENCE = 8.0
"""Seconds; an epoch takes less than one."""


def test_tf_data_service_loses_rows_when_a_worker_comes_back_at_its_address(forks: Forks) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(lambda after: service_run(forks, "same", after, 30.0), AFTER))
    assert any(result.ended and result.lost for result in results), results


def test_tf_data_service_never_ends_when_a_worker_stays_away(forks: Forks) -> None:
    assert not service_run(forks, "never", AFTER[0], PATIENCE).ended


def test_we_end_and_lose_nothing(forks: Forks) -> None:
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda back: our_run(forks, back, 9), ("same", "new", "never")))
    assert all(r.ended and not r.lost and not r.repeated for r in results), results
