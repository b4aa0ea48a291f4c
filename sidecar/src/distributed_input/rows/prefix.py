"""The first rows of a split, identified by their digest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DIGEST_VERSION = 2
"""Version of the row digests. Version 1 did not see a changed top bit of two words of a row."""
UNKNOWN_VERSION = 0
"""Version of a digest without a meaning, because rows were digested by two versions."""
_MODULUS = 1 << 64


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first `rows` rows of a split.

    Attributes:
        rows: number of rows.
        digest: sum of the rows' digests, modulo 2**64. It does not depend on how the rows were cut
            into blocks.
        version: version of the digests.
    """

    rows: int = 0
    digest: int = 0
    version: int = DIGEST_VERSION

    def extend(self, digests: NDArray[np.uint64], version: int | None = None) -> Prefix:
        """Return the prefix that also holds the next rows.

        Args:
            digests: uint64, one for each of the next rows.
            version: version of these digests. Default: the prefix's.
        """
        version = self.version if version is None else version
        rows = self.rows + len(digests)
        if not self.can_compare(version):
            return Prefix(rows, 0, UNKNOWN_VERSION)
        added = int(digests.sum(dtype=np.uint64))
        return Prefix(rows, (self.digest + added) % _MODULUS, version)

    def can_compare(self, version: int) -> bool:
        """Return whether the digest can be compared with one of this version."""
        return version == self.version or not self.rows

    def matches(self, other: Prefix) -> bool:
        """Return whether both are the same rows. Raises ValueError if their lengths differ."""
        if self.rows != other.rows:
            raise ValueError(f"prefixes of {self.rows} and {other.rows} rows cannot be compared")
        return self.digest == other.digest
