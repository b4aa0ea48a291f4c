"""Timestamps as Kubernetes writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.timestamps import to_seconds, to_text


@given(st.integers(0, 4 * 10**9))
def test_whole_seconds_survive_writing_and_reading(seconds: int):
    assert to_seconds(to_text(seconds)) == seconds


def test_a_timestamp_is_utc_in_whole_seconds():
    assert to_text(1_738_324_800.9) == "2025-01-31T12:00:00Z"


@pytest.mark.parametrize("text", ["", "yesterday", "2025-01-31", "2025-01-31T12:00:00"])
def test_other_text_is_not_a_timestamp(text: str):
    assert to_seconds(text) is None
