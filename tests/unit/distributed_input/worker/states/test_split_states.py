"""Which saved state a stream may use."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.states import split_states as module
from distributed_input.worker.states.saved_state import KEY_BYTES, SavedState, encode
from distributed_input.worker.states.split_states import SplitStates, is_anchored, is_checked

KEY = b"k" * KEY_BYTES


@pytest.fixture(autouse=True)
def _no_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_checked", lambda request: False)


def token_at(row: int) -> bytes:
    return encode(SavedState(KEY, Prefix(row, 5), 4, b"data"))


def request(token: bytes, **fields: Any) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(name="train", dataset_id="d")
    return worker_pb2.StreamRequest(job=job, resume_token=token, **fields)


def test_a_state_before_the_start_is_used() -> None:
    states = SplitStates()
    found = states.find(request(token_at(8), start_row=8))
    assert found is not None
    assert found.prefix == Prefix(8, 5)
    assert states.find(request(token_at(9), start_row=8)) is None


def test_at_least_one_row_behind_a_state_is_checked() -> None:
    states = SplitStates()
    fields = {"start_row": 8, "prefix_rows": 6, "check_prefix": True}
    assert states.find(request(token_at(5), **fields)) is not None
    assert states.find(request(token_at(6), **fields)) is None


def test_a_damaged_state_is_refused() -> None:
    states = SplitStates()
    assert states.find(request(token_at(1)[:-1], start_row=8)) is None
    assert states.counts == {"saved": 0, "restored": 0, "refused": 1, "skipped": 0}


def test_a_stream_without_a_state_is_no_failure() -> None:
    states = SplitStates()
    assert states.find(request(b"", start_row=8)) is None
    assert states.counts["refused"] == 0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"anchor_rows": 5}, True),
        ({"anchor_rows": 0}, False),
        ({"anchor_rows": 6}, False),  # no row would show a change
        ({"anchor_rows": 5, "check_prefix": False}, False),
    ],
)
def test_rows_are_skipped_if_others_can_be_verified(fields: dict[str, Any], expected: bool) -> None:
    values = {"start_row": 8, "prefix_rows": 6, "check_prefix": True, **fields}
    assert is_anchored(request(b"", **values)) == expected


def test_no_state_is_used_in_an_epoch_that_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "is_checked", lambda request: True)
    assert SplitStates().find(request(token_at(8), start_row=8)) is None


def test_one_epoch_of_sixteen_is_checked() -> None:
    checked = [is_checked(request(b"", seed=3, epoch=epoch)) for epoch in range(1600)]
    assert 70 <= sum(checked) <= 130


def test_all_splits_of_an_epoch_are_checked_or_none() -> None:
    for epoch in range(32):
        both = {is_checked(request(b"", seed=3, epoch=epoch, split=split)) for split in range(8)}
        assert len(both) == 1
