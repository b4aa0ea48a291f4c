"""Borders of splits that are known from a position and from lengths."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2
from distributed_input.order.repeated_splits import RepeatedSplits
from distributed_input.order.split_borders import RowRange, SplitBorders, UnknownLengthError

SPLITS = [5, 3, 8, 6]


def borders(lengths: dict[int, int], ordinal: int = 2) -> SplitBorders:
    """Return borders of partition 1, whose split 8 begins at row 20 and has 4 rows at least."""
    anchor = trainer_pb2.Anchor(ordinal=ordinal, rows=20)
    position = trainer_pb2.Position(anchors=[trainer_pb2.Anchor(), anchor])
    position.prefixes.add(partition=1, split=8, rows=4)
    position.prefixes.add(partition=0, split=8, rows=9)
    return SplitBorders(position, 1, SPLITS, lengths)


def asked(known: SplitBorders, row: int) -> int:
    with pytest.raises(UnknownLengthError) as error:
        known.locate(row, 1)
    return error.value.split


def test_rows_are_found_between_known_borders() -> None:
    known = borders({5: 12, 8: 6})
    assert known.locate(10, 5) == [RowRange(5, 10, 2), RowRange(3, 0, 3)]
    assert known.locate(18, 8) == [RowRange(3, 6, 2), RowRange(8, 0, 6)]


def test_the_split_beside_the_nearer_border_is_asked_for() -> None:
    assert [asked(borders({}), row) for row in (3, 18, 24)] == [5, 3, 8]
    assert borders({}).locate(20, 4) == [RowRange(8, 0, 4)]


def test_a_list_has_the_rows_before_its_end() -> None:
    known = borders({8: 6, 6: 2})
    assert known.total == 28
    with pytest.raises(PositionError, match="the dataset has changed"):
        known.locate(26, 3)
    assert [known.has(rows) for rows in (0, 27, 28, 29)] == [True, True, True, False]
    unknown = borders({8: 6})
    assert unknown.total is None
    assert unknown.has(24)
    with pytest.raises(UnknownLengthError):
        unknown.has(29)


@pytest.mark.parametrize("lengths", [{5: 12, 3: 9}, {3: 21}, {8: 3}])
def test_contradictions_are_errors(lengths: dict[int, int]) -> None:
    with pytest.raises(PositionError, match="the dataset has changed"):
        borders(lengths)
    with pytest.raises(PositionError, match="the dataset has changed"):
        borders({}, ordinal=9)


def test_a_prefix_behind_the_end_of_a_list_is_ignored() -> None:
    anchor = trainer_pb2.Anchor(ordinal=len(SPLITS), rows=20, ended=True)
    position = trainer_pb2.Position(anchors=[anchor])
    position.prefixes.add(partition=0, split=8, rows=4)
    assert SplitBorders(position, 0, SPLITS, {}).total == 20


def test_only_some_splits_of_a_list_without_end_are_looked_at() -> None:
    splits = RepeatedSplits(0, 0, [1, 0], 2)
    at = (1 << 32) - 2
    position = trainer_pb2.Position(anchors=[trainer_pb2.Anchor(ordinal=at, rows=10**12)])
    position.prefixes.add(partition=0, split=splits[at] & 0xFFFFFFFF, rows=4)
    lengths = {splits[at + one]: 7 for one in range(-3, 3)}
    known = SplitBorders(position, 0, splits, lengths)
    assert known.locate(10**12 - 1, 9) == [
        RowRange(splits[at - 1], 6, 1), RowRange(splits[at], 0, 7), RowRange(splits[at + 1], 0, 1)
    ]  # fmt: skip
    assert asked(known, 10**12 - 22) == splits[at - 4]
