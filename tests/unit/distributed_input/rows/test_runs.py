"""Slices of runs are views with the rows' bytes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows.elements import Column
from distributed_input.rows.runs import as_bytes, slice_run
from tests.unit.distributed_input.rowcases import check_run, concat_runs

COLUMNS = (Column("x", 3), Column("y", None), Column("z", 0))


def run_of(rows: list[bytes]) -> list[np.ndarray]:
    """Return a run whose fixed column has the index of the row and whose variable one has it."""
    lengths = np.array([len(row) for row in rows], np.uint32)
    return [
        np.repeat(np.arange(len(rows), dtype=np.uint8), 3),
        lengths.view(np.uint8),
        np.frombuffer(b"".join(rows), np.uint8),
        np.zeros(0, np.uint8),
    ]


@given(st.lists(st.binary(max_size=5), max_size=8), st.lists(st.integers(0, 8), max_size=3))
def test_slices_join_to_the_run(rows: list[bytes], cuts: list[int]) -> None:
    run = run_of(rows)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    parts = [slice_run(COLUMNS, run, start, stop) for start, stop in pairwise(edges)]
    for part, (start, stop) in zip(parts, pairwise(edges), strict=True):
        check_run(COLUMNS, stop - start, part)
    assert [b.tobytes() for b in concat_runs(parts)] == [b.tobytes() for b in run]


@pytest.mark.parametrize(
    "buffer",
    [
        *(b"\1\0\0\0", bytearray(b"\1\0\0\0"), memoryview(b"\1\0\0\0")),
        *(np.array([[1]], np.uint32), np.array([[1, 0], [0, 0]], np.uint8)),
    ],
)
def test_any_buffer_is_read_as_bytes_without_a_copy(buffer: object) -> None:
    found = as_bytes(buffer)
    assert found.dtype == np.uint8
    assert found.ndim == 1
    assert found.tobytes() == b"\1\0\0\0"
    assert np.shares_memory(found, np.frombuffer(buffer, np.uint8))  # type: ignore[call-overload]
