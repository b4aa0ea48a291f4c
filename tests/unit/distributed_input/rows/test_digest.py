"""A row's digest depends on its bytes and its index only."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.rows import digest
from distributed_input.rows.digest import row_digests
from distributed_input.rows.prefix import Prefix

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


WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=64)
NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=64)


def digest_of(words: np.ndarray) -> int:
    (found,) = row_digests([words.nbytes], [words.view(np.uint8)], 1, 0).tolist()
    return int(found)


@given(WORDS, st.integers(1, 2**64 - 1), st.integers(0, 63), st.data())
def test_changed_bits_of_any_words_change_the_digest(
    words: list[int], bits: int, bit: int, data: st.DataObject
) -> None:
    """Change the same bits of several words: any bits, one bit, or the signs of the numbers."""
    changed = data.draw(st.sets(st.integers(0, len(words) - 1), min_size=1))
    row = np.array(words, np.uint64)
    for mask in (bits, 1 << bit, 1 << 63, 1 << 31, 0x8000000080000000, 0x8000800080008000):
        other = row.copy()
        other[sorted(changed)] ^= np.uint64(mask)
        assert digest_of(row) != digest_of(other)


@given(st.integers(2, 8), st.integers(1, 64), st.data())
def test_swapped_or_changed_rows_change_the_prefix(
    rows: int, width: int, data: st.DataObject
) -> None:
    """The sum over the rows sees it too."""
    content = [data.draw(st.binary(min_size=width, max_size=width)) for _ in range(rows)]
    first, second = data.draw(st.permutations(range(rows)))[:2]
    swapped = list(content)
    swapped[first], swapped[second] = content[second], content[first]
    flipped = [bytes([*one[:-1], one[-1] ^ 0x80]) for one in content]
    whole, other, every = (
        Prefix().extend(row_digests([width], fixed(one), rows, 3))
        for one in (content, swapped, flipped)
    )
    assert whole.matches(other) == (content[first] == content[second])
    assert not whole.matches(every)


@pytest.mark.parametrize(
    ("widths", "buffers", "expected"),
    [
        ([8], fixed([b"abcdefgh", b"01234567"]), [0x9E426278A4566D3A, 0x948067AD1E9F4F65]),
        ([16], fixed([b"abcdefgh" * 2, b"01234567" * 2]), [0xD1A5395CE462272C, 0x9437B60A13413E9B]),
        ([12], fixed([b"abcdefghijkl", b"0123456789ab"]), [0xF2E4B415E2A17E47, 0xD5FE277B580551E8]),
        ([None], variable([b"abc", b""]), [0xCD0125043DF51CA0, 0xDA98292615F65B27]),
        ([600], fixed([b"x" * 600, b"y" * 600]), [0x6431BB245E55C581, 0xEEFAF54171536058]),
    ],
)
def test_digests_stay_the_same(
    widths: list[int | None], buffers: list[np.ndarray], expected: list[int]
) -> None:
    assert row_digests(widths, buffers, 2, 5).tolist() == expected


@pytest.mark.parametrize("weights", [digest._WEIGHTS, digest._HIGH_WEIGHTS])
def test_no_two_weights_cancel_each_other(weights: np.ndarray) -> None:
    """They are odd, and differ in the bits that a product with any change of a half word keeps."""
    assert (weights % np.uint64(2) == 1).all()
    kept = [int(weight) % 2**33 for weight in weights]
    assert len({*kept, *(2**33 - one for one in kept)}) == 2 * len(kept)
