"""The hash is part of the wire contract."""

from __future__ import annotations

from distributed_input.api.hashing import mix


def test_the_hash_never_changes() -> None:
    assert [mix(), mix(0), mix(1, 2), mix(2**64 + 1, 2)] == EXPECTED


def test_the_order_of_values_matters() -> None:
    assert mix(1, 2) != mix(2, 1)


EXPECTED = [
    0x9E3779B97F4A7C15,
    0x6E789E6AA1B965F4,
    0x848A139037105040,
    0x848A139037105040,
]
