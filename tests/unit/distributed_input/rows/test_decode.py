"""Runs become numpy arrays; rows of one batch must have one shape."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import SpecError
from distributed_input.rows.decode import Ragged, Sparse, decode, decode_leaves
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


def test_a_whole_element_has_no_leading_dimension() -> None:
    spec = spec_of("dense", "int8", (2,))
    rows, buffers = make_encoder(spec, False)({"a": np.array([1, 2], np.int8)})
    assert rows == 1
    assert decode(spec, None, buffers)["a"].tolist() == [1, 2]
    assert decode(spec, 1, buffers)["a"].tolist() == [[1, 2]]


def test_numbers_are_views_of_the_buffer() -> None:
    spec, buffer = spec_of("dense", "int16", (2,)), np.zeros(8, np.uint8)
    decoded = decode(spec, 2, [buffer])["a"]
    buffer[0] = 7
    assert decoded.tolist() == [[7, 0], [0, 0]]


def test_strings_keep_their_trailing_zeros() -> None:
    spec = spec_of("dense", "string", ())
    _, buffers = make_encoder(spec, True)({"a": [b"a\0\0", b""]})
    assert decode(spec, 2, buffers)["a"].tolist() == [b"a\0\0", b""]


def test_a_ragged_batch_has_a_level_of_row_splits_for_its_rows() -> None:
    spec = spec_of("ragged", "int8", (None,), 0, "int32")
    value = Ragged(np.array([1, 2, 3], np.int8), (np.array([0, 1, 1, 3]),))
    (decoded,) = decode_leaves(spec, *make_encoder(spec, True)({"a": value}))
    assert decoded.values.tolist() == [1, 2, 3]
    assert [splits.tolist() for splits in decoded.row_splits] == [[0, 1, 1, 3]]
    assert decoded.row_splits[0].dtype == np.int32


def test_a_sparse_batch_has_the_largest_shape_of_its_rows() -> None:
    spec = spec_of("sparse", "int8", (None,))
    single = [
        make_encoder(spec, False)(
            {"a": Sparse(np.array([[size - 1]]), np.array([size], np.int8), np.array([size]))}
        )[1]
        for size in (2, 5)
    ]
    decoded = decode(spec, 2, concat_runs(single))["a"]
    assert decoded.dense_shape.tolist() == [2, 5]
    assert decoded.indices.tolist() == [[0, 1], [1, 4]]
    assert decoded.values.tolist() == [2, 5]


def test_rows_of_different_shapes_are_no_batch() -> None:
    spec = spec_of("dense", "int8", (None,))
    single = [make_encoder(spec, False)({"a": np.zeros(size, np.int8)})[1] for size in (2, 3)]
    with pytest.raises(SpecError, match=r"component 'a'.*\(2,\) and \(3,\)"):
        decode(spec, 2, concat_runs(single))


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


def test_rows_that_fill_up_a_batch_of_unranked_rows_are_empty() -> None:
    spec = spec_of("unranked", "float32", ())
    padding = [np.zeros(8, np.uint8), np.zeros(0, np.uint8)] * 2
    assert decode(spec, 2, padding)["a"].shape == (2, 0)
    _, scalar = make_encoder(spec, False)({"a": np.float32(1)})
    with pytest.raises(
        SpecError, match=re.escape("component 'a': rows of one batch have shapes ()")
    ):
        decode(spec, 3, concat_runs([scalar, padding]))


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
