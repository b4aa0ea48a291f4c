"""Which consumer a process is, and errors that name its rank and those of its trainer."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto.trainer_pb2 import Rank
from distributed_input.sidecar.inputs.ranks import TrainerRanks

SECOND_OF_TWO = TrainerRanks(trainer=1, trainers=2, each=4)


def torchrun(index: int, count: int) -> Rank:
    return Rank(index=index, count=count, source="RANK and WORLD_SIZE (torchrun)")


def requested(index: int, count: int) -> Rank:
    return Rank(index=index, count=count, source="connect(...)", requested=True)


def data(index: int, count: int) -> Rank:
    source = f"connect(data_rank={index}, data_size={count})"
    return Rank(index=index, count=count, source=source, requested=True, readers=2, reader=9)


def test_the_ranks_of_all_trainers_are_all_consumers_in_order() -> None:
    trainers = [TrainerRanks(trainer, 2, 4) for trainer in range(2)]
    found = [one.consumer(one.local_rank(torchrun(4 * t + r, 8)))
             for t, one in enumerate(trainers) for r in range(4)]  # fmt: skip
    assert found == list(range(8))
    assert all(one.count == 8 for one in trainers)


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        (
            torchrun(3, 8),
            r"^RANK and WORLD_SIZE \(torchrun\): this process is rank 3 of 8, but its trainer, "
            r"1 of 2, has the ranks 4 to 7 of 8\. Start its node as number 1, .*--node-rank",
        ),
        (
            requested(4, 16),
            "rank 4 of 16, .* 4 to 7 of 8.* Start 4 process.* in each of the 2 trainers"
            '.* For 8, set annotation distributed-input.dev/ranks-per-trainer: "8"',
        ),
        (
            torchrun(4, 16),
            r"If 2 ranks read the same batches: connect\(data_rank=\.\.\., data_size",
        ),
        (
            data(3, 8),
            r"^connect\(data_rank=3, data_size=8\): this process is data rank 3 of 8, but its "
            r"trainer, 1 of 2, has the ranks 4 to 7 of 8\. Trainers are numbered so that .* 4 data "
            r"rank\(s\) .* Start its node as number 1, or pass data_rank=4 plus",
        ),
        (
            data(0, 4),
            'data rank 0 of 4, .* For data_size=4, set annotation .*: "2" in .* data_size=8$',
        ),
        (data(0, 1), 'For data_size=1, set annotation .*: "1/2" in the'),
        (data(0, 2), 'For data_size=2, set annotation .*: "1" in the'),
        (data(0, 3), r"cannot share 3 data rank\(s\): use a multiple or a divisor of 2$"),
        (torchrun(4, 7), r"rank 4 of 7, .* world_size=\.\.\.\)$"),
        (
            None,
            r"this process has no rank: start it with torchrun.* older than the sidecar, upgrade",
        ),
    ],
)
def test_a_process_that_is_no_rank_of_its_trainer_is_refused(
    claimed: Rank | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        SECOND_OF_TWO.local_rank(claimed)


def test_with_one_process_for_each_trainer_only_a_requested_rank_is_checked() -> None:
    one = TrainerRanks(trainer=1, trainers=2)
    for claimed in (None, torchrun(0, 2), torchrun(5, 8), requested(1, 2)):
        assert one.local_rank(claimed) == 0
    with pytest.raises(ConfigError, match=r"rank 0 of 2, but .* 1 of 2, has rank 1 of 2"):
        one.local_rank(requested(0, 2))


def test_a_data_rank_spans_trainers_that_read_it_in_jobs_of_their_own() -> None:
    trainers = [TrainerRanks.of(index, 4, "1/2") for index in range(4)]
    assert [one.consumer(0) for one in trainers] == [0, 0, 1, 1]
    assert {one.count for one in trainers} == {2}
    assert [one.job("") for one in trainers] == ["", "copy-1"] * 2
    assert [one.job("eval") for one in trainers] == ["eval", "eval.copy-1"] * 2
    assert [TrainerRanks.of(index, 2, "4").job("") for index in range(2)] == ["", ""]
    third = trainers[2]
    assert third.local_rank(data(1, 2)) == 0
    assert third.readers(data(1, 2)) == 1
    assert third.readers(None) == third.readers(torchrun(2, 4)) == 1
    with pytest.raises(ConfigError, match=r"data rank 0 of 2, .* trainer, 2 of 4, has rank 1 of 2"):
        third.local_rank(data(0, 2))
    odd = TrainerRanks.of(0, 3, "1/3")
    with pytest.raises(ConfigError, match=r"2 processes have the same data rank, .* 3 trainers"):
        odd.readers(data(0, 1))


@pytest.mark.parametrize(
    ("trainer", "trainers", "text", "message"),
    [
        (0, 2, "0", "--ranks-per-trainer: '0' is neither a number of ranks from 1, nor 1/N"),
        (0, 2, "2/3", "'2/3' is neither"),
        (0, 3, "1/2", "--ranks-per-trainer 1/2: 3 trainers cannot be divided .* multiple of 2"),
        (2, 2, "1", "--consumer-index 2: must be from 0 to 1"),
    ],
)
def test_invalid_numbers_of_ranks_are_refused(
    trainer: int, trainers: int, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        TrainerRanks.of(trainer, trainers, text)
