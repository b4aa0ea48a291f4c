"""The hash is part of the wire contract."""

from __future__ import annotations

import numpy as np

from distributed_input.api.hashing import mix, mix_each


def test_the_hash_never_changes() -> None:
    assert [mix(), mix(0), mix(1, 2), mix(2**64 + 1, 2)] == EXPECTED


def test_the_order_of_values_matters() -> None:
    assert mix(1, 2) != mix(2, 1)


def test_the_hashes_of_many_values_are_those_of_each() -> None:
    seconds = [0, 1, 2, 2**63 + 5, 2**64 - 1]
    for first in (0, 7, 2**64 - 1):
        expected = [mix(first, second) for second in seconds]
        assert mix_each(first, np.array(seconds, np.uint64)).tolist() == expected


EXPECTED = [
    0x9E3779B97F4A7C15,
    0x6E789E6AA1B965F4,
    0x848A139037105040,
    0x848A139037105040,
]
