"""A row's digest depends on its bytes and its index only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows import digest
from distributed_input.rows.digest import row_digests

WIDTHS = st.sampled_from([0, 1, 7, 8, 12, 512, 513])


def fixed(rows: list[bytes]) -> list[np.ndarray]:
    return [np.frombuffer(b"".join(rows), np.uint8)]


def variable(rows: list[bytes]) -> list[np.ndarray]:
    lengths = np.array([len(row) for row in rows], np.uint32)
    return [lengths.view(np.uint8), np.frombuffer(b"".join(rows), np.uint8)]


def random_rows(width: int, rows: int, seed: int) -> list[bytes]:
    return [np.random.default_rng((seed, i)).bytes(width) for i in range(rows)]


@given(WIDTHS, st.integers(0, 6), st.integers(0, 6), st.booleans(), st.integers(0, 99))
def test_digests_do_not_depend_on_the_cut(
    width: int, rows: int, cut: int, is_fixed: bool, seed: int
) -> None:
    data = random_rows(width, rows, seed)
    layout, widths = (fixed, [width]) if is_fixed else (variable, [None])
    whole = row_digests(widths, layout(data), rows, 10)
    cut = min(cut, rows)
    first = row_digests(widths, layout(data[:cut]), cut, 10)
    second = row_digests(widths, layout(data[cut:]), rows - cut, 10 + cut)
    assert whole.tolist() == [*first.tolist(), *second.tolist()]
    assert whole.dtype == np.uint64


@given(st.sampled_from([1, 7, 8, 512, 513]), st.integers(0, 10**6), st.integers(0, 99))
def test_a_changed_bit_changes_the_digest(width: int, bit: int, seed: int) -> None:
    (row,) = random_rows(width, 1, seed)
    changed = bytearray(row)
    changed[bit // 8 % width] ^= 1 << bit % 8
    for layout, widths in ((fixed, [width]), (variable, [None])):
        before = row_digests(widths, layout([row]), 1, 0)
        assert before != row_digests(widths, layout([bytes(changed)]), 1, 0)


def test_equal_rows_at_different_indices_have_different_digests() -> None:
    digests = row_digests([4], fixed([b"same"] * 100), 100, 0)
    assert len(set(digests.tolist())) == 100


def test_the_order_of_columns_matters() -> None:
    one, other = fixed([b"abcdefgh"]), fixed([b"ijklmnop"])
    assert row_digests([8, 8], [*one, *other], 1, 0) != row_digests([8, 8], [*other, *one], 1, 0)


def test_the_boundary_between_rows_matters() -> None:
    digests = [row_digests([None], variable(rows), 2, 0) for rows in ([b"ab", b"c"], [b"a", b"bc"])]
    assert digests[0].tolist() != digests[1].tolist()


@pytest.mark.parametrize(
    ("widths", "buffers", "expected"),
    [
        ([8], fixed([b"abcdefgh", b"01234567"]), [0x9E426278A4566D3A, 0x948067AD1E9F4F65]),
        ([3], fixed([b"abc", b"012"]), [0x05C384F28D7EF554, 0x9929BCC7D7D46C34]),
        ([None], variable([b"abc", b""]), [0xCD0125043DF51CA0, 0xDA98292615F65B27]),
        ([600], fixed([b"x" * 600, b"y" * 600]), [0x6431BB245E55C581, 0xEEFAF54171536058]),
    ],
)
def test_digests_are_the_same_in_every_version(
    widths: list[int | None], buffers: list[np.ndarray], expected: list[int]
) -> None:
    assert row_digests(widths, buffers, 2, 5).tolist() == expected


def test_weights_are_odd() -> None:
    assert (digest._WEIGHTS % np.uint64(2) == 1).all()
