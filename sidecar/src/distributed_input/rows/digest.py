"""Row digests, which show whether a split that runs again produces the same rows.

A row's digest is a 64-bit hash of its bytes and its index in the split. `prefix.Prefix` adds the
digests of consecutive rows. The sum does not depend on how rows were cut into blocks, so a sidecar
computes it without reading the rows.

Short rows are hashed together by weighted sums of their 64-bit words. In a product modulo 2**64, a
change of a word's high bits reaches only the high bits: the changed top bits of two words add up to
zero. So the high halves of the words have a second sum, with other weights, in which they reach at
least 33 bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash
from numpy.typing import NDArray

from distributed_input.api.hashing import mix
from distributed_input.rows.runs import Bytes

_VECTOR_BYTES = 512  # rows up to this size are hashed together, larger rows one by one
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
# Odd numbers, so that no bit of a word is lost. Computed here, so that every version has the same.
_WEIGHTS = np.array([mix(i) | 1 for i in range(_VECTOR_BYTES // 8)], np.uint64)
_HIGH_WEIGHTS = np.array([mix(i, 2) | 1 for i in range(_VECTOR_BYTES // 8)], np.uint64)
_HALF = np.uint64(32)


def row_digests(
    widths: Sequence[int | None], buffers: Sequence[Bytes], rows: int, first_row: int
) -> NDArray[np.uint64]:
    """Return the digest of each row of a run, as uint64[rows].

    Args:
        widths: for each column its bytes in a row, or None if the column is variable-width.
        buffers: 1-D uint8 buffers of the run.
        rows: number of rows.
        first_row: index of the first row in the split.
    """
    return digests_of(row_hashes(widths, buffers, rows), first_row)


def digests_of(hashes: NDArray[np.uint64], first_row: int) -> NDArray[np.uint64]:
    """Return the digests of consecutive rows from their hashes, which do not have the index."""
    index = np.arange(first_row, first_row + len(hashes), dtype=np.uint64)
    return _mix_bits(hashes ^ (index * _GOLDEN + _GOLDEN))


def row_hashes(
    widths: Sequence[int | None], buffers: Sequence[Bytes], rows: int
) -> NDArray[np.uint64]:
    """Return the hash of the bytes of each row, as uint64[rows]. For the arguments, see above."""
    total = np.zeros(rows, np.uint64)
    at = 0
    for width in widths:
        if width is not None:
            column = _hash_fixed(buffers[at], rows, width)
            at += 1
        else:
            column = _hash_variable(buffers[at].view(np.uint32), buffers[at + 1])
            at += 2
        total = _mix_bits(total) + column
    return total


def _hash_fixed(data: Bytes, rows: int, width: int) -> NDArray[np.uint64]:
    if width > _VECTOR_BYTES:
        view = memoryview(data)
        hashes = (xxhash.xxh3_64_intdigest(view[i * width : (i + 1) * width]) for i in range(rows))
        return np.fromiter(hashes, np.uint64, rows)
    words = -(-width // 8)
    if width % 8:
        padded = np.zeros((rows, words * 8), np.uint8)
        padded[:, :width] = data.reshape(rows, width)
        matrix = padded.view(np.uint64)
    else:
        matrix = data.reshape(rows, width).view(np.uint64)
    total = _weighted_sum(matrix, _WEIGHTS[:words])
    if words == 1:  # a product with one odd weight loses no bit
        return total
    return _mix_bits(total) + _weighted_sum(matrix >> _HALF, _HIGH_WEIGHTS[:words])


def _weighted_sum(matrix: NDArray[np.uint64], weights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the weighted sum of each row modulo 2**64, without a matrix of the products."""
    return np.asarray(np.einsum("ij,j->i", matrix, weights))


def _hash_variable(lengths: NDArray[np.uint32], data: Bytes) -> NDArray[np.uint64]:
    view = memoryview(data)
    ends = np.cumsum(lengths, dtype=np.int64).tolist()
    starts = [0, *ends]
    hashes = (
        xxhash.xxh3_64_intdigest(view[start:end]) for start, end in zip(starts, ends, strict=False)
    )
    return np.fromiter(hashes, np.uint64, len(lengths))


def _mix_bits(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    values = (values ^ (values >> np.uint64(30))) * _MIX_1
    values = (values ^ (values >> np.uint64(27))) * _MIX_2
    return values ^ (values >> np.uint64(31))
