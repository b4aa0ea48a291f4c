"""A change since the start has another lane than one before it."""

from __future__ import annotations

from typing import Any

from distributed_input_operator.controller.startup.lanes import EarlierChanges, is_changed
from distributed_input_operator.controller.work_queue import Lane

KEY = ("team", "digits")


def stored(generation: int, observed: int | None, uid: str = "u-1") -> dict[str, Any]:
    status = {} if observed is None else {"observedGeneration": observed}
    return {"metadata": {"generation": generation, "uid": uid}, "status": status}


def lane_after(first: dict[str, Any], now: dict[str, Any] | None) -> Lane:
    earlier = EarlierChanges()
    earlier.record(KEY, first)
    return earlier.lane(KEY, now, Lane.START)


def test_a_spec_is_changed_until_its_generation_is_observed():
    assert is_changed({"metadata": {"generation": 1}})
    assert is_changed(stored(3, 2))
    assert not is_changed(stored(3, 3))


def test_an_input_without_a_change_has_the_lane_of_its_event():
    assert lane_after(stored(3, 3), stored(3, 3)) is Lane.START
    assert lane_after(stored(3, 2), stored(3, 3)) is Lane.START
    assert lane_after(stored(3, 2), None) is Lane.START


def test_the_spec_that_a_new_leader_found_is_an_earlier_change_until_it_is_applied():
    assert lane_after(stored(3, 2), stored(3, 2)) is Lane.EARLIER_CHANGE
    assert lane_after(stored(1, None), stored(1, None)) is Lane.EARLIER_CHANGE
    assert lane_after(stored(3, 1), stored(3, 2)) is Lane.EARLIER_CHANGE


def test_any_later_spec_is_a_new_change():
    assert lane_after(stored(3, 3), stored(4, 3)) is Lane.CHANGE
    assert lane_after(stored(3, 2), stored(4, 2)) is Lane.CHANGE
    assert lane_after(stored(1, None), stored(1, None, "u-2")) is Lane.CHANGE
    assert EarlierChanges().lane(KEY, stored(1, None), Lane.START) is Lane.CHANGE
