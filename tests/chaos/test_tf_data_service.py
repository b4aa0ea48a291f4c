"""Faults in which tf.data service loses rows and DistributedInput does not.

If TensorFlow fixes them, docs/faults.md must change.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from testing.chaos.measurements.tf_data_service import distributed_input_run, tf_data_service_run
from testing.processes.forks import Forks

KILL_AFTER = (9, 20)
DEADLINE = 8.0
"""Seconds. An epoch takes less than one second."""


def test_tf_data_service_loses_rows_when_a_worker_restarts_at_its_address(forks: Forks) -> None:
    with ThreadPoolExecutor(2) as pool:
        results = list(
            pool.map(lambda after: tf_data_service_run(forks, "same", after, 30.0), KILL_AFTER)
        )
    assert any(result.ended and result.lost for result in results), results


def test_tf_data_service_never_ends_without_the_killed_worker(forks: Forks) -> None:
    assert not tf_data_service_run(forks, "never", KILL_AFTER[0], DEADLINE).ended


def test_distributed_input_ends_and_loses_nothing(forks: Forks) -> None:
    with ThreadPoolExecutor(3) as pool:
        results = list(
            pool.map(
                lambda restart: distributed_input_run(forks, restart, 9), ("same", "new", "never")
            )
        )
    assert all(r.ended and not r.lost and not r.repeated for r in results), results
