from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import types_pb2
from distributed_input.api.proto.trainer_pb2 import Position
from distributed_input.order import identity

ENTRY = types_pb2.EntryPoint(target="shop.data:rows", args_json='{"rows": 3}', path="/here")
PACKED = types_pb2.EntryPoint(
    target="shop.data:rows",
    args_json='{"rows": 3}',
    packing=types_pb2.Packing(length=64, method="best_fit", open_sequences=4),
)


def job(**fields: Any) -> types_pb2.Job:
    fields = {
        "name": "train", "seed": 7, "partitions": 4, "global_batch_size": 8, "num_splits": 32,
        "entry_point": ENTRY, "definitions": [5], "definition_version": "2.21.0", **fields,
    }  # fmt: skip
    return types_pb2.Job(**fields)


def saved(of: types_pb2.Job) -> Position:
    position = Position(
        job=of.name,
        seed=of.seed,
        partitions=of.partitions,
        global_batch_size=of.global_batch_size,
    )
    identity.stamp(position, of)
    return position


jobs = st.builds(
    job,
    name=st.sampled_from(["train", "train/sweep"]),
    seed=st.integers(0, 3),
    num_splits=st.integers(1, 3),
    entry_point=st.sampled_from([None, ENTRY]),
    definitions=st.lists(st.integers(0, 3), max_size=3),
    definition_version=st.sampled_from(["", "2.21.0"]),
    order_version=st.integers(0, 1),
)


@given(jobs)
def test_a_stamped_position_is_valid(of: types_pb2.Job) -> None:
    identity.check(saved(of), of)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"name": "other"}, "name = 'train', the job now has 'other'"),
        ({"num_splits": 8}, "spec.numSplits = 32, the job now has 8"),
        ({"partitions": 2}, "spec.partitions = 4, the job now has 2"),
        ({"seed": 8}, "spec.seed = 7, the job now has 8"),
        (
            {"mode": types_pb2.PARALLEL_EPOCHS},
            "spec.processingMode = 'distributed_epoch', the job now has 'parallel_epochs'",
        ),
        ({"definitions": [6]}, "its definition was [0-9a-f]{16} and is now [0-9a-f]{16}"),
        ({"definitions": [5, 5]}, "list of files"),
        (
            {"entry_point": types_pb2.EntryPoint(target="shop.data:other")},
            r"the dataset shop.data:rows {\"rows\": 3}, the job now has shop.data:other {}",
        ),
        (
            {"entry_point": PACKED},
            "the job now has .* packed by best_fit into 64, 4 at the same time",
        ),
        ({"entry_point": None}, "the job now has a dataset of the trainer"),
    ],
)
def test_a_position_of_another_dataset_is_an_error(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(PositionError, match=message):
        identity.check(saved(job()), job(**changed))


@pytest.mark.parametrize(
    "changed",
    [
        {"definitions": []},
        {"definitions": [6], "definition_version": "2.22.0"},
        {"entry_point": types_pb2.EntryPoint(target=ENTRY.target, args_json=ENTRY.args_json)},
    ],
    ids=["no graph", "another TensorFlow", "another folder"],
)
def test_what_cannot_be_compared_is_not_an_error(changed: dict[str, Any]) -> None:
    identity.check(saved(job()), job(**changed))


def test_a_changed_dataset_can_be_accepted_but_not_another_number_of_splits() -> None:
    changed = job(definitions=[6], entry_point=types_pb2.EntryPoint(target="shop.data:other"))
    position = saved(job())
    identity.accept_dataset(position, changed)
    identity.check(position, changed)
    with pytest.raises(PositionError, match=r"spec\.numSplits"):
        identity.check(position, job(num_splits=8))


def excluding(*indexes: int, source: str = "") -> types_pb2.Job:
    """Return a job, or a mixture, that excludes records."""
    found = job()
    of = found.sources.add(entry_point=types_pb2.EntryPoint(source=source)) if source else found
    for index in indexes:
        of.bad_records.excluded.add(step="Dataset_map_parse", index=index)
    return found


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (excluding(), excluding(3)),
        (excluding(3), excluding()),
        (excluding(3), excluding(3, 4)),
        (excluding(source="books"), excluding(3, source="books")),
    ],
)
@pytest.mark.parametrize("fields", [{"step": 5}, {"extra_units": 1}])
def test_another_list_of_excluded_records_is_an_error_within_an_epoch(
    before: types_pb2.Job, after: types_pb2.Job, fields: dict[str, Any]
) -> None:
    start = saved(before)
    identity.check(start, after)
    position = Position(**fields)
    position.MergeFrom(start)
    identity.check(position, before)
    with pytest.raises(PositionError, match=r"spec\.badRecords\.exclude has changed .*accept"):
        identity.check(position, after)
    end = Position(end=True)
    end.MergeFrom(position)
    identity.check(end, after)
    identity.accept_dataset(position, after)
    identity.check(position, after)


def test_the_order_of_excluded_records_does_not_matter() -> None:
    position = saved(excluding(3, 4))
    position.step = 5
    identity.check(position, excluding(4, 3))


def test_a_position_keeps_the_identity_that_it_was_saved_with() -> None:
    position = saved(job())
    identity.stamp(position, job(num_splits=8))
    with pytest.raises(PositionError, match=r"spec\.numSplits"):
        identity.check(position, job(num_splits=8))


@pytest.mark.parametrize("other", [0, identity.FORMAT + 1])
def test_a_position_of_another_format_is_an_error(other: int) -> None:
    position = saved(job())
    position.format = other
    with pytest.raises(PositionError, match=f"format {other}, .* reads format {identity.FORMAT}:"):
        identity.check(position, job())


def test_a_position_of_another_order_of_rows_is_an_error() -> None:
    unchanged, ordered = job(), job(order_version=1)
    with pytest.raises(PositionError, match=r"version 0 of the order .* version 1.*accept_changed"):
        identity.check(saved(unchanged), ordered)
    with pytest.raises(PositionError, match="order of rows"):
        identity.check(saved(ordered), unchanged)
    position = saved(unchanged)
    identity.accept_dataset(position, ordered)
    identity.check(position, ordered)
