"""Runs become numpy arrays; rows of one batch must have one shape."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.rows.decode import Ragged, Sparse, decode
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.encode import make_encoder
from tests.unit.distributed_input.rowcases import concat_runs, draw_rows, leaves


def spec_of(*leaf: Any) -> ElementSpec:
    return ElementSpec({"a": 0}, (Leaf("a", *leaf),))


@given(
    st.data(),
    leaves("a").filter(lambda leaf: leaf.kind in ("dense", "unranked")),
    st.integers(1, 4),
)
def test_dense_rows_survive(data: Any, leaf: Leaf, count: int) -> None:
    spec = ElementSpec(0, (leaf,))
    rows = np.stack(draw_rows(data.draw, leaf, count))
    decoded = decode(spec, *make_encoder(spec, True)(rows))
    assert decoded.shape == rows.shape
    assert decoded.tolist() == rows.tolist()


def test_strings_keep_their_trailing_zeros() -> None:
    spec = spec_of("dense", "string", ())
    _, buffers = make_encoder(spec, True)({"a": [b"a\0\0", b""]})
    assert decode(spec, 2, buffers)["a"].tolist() == [b"a\0\0", b""]


@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_unranked_rows_are_a_batch_if_their_shapes_are_equal(
    data: Any, first: int, second: int
) -> None:
    leaf = Leaf("a", "unranked", "int8", ())
    spec = ElementSpec(0, (leaf,))
    batches = [np.stack(draw_rows(data.draw, leaf, rows)) for rows in (first, second)]
    run = concat_runs([make_encoder(spec, True)(batch)[1] for batch in batches])
    one, other = (batch.shape[1:] for batch in batches)
    if one == other:
        assert np.array_equal(decode(spec, first + second, run), np.concatenate(batches))
    else:
        with pytest.raises(SpecError, match=re.escape(f"{one} and {other}")):
            decode(spec, first + second, run)


@given(leaves("a"))
def test_a_batch_of_no_rows_is_empty(leaf: Leaf) -> None:
    spec = ElementSpec(0, (leaf,))
    decoded = decode(spec, 0, [np.zeros(0, np.uint8)] * spec.buffer_count)
    if isinstance(decoded, Ragged):
        assert decoded.row_splits[0].tolist() == [0]
    elif isinstance(decoded, Sparse):
        assert decoded.dense_shape[0] == 0
    else:
        assert len(decoded) == 0


@pytest.mark.parametrize(
    ("leaf", "rows", "expected"),
    [
        (("int64", (None,)), [[1], [], [2, 3]], [[1, 9], [9, 9], [2, 3]]),
        (
            ("int64", (2, None)),
            [[[1], [2]], [[3, 4], [5, 6]]],
            [[[1, 9], [2, 9]], [[3, 4], [5, 6]]],
        ),
        (("string", (None,)), [[b"a"], [b"b", b"c\0"]], [[b"a", b"\xff"], [b"b", b"c\0"]]),
        (("complex64", (None,)), [[1j], [2, 3]], [[1j, 1 - 2j], [2, 3]]),
    ],
)
def test_rows_are_padded_to_the_longest_one_of_the_batch(
    leaf: Any, rows: list[Any], expected: list[Any]
) -> None:
    padding = {"string": "\xff", "complex64": "(1-2j)"}.get(leaf[0], 9)
    spec = spec_of("dense", *leaf).padded_with([padding])
    assert ElementSpec.from_json(spec.to_json()) == spec
    dtype = object if leaf[0] == "string" else np.dtype(leaf[0])
    runs = [make_encoder(spec, False)({"a": np.array(row, dtype)})[1] for row in rows]
    assert decode(spec, len(rows), concat_runs(runs))["a"].tolist() == expected


def test_a_padding_is_kept_by_rows_of_unknown_sizes_only() -> None:
    assert spec_of("dense", "int8", (2,)).padded_with([1]) == spec_of("dense", "int8", (2,))
    assert spec_of("dense", "int8", (None,)).padded_with([]) == spec_of("dense", "int8", (None,))
