"""A stored split has the blocks that were written, or is known to be damaged."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows.stored_split import (
    Description,
    SplitFile,
    StoredSplit,
    StoreError,
)
from tests.unit.distributed_input.worker.streams.blockcases import block_of, prefix_of, rows_in

ROWS = 12
ABOUT = Description("data:rows", 1, 2, ROWS, prefix_of(ROWS).digest, 0.5, [["a", 1, 2, 3]])


def write(path: Path, about: Description = ABOUT) -> None:
    file = SplitFile(path)
    file.write([block_of(0, 3), block_of(3, 2)])
    file.write([block_of(5, 7)])
    file.finish(about)
    assert file.size == path.stat().st_size


@pytest.mark.parametrize("row", range(ROWS + 1))
def test_blocks_are_read_from_any_row_on(row: int, tmp_path: Path) -> None:
    write(tmp_path / "split")
    stored = StoredSplit(tmp_path / "split")
    found = list(stored.blocks(row))
    first = 0 if row < 5 else 5 if row < ROWS else ROWS
    assert rows_in(found) == list(range(first, ROWS))
    assert [block.prefix_digest for block in found] == [
        prefix_of(block.first_row).digest for block in found
    ]
    assert stored.prefix(row) == prefix_of(row)
    assert stored.prefix(ROWS + 1) is None
    assert stored.about._replace(blocks=()) == ABOUT
    stored.close()


def test_a_split_without_rows(tmp_path: Path) -> None:
    SplitFile(tmp_path / "split").finish(ABOUT._replace(rows=0, digest=0))
    stored = StoredSplit(tmp_path / "split")
    assert list(stored.blocks(0)) == []
    assert stored.prefix(0) == prefix_of(0)
    stored.close()


def test_an_open_split_stays_readable(tmp_path: Path) -> None:
    write(tmp_path / "split")
    stored = StoredSplit(tmp_path / "split")
    (tmp_path / "split").unlink()
    assert rows_in(list(stored.blocks(0))) == list(range(ROWS))
    stored.close()
    with pytest.raises(FileNotFoundError):
        StoredSplit(tmp_path / "split")


@given(at=st.integers(0, 10_000), value=st.integers(1, 255), cut=st.booleans())
def test_damage_is_found(
    at: int, value: int, cut: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "split"
    write(path)
    data = bytearray(path.read_bytes())
    at %= len(data)
    if cut:
        del data[at:]
    else:
        data[at] ^= value
    path.write_bytes(data)
    with pytest.raises(StoreError), closing(StoredSplit(path)) as stored:
        list(stored.blocks(0))


def test_no_file_is_replaced(tmp_path: Path) -> None:
    SplitFile(tmp_path / "split").close()
    with pytest.raises(FileExistsError):
        SplitFile(tmp_path / "split")
