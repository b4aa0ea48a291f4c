from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.sidecar.delivery.trainer_times import TrainerTimes


def progress(waiting: bool, wait: float, wall: float) -> trainer_pb2.Progress:
    totals = types_pb2.ReceivedTotals(trainer="t", rows=4, wait_seconds=wait, wall_seconds=wall)
    return trainer_pb2.Progress(
        waiting=waiting, wait_seconds=wait, wall_seconds=wall, received=totals
    )


def test_a_wait_counts_while_it_lasts() -> None:
    times = TrainerTimes().after(progress(True, 2.0, 3.0), 10.0)
    later = times.until(70.0)
    assert (later.wait_seconds, later.wall_seconds) == (62.0, 63.0)
    assert later.received is not None
    assert (later.received.wait_seconds, later.received.wall_seconds) == (62.0, 63.0)
    assert later.received.rows == 4
    assert times.until(70.0) == later, "the report itself is unchanged"


def test_a_trainer_that_pauses_has_the_times_of_its_report() -> None:
    times = TrainerTimes().after(progress(False, 2.0, 3.0), 10.0)
    assert times.until(70.0) == times
    assert (times.wait_seconds, times.wall_seconds) == (2.0, 3.0)


def test_a_wait_for_the_first_unit_or_of_an_older_client_has_no_times() -> None:
    times = TrainerTimes().after(progress(False, 2.0, 3.0), 10.0)
    older = trainer_pb2.Progress(waiting=True, wait_seconds=2.0)
    assert times.after(older, 20.0).until(70.0) == times


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 9), st.floats(0, 9), st.floats(0, 0.2))))
def test_the_times_never_decrease(events: list[tuple[bool, float, float, float]]) -> None:
    """Each report arrives after a delay."""
    times, now, wait, wall, before = TrainerTimes(), 0.0, 0.0, 0.0, TrainerTimes()
    for waiting, waited, worked, delay in events:
        now, wait, wall = now + waited + worked, wait + waited, wall + waited + worked
        times = times.after(progress(waiting, wait, wall), now + delay)
        seen = times.until(now + delay + 0.1)
        assert seen.wait_seconds >= before.wait_seconds
        assert seen.wall_seconds >= before.wall_seconds
        before, now = seen, now + delay + 0.1
