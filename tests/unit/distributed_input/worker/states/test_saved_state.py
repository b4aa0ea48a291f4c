"""Saved states as bytes: damaged ones are never accepted."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows.prefix import Prefix
from distributed_input.worker.states.saved_state import (
    KEY_BYTES,
    SavedState,
    StateError,
    StateTimeoutError,
    decode,
    encode,
    within,
)

_words = st.integers(0, 2**64 - 1)
states = st.builds(
    SavedState,
    st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES),
    st.builds(Prefix, _words, _words),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)


@given(states)
def test_a_state_comes_back_as_it_was_saved(state: SavedState) -> None:
    assert decode(encode(state)) == state


@given(states, st.data())
def test_a_flipped_bit_is_found(state: SavedState, data: st.DataObject) -> None:
    token = bytearray(encode(state))
    bit = data.draw(st.integers(0, 8 * len(token) - 1))
    token[bit // 8] ^= 1 << bit % 8
    with pytest.raises(StateError):
        decode(bytes(token))


@given(states, st.data())
def test_a_truncated_state_is_found(state: SavedState, data: st.DataObject) -> None:
    token = encode(state)
    with pytest.raises(StateError):
        decode(token[: data.draw(st.integers(0, len(token) - 1))])


@given(st.binary(max_size=200))
def test_other_bytes_are_no_state(token: bytes) -> None:
    with pytest.raises(StateError):
        decode(token)


def test_the_result_or_error_of_a_call_is_passed_on() -> None:
    assert within(10.0, "count", lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        within(10.0, "divide", lambda: 1 // 0)


def test_a_call_that_does_not_return_is_left_alone() -> None:
    release = threading.Event()
    with pytest.raises(StateTimeoutError, match="wait"):
        within(0.01, "wait", release.wait)
    release.set()
