from __future__ import annotations

import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    DistributedInputError,
    UnavailableError,
)
from distributed_input.sidecar.streams.stream_retry import StreamRetry

AWAY = UnavailableError("away")
DATASET = DatasetFnError("failed")


def fail(
    retry: StreamRetry,
    now: float,
    error: DistributedInputError = AWAY,
    *,
    received: bool = False,
    replayed: int = 0,
) -> None:
    retry.record_failure(error, received, replayed, now)


def test_the_time_begins_with_the_first_failure() -> None:
    retry = StreamRetry(10)
    fail(retry, 100)
    assert retry.waited(109.9) == pytest.approx(9.9)
    assert not retry.is_timed_out(109.9)
    assert retry.is_timed_out(110)


def test_a_missing_worker_counts_as_a_failure() -> None:
    retry = StreamRetry(10)
    assert not retry.is_timed_out(100)
    fail(retry, 105)
    assert retry.is_timed_out(110)


def test_received_rows_restart_the_time_and_the_delays() -> None:
    retry = StreamRetry(10)
    fail(retry, 100)
    first = retry.next_delay()
    assert retry.next_delay() > first
    fail(retry, 109, received=True)
    assert not retry.is_timed_out(115)
    assert retry.next_delay() == first


def test_delays_grow_up_to_a_limit() -> None:
    retry = StreamRetry(10)
    assert [retry.next_delay() for _ in range(7)] == [0.05, 0.1, 0.2, 0.5, 1.0, 1.0, 1.0]


def test_only_a_longer_replay_restarts_the_time() -> None:
    retry = StreamRetry(10)
    fail(retry, 100, replayed=5)
    fail(retry, 108, replayed=6)
    assert not retry.is_timed_out(112)
    fail(retry, 117, replayed=6)
    assert retry.is_timed_out(118)


def test_the_first_replayed_row_restarts_the_time() -> None:
    retry = StreamRetry(10)
    fail(retry, 100)
    fail(retry, 109, replayed=1)
    assert not retry.is_timed_out(118)


def test_an_error_is_terminal_by_its_class_and_a_dataset_error_after_three() -> None:
    retry = StreamRetry(10)
    assert retry.is_terminal(ConfigError("wrong"))
    assert not retry.is_terminal(AWAY)
    for now in range(2):
        fail(retry, now, DATASET)
        assert not retry.is_terminal(DATASET)
    fail(retry, 2, DATASET)
    assert retry.is_terminal(DATASET)
    fail(retry, 3, DATASET, received=True)
    assert not retry.is_terminal(DATASET)
