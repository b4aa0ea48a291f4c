"""Quantities of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.resource.scalars import quantity_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", 2**20),
        ("1Ki", 2**10),
        ("256Mi", 256 * 2**20),
        ("1.5Gi", 3 * 2**29),
        ("1Ti", 2**40),
        ("2k", 2000),
        ("1.5M", 1_500_000),
        ("0.001G", 1_000_000),
        ("1T", 10**12),
        ("1E", 10**18),
        ("2Pi", 2**51),
        (".5Mi", 2**19),
        ("268435456000m", 2**28),
        ("500m", 1),
        ("1.5", 2),
        ("0.0001k", 1),
    ],
)
def test_a_quantity_is_converted_to_bytes(text: str, size: int):
    assert quantity_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("256MB", "use 256Mi"),
        ("1.5 GiB", "use 1.5Gi"),
        ("64kB", "use 64Ki"),
        ("", "for example 256Mi"),
        ("Mi", "for example 256Mi"),
        ("-1Mi", "for example 256Mi"),
        ("1e6", "for example 256Mi"),
        ("1 Mi", "for example 256Mi"),
        ("1K", "for example 256Mi"),
        ("1Mi\n", "for example 256Mi"),
        ("٣Mi", "for example 256Mi"),
        ("5u", "for example 256Mi"),
    ],
)
def test_the_error_for_other_text_has_a_remedy(text: str, remedy: str):
    with pytest.raises(ValueError, match=remedy):
        quantity_bytes(text)


@given(st.integers(0, 10**6), st.sampled_from([("Ki", 10), ("Mi", 20), ("Gi", 30), ("Ti", 40)]))
def test_binary_units_are_powers_of_1024(number: int, unit: tuple[str, int]):
    assert quantity_bytes(f"{number}{unit[0]}") == number << unit[1]
