"""The saved states that a sidecar keeps."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.sidecar.streams.resume_states import ResumeStates


def test_the_latest_state_of_a_split_is_used() -> None:
    states = ResumeStates()
    states.keep(1, b"old")
    states.keep(1, b"new")
    states.keep(2, b"other")
    assert states.of(1) == b"new"
    assert states.of(3) == b""


def test_a_state_is_used_again_only_after_rows_have_come() -> None:
    states = ResumeStates()
    states.keep(1, b"state")
    states.record_begin(1)
    assert states.of(1) == b""
    states.record_rows(1)
    assert states.of(1) == b"state"


def test_a_state_that_reached_no_worker_is_used_again() -> None:
    states = ResumeStates()
    states.keep(1, b"state")
    assert [states.of(1), states.of(1)] == [b"state", b"state"]


def test_a_newer_state_is_used_at_once() -> None:
    states = ResumeStates()
    states.keep(1, b"old")
    states.record_begin(1)
    states.keep(1, b"new")
    assert states.of(1) == b"new"


def test_a_dropped_state_is_gone() -> None:
    states = ResumeStates()
    states.keep(1, b"state")
    states.drop(1)
    states.drop(1)
    states.record_begin(1)
    states.record_rows(1)
    assert states.of(1) == b""


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8), st.booleans())))
def test_the_states_do_not_exceed_the_limit(steps: list[tuple[int, int, bool]]) -> None:
    states, expected = ResumeStates(limit=10), dict[int, int]()
    for split, size, is_dropped in steps:
        expected.pop(split, None)
        if is_dropped:
            states.drop(split)
            continue
        states.keep(split, b"x" * size)
        if sum(expected.values()) + size <= 10:
            expected[split] = size
    assert {split: len(states.of(split)) for split in range(4)} == {
        split: expected.get(split, 0) for split in range(4)
    }
