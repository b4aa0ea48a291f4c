"""The consumers of a job, and fencing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.dispatcher_pb2 import PartitionFact
from distributed_input.api.proto.types_pb2 import Weights
from distributed_input.dispatcher import consumers as module
from distributed_input.dispatcher.consumers import ConsumerRegistry
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.link.statuses import InvalidRequestError
from distributed_input.order.facts import FactStore
from tests.unit.distributed_input.dispatcher.builders import PARTITIONS, consumer, fact

LIMITS = DispatcherLimits(expiry=5.0)


def holders(consumers: ConsumerRegistry, now: float) -> list[tuple[int, int, str]]:
    return [(c.last.index, c.last.count, c.last.incarnation) for c in consumers.live(now)]


def test_consumers_of_one_run_do_not_conflict():
    consumers = ConsumerRegistry(LIMITS)
    for index in (1, 0):
        assert consumers.beat(0.0, consumer(index, 2, f"i{index}")) is None
    assert holders(consumers, 0.0) == [(0, 2, "i0"), (1, 2, "i1")]


def test_an_error_is_reported_to_the_others_of_its_run_that_need_the_epoch():
    consumers, facts = ConsumerRegistry(LIMITS), FactStore()
    beats = [consumer(i, 2, f"i{i}", run="r", epoch=3) for i in range(2)]
    for beat in beats:
        consumers.beat(0.0, beat)
    none = 0, ""
    assert [consumers.failure(beat, facts, PARTITIONS) for beat in beats] == [none, none]
    consumers.beat(1.0, consumer(1, 2, "i1", run="r", epoch=3, failed="row 7: no such file"))
    failure = 3, "trainer 1 of 2 has stopped: row 7: no such file"
    assert consumers.failure(beats[0], facts, PARTITIONS) == failure
    assert consumers.failure(beats[1], facts, PARTITIONS) == none
    assert consumers.failure(consumer(0, 2, "i0", run="r", epoch=4), facts, PARTITIONS) == failure
    assert consumers.failure(consumer(0, 2, "i0", run="s", epoch=3), facts, PARTITIONS) == none
    consumers.beat(2.0, beats[1])
    assert consumers.failure(beats[0], facts, PARTITIONS) == none


def setting(index: int, batches: int, own: Any = (), **fields: Any) -> Any:
    """Return the heartbeat of a consumer that set its own weights at step 50, or others."""
    if not isinstance(own, Weights):
        own = Weights(step=50, weights=own or [1 + index, 1])
    fields = {"weights": own, "run": "r", "batches": batches, **fields}
    return consumer(index, 2, f"i{index}", **fields)


def disputes(*beats: Any, drops: bool = False) -> list[str]:
    consumers = ConsumerRegistry(LIMITS)
    found = []
    for beat in beats:
        assert consumers.beat(0.0, beat) is None
        found.append(consumers.dispute(beat, ["books", "web"], drops=drops))
    return found


def test_trainers_that_read_on_with_different_weights_are_named():
    *before, last = disputes(
        *(setting(index, 70) for index in range(2)),
        *(setting(index, 80) for index in range(2)),
        *(setting(index, 112) for index in range(2)),
    )
    assert not any(before)
    assert last == (
        "epoch 0, step 50: trainer 0 of 2 has the weights books 1, web 1, and trainer 1 of 2 has "
        "the weights books 2, web 1. Call set_weights in all trainers after the same step with the "
        "same weights"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"own": [1, 1]},
        {"own": Weights(step=51, weights=[2, 1])},
        {"own": Weights()},
        {"epoch": 1},
        {"run": "s"},
    ],
)
def test_other_weights_of_another_step_are_no_dispute(fields: dict[str, Any]):
    rounds = ((setting(0, batches), setting(1, batches, **fields)) for batches in (0, 90, 180, 270))
    assert not any(disputes(*itertools.chain(*rounds)))


@pytest.mark.parametrize(
    ("program", "other", "is_dispute"),
    [
        ([2, 3, 1], [0, 3, 1], False),  # the first source has ended at this step
        ([2, 4, 2], [0, 2, 1], False),  # in lowest terms
        ([2, 3, 1], [0, 1, 1], True),
        ([2, 3, 1], [1, 3, 1], True),
    ],
)
def test_weights_without_a_source_that_has_ended_are_no_dispute(
    program: list[int], other: list[int], is_dispute: bool
):
    rounds = (
        (setting(0, batches, program), setting(1, batches, other)) for batches in (0, 90, 180, 270)
    )
    beats = list(itertools.chain(*rounds))
    assert any(disputes(*beats, drops=True)) == is_dispute
    assert any(disputes(*beats)), "without drops, other weights are those of another program"


def test_many_trainers_with_different_weights_are_compared_once(monkeypatch: pytest.MonkeyPatch):
    compared = []

    def contradict(*each: Any) -> bool:
        compared.append(each)
        return original(*each)

    original = module._contradict
    monkeypatch.setattr(module, "_contradict", contradict)
    consumers, number = ConsumerRegistry(LIMITS), 100
    found = []
    for batches in (0, 50, 100):
        for index in range(number):
            weights = Weights(step=50, weights=[1 + index % 2, 1])
            fields: Any = {"weights": weights, "run": "r", "batches": batches}
            beat = consumer(index, number, f"i{index}", **fields)
            assert consumers.beat(0.0, beat) is None
            found.append(consumers.dispute(beat, ["books", "web"]))
    assert [bool(one) for one in found].index(True) == 2 * number
    assert len(consumers._disputes) == 1
    assert len(compared) < number / 5


def test_another_trainer_takes_the_place_of_one_that_has_left():
    """Each setting is still compared after the trainer that sent it first has left."""
    consumers, found = ConsumerRegistry(LIMITS), []
    for batches in (0, 50, 100, 150):
        for index in range(4):
            if index == 0 and batches:
                continue
            weights = Weights(step=50, weights=[1 + index % 2, 1])
            fields: Any = {"weights": weights, "run": "r", "batches": batches}
            beat = consumer(index, 4, f"i{index}", **fields)
            assert consumers.beat(0.0, beat) is None
            found.append(consumers.dispute(beat, ["books", "web"]))
        consumers.release("i0")
    assert any(found[-3:])
    assert not any(found[:-3])


def test_trainers_may_go_back_to_a_checkpoint_one_after_the_other():
    """Trainer 1 has stopped, has batches in its queue, and its heartbeats are late."""
    first, second = [3, 1], [4, 1]
    assert not any(
        disputes(
            *(setting(index, 900, first) for index in range(2)),
            setting(0, 902, second),
            setting(1, 940, first),  # it was on its way
            setting(0, 940, second),
            *(setting(1, batches, first) for batches in (945, 960)),
            setting(0, 980, second),
            setting(1, 961, second),
            *(setting(index, 2000, second) for index in range(2)),
        )
    )


def test_trainers_may_go_back_and_set_the_weights_of_before():
    first, second = [3, 1], [4, 1]
    assert not any(
        disputes(
            *(setting(index, 900, first) for index in range(2)),
            setting(0, 902, second),
            setting(1, 902, first),
            setting(0, 910, second),
            setting(1, 910, second),
            setting(1, 980, first),
            setting(0, 980, second),
            setting(1, 985, first),
            setting(0, 985, first),
        )
    )


def test_one_that_has_left_an_epoch_before_its_end_is_reported_to_those_that_read_it():
    consumers, facts = ConsumerRegistry(LIMITS), FactStore()
    behind = consumer(0, 2, "i0", run="r", epoch=3)
    consumers.beat(0.0, behind)
    consumers.beat(0.0, consumer(1, 2, "i1", run="r", epoch=4))
    ended = [PartitionFact(partition=p, epoch=3, ended=True) for p in (1, 3)]
    assert facts.merge(ended[:1]) == []
    epoch, text = consumers.failure(behind, facts, PARTITIONS)
    assert epoch == 4
    assert text.startswith("trainer 1 of 2 reads epoch 5, and has not read epoch 4 to its end")
    assert consumers.failure(consumer(0, 2, "i0", run="s", epoch=3), facts, PARTITIONS) == (0, "")
    three = [consumer(i, 3, f"j{i}", run="r", epoch=4 - i % 2) for i in range(3)]
    three[1].failed = "row 7: no such file"
    third = ConsumerRegistry(LIMITS)
    for beat in three:
        third.beat(0.0, beat)
    waiting = consumer(2, 3, "j2", run="r", epoch=3)
    assert (
        third.failure(waiting, facts, PARTITIONS)[1]
        == "trainer 1 of 3 has stopped: row 7: no such file"
    )
    assert facts.merge(ended[1:]) == []
    assert consumers.failure(behind, facts, PARTITIONS) == (0, "")


def test_a_newer_incarnation_fences_the_older_one():
    consumers = ConsumerRegistry(LIMITS)
    assert consumers.beat(0.0, consumer(0, 2, "1")) is None
    assert consumers.beat(1.0, consumer(0, 2, "2")) is None
    reason = consumers.beat(1.0, consumer(0, 2, "1"))
    assert reason is not None
    assert "consumer 0 of 2 (incarnation 2)" in reason
    assert "same index" in reason
    assert holders(consumers, 1.0) == [(0, 2, "2")]
    assert consumers.fenced == 1


def test_an_older_incarnation_is_fenced_even_if_its_heartbeat_is_later():
    consumers = ConsumerRegistry(LIMITS)
    consumers.beat(0.0, consumer(0, 2, "2"))
    assert consumers.beat(1.0, consumer(0, 2, "1")) is not None


def test_a_fence_ends_when_its_holder_expires():
    """An incarnation from a fast clock does not block the next consumer."""
    consumers = ConsumerRegistry(LIMITS)
    consumers.beat(0.0, consumer(0, 2, "9"))
    assert consumers.beat(4.9, consumer(0, 2, "1")) is not None
    assert consumers.beat(5.1, consumer(0, 2, "1")) is None


def test_a_run_with_another_number_of_trainers_takes_over():
    consumers = ConsumerRegistry(LIMITS)
    for index in range(4):
        consumers.beat(0.0, consumer(index, 4, f"1-{index}"))
    for index in range(2):
        assert consumers.beat(1.0, consumer(index, 2, f"2-{index}")) is None
    assert holders(consumers, 1.0) == [(0, 2, "2-0"), (1, 2, "2-1")]
    for index in range(4):
        reason = consumers.beat(2.0, consumer(index, 4, f"1-{index}"))
        assert reason is not None
        assert "a count of 2, not 4" in reason
    assert holders(consumers, 2.0) == [(0, 2, "2-0"), (1, 2, "2-1")]


def test_trainers_of_a_job_that_is_scaled_join_with_the_new_number():
    """A pod keeps the number with which it was created; the Job replaces a pod that has failed."""
    consumers = ConsumerRegistry(LIMITS)
    for index in range(2):
        assert consumers.beat(0.0, consumer(index, 2, f"1-{index}")) is None
    for index in (2, 3):  # the pods that the Job adds
        assert consumers.beat(1.0, consumer(index, 4, f"2-{index}")) is None
    for index in range(2):
        assert consumers.beat(2.0, consumer(index, 2, f"1-{index}")) is not None
        assert consumers.beat(3.0, consumer(index, 4, f"3-{index}")) is None
    assert [one[:2] for one in holders(consumers, 3.0)] == [(index, 4) for index in range(4)]
    # A container that restarts in an old pod ends them.
    assert consumers.beat(4.0, consumer(0, 2, "4-0")) is None
    assert holders(consumers, 4.0) == [(0, 2, "4-0")]


def test_the_error_of_a_wrong_count_has_both_counts():
    consumers = ConsumerRegistry(LIMITS)
    consumers.beat(0.0, consumer(1, 4, "2"))
    reason = consumers.beat(0.0, consumer(0, 2, "1"))
    assert reason is not None
    assert "a count of 4, not 2" in reason
    assert "same consumer count" in reason


def test_a_finished_consumer_is_not_a_loss():
    consumers = ConsumerRegistry(LIMITS)
    consumers.beat(0.0, consumer(0, 2, "1", finished=True))
    consumers.beat(0.0, consumer(1, 2, "2"))
    assert consumers.last_held(1.0) == 0.0
    consumers.expire(9.0)
    assert consumers.losses == 1
    assert consumers.last_held(9.0) is None


def test_a_run_is_over_when_all_have_finished_or_left():
    consumers = ConsumerRegistry(LIMITS)
    assert not consumers.over
    consumers.beat(0.0, consumer(0, 2, "1", finished=True))
    consumers.beat(0.0, consumer(1, 2, "2"))
    assert not consumers.over
    consumers.release("2")
    assert consumers.over
    consumers.expire(60.0)
    assert consumers.over
    consumers.beat(60.0, consumer(1, 2, "3"))
    assert not consumers.over


def test_a_run_with_another_count_is_another_run():
    consumers = ConsumerRegistry(LIMITS)
    for index in (1, 2):
        consumers.beat(0.0, consumer(index, 3, f"1-{index}", finished=True))
    consumers.beat(1.0, consumer(0, 2, "2-0", finished=True))
    assert not consumers.over


def test_an_expired_consumer_has_not_finished():
    consumers = ConsumerRegistry(LIMITS)
    consumers.beat(0.0, consumer(0, 1, "1"))
    consumers.expire(60.0)
    assert not consumers.over


def test_facts_are_not_stored_with_the_heartbeat():
    consumers = ConsumerRegistry(LIMITS)
    beat = consumer(0, 2, "1", facts=[fact(0, [3])])
    consumers.beat(0.0, beat)
    assert not consumers.live(0.0)[0].last.facts
    assert beat.facts


@pytest.mark.parametrize(
    ("field", "beat"),
    [
        ("incarnation", consumer(incarnation="")),
        ("index: 2 is not below count 2", consumer(2, 2)),
        ("index: 0 is not below count 0", consumer(0, 0)),
    ],
)
def test_an_error_names_the_invalid_field(field, beat):
    with pytest.raises(InvalidRequestError, match=field):
        ConsumerRegistry(LIMITS).beat(0.0, beat)


def test_the_number_of_consumers_is_bounded():
    consumers = ConsumerRegistry(DispatcherLimits(consumers=1))
    consumers.beat(0.0, consumer(0, 2, "1"))
    with pytest.raises(TerminalError, match="more than 1 consumers"):
        consumers.beat(0.0, consumer(1, 2, "2"))
    assert consumers.beat(0.0, consumer(0, 2, "1")) is None, "who is there goes on"


def test_the_number_of_finished_indices_is_bounded():
    consumers = ConsumerRegistry(DispatcherLimits(consumers=2))
    for index in range(3):
        consumers.beat(0.0, consumer(index, 3, str(index), finished=True))
        consumers.release(str(index))
    assert not consumers._done


# The index and count of an incarnation never change.
LIVES = st.lists(
    st.integers(1, 3).flatmap(lambda count: st.tuples(st.integers(0, count - 1), st.just(count))),
    min_size=1,
    max_size=8,
)


@given(lives=LIVES, data=st.data())
def test_an_index_has_one_holder_the_newest_live_incarnation(lives, data):
    """For any sequence of heartbeats and pauses."""
    consumers, now = ConsumerRegistry(LIMITS), 0.0
    heard: dict[str, float] = {}
    beats = data.draw(st.lists(st.tuples(st.floats(0, 3), st.integers(0, len(lives) - 1))))
    for wait, number in beats:
        now += wait
        index, count = lives[number]
        reason = consumers.beat(now, consumer(index, count, str(number)))
        held = holders(consumers, now)
        assert len({(i, n) for i, n, _ in held}) == len(held)
        assert len({n for _, n, _ in held}) <= 1
        assert ((index, count, str(number)) in held) == (reason is None)
        if reason is None:
            heard[str(number)] = now
            for other in [k for k in heard if k not in {k for _, _, k in held}]:
                del heard[other]
        else:
            # The consumer that fences is newer, and has sent a heartbeat within the expiry.
            assert any(int(k) > number and now - heard[k] <= LIMITS.expiry for _, _, k in held)
        assert {k for _, _, k in held} <= heard.keys()
