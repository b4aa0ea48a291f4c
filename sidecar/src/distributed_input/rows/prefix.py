"""The first rows of a split, identified by their digest."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.errors import ProtocolError

DIGEST_VERSION = 2
"""Version of the row digests. Another one needs another `identity.FORMAT` of positions, and another
format of saved states."""
_MODULUS = 1 << 64


def check_version(peer: int) -> None:
    """Raise ProtocolError unless the sidecar's digests have the version of this worker's."""
    if peer != DIGEST_VERSION:
        raise ProtocolError(
            f"the sidecar has version {peer} of the row digests, and this worker has version "
            f"{DIGEST_VERSION}: use one release of distributed-input in both"
        )


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `rows` rows of a split.

    Attributes:
        rows: number of rows.
        digest: sum of the rows' digests, modulo 2**64. It does not depend on how the rows were cut
            into blocks.
        anchor: fewer rows of the same split; None: there are none. A worker may skip these and make
            only the rows from there on again. No part of what identifies the rows.
    """

    rows: int = 0
    digest: int = 0
    anchor: Prefix | None = field(default=None, compare=False)

    def extend(self, digests: NDArray[np.uint64]) -> Prefix:
        """Return the prefix that also holds the next rows."""
        added = int(digests.sum(dtype=np.uint64))
        return Prefix(self.rows + len(digests), (self.digest + added) % _MODULUS)

    def without(self, digests: Iterable[NDArray[np.uint64]]) -> Prefix:
        """Return the prefix without its last rows."""
        rows, digest = self.rows, self.digest
        for part in digests:
            rows -= len(part)
            digest -= int(part.sum(dtype=np.uint64))
        return Prefix(rows, digest % _MODULUS)

    def matches(self, other: Prefix) -> bool:
        """Return whether both are the same rows. Raises ValueError if their lengths differ."""
        if self.rows != other.rows:
            raise ValueError(f"prefixes of {self.rows} and {other.rows} rows cannot be compared")
        return self.digest == other.digest
