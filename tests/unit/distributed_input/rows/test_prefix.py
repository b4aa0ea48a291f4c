"""Laws of Prefix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ProtocolError
from distributed_input.rows.prefix import DIGEST_VERSION, Prefix, check_version

DIGESTS = st.lists(st.integers(0, 2**64 - 1), max_size=20)


@given(DIGESTS, st.integers(0, 20))
def test_extending_in_two_steps_equals_one_step(values: list[int], cut: int) -> None:
    digests = np.array(values, np.uint64)
    once = Prefix().extend(digests)
    assert once == Prefix().extend(digests[:cut]).extend(digests[cut:])
    assert once == Prefix(len(values), sum(values) % 2**64)


@given(DIGESTS, st.integers(1, 2**64 - 1))
def test_another_digest_does_not_match(values: list[int], change: int) -> None:
    prefix = Prefix().extend(np.array(values, np.uint64))
    assert prefix.matches(prefix)
    assert not prefix.matches(Prefix(prefix.rows, (prefix.digest + change) % 2**64))


def test_prefixes_of_different_lengths_cannot_be_compared() -> None:
    with pytest.raises(ValueError, match="3 and 4 rows"):
        Prefix(3).matches(Prefix(4))


def test_a_sidecar_with_digests_of_another_version_is_refused() -> None:
    check_version(DIGEST_VERSION)
    for other in (0, 1, DIGEST_VERSION + 1):
        with pytest.raises(ProtocolError, match=f"version {other} of .* version {DIGEST_VERSION}:"):
            check_version(other)
