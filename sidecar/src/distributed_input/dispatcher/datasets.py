"""Traced datasets: blobs by the hash of their bytes, within a bound. Pure.

Blobs stay in pieces, as they came: two copies of a gigabyte would be one too many.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from distributed_input.api.errors import TerminalError
from distributed_input.runtime.statuses import InvalidRequestError, NotFoundError

PIECE_BYTES = 1 << 20
_ID = re.compile(r"[0-9a-f]{64}")


class DatasetStore:
    """The blobs, and room reserved for those on their way."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blobs: dict[str, tuple[bytes, ...]] = {}  # least recently used first
        self._stored = 0
        self._reserved = 0

    @property
    def count(self) -> int:
        """How many are kept."""
        return len(self._blobs)

    @property
    def size(self) -> int:
        """Bytes of those kept and of those on their way."""
        return self._stored + self._reserved

    def has(self, dataset_id: str) -> bool:
        """Whether a dataset is kept; it then counts as used now."""
        blob = self._blobs.pop(dataset_id, None)
        if blob is not None:
            self._blobs[dataset_id] = blob
        return blob is not None

    def get(self, dataset_id: str) -> tuple[bytes, ...]:
        """The pieces of a dataset. Raises NotFoundError."""
        if not self.has(dataset_id):
            raise NotFoundError(
                f"dataset {dataset_id[:64]} is not registered (yet): its trainer registers it "
                "again when it learns that the dispatcher has restarted"
            )
        return self._blobs[dataset_id]

    def reserve(self, size: int, in_use: Collection[str]) -> None:
        """Make room for `size` bytes on their way.

        Drops datasets that are not `in_use`, the least recently used first. Raises TerminalError
        where that does not make enough room.
        """
        if self.size + size > self._limit:
            for dataset_id in [key for key in self._blobs if key not in in_use]:
                self._stored -= sum(map(len, self._blobs.pop(dataset_id)))
                if self.size + size <= self._limit:
                    break
        if self.size + size > self._limit:
            raise TerminalError(
                f"no room for the dataset: {self._stored} bytes are of datasets in use, "
                f"{self._reserved + size} on their way, the limit is {self._limit} bytes "
                "(--max-dataset-bytes). Capture less data in the dataset (read it from files), "
                "or name an entry point"
            )
        self._reserved += size

    def unreserve(self, size: int) -> None:
        """Give reserved room back."""
        self._reserved -= size

    def add(self, dataset_id: str, pieces: tuple[bytes, ...]) -> None:
        """Keep a dataset, whose room is reserved and now given back."""
        size = sum(map(len, pieces))
        self.unreserve(size)
        if not self.has(dataset_id):
            self._blobs[dataset_id] = pieces
            self._stored += size


class DatasetUpload:
    """One dataset on its way, checked against its id."""

    def __init__(self, dataset_id: str) -> None:
        check_id(dataset_id)
        self.dataset_id = dataset_id
        self.size = 0
        self._hash = hashlib.sha256()
        self._pieces: list[bytes] = []
        self._piece = bytearray()

    def add(self, data: bytes) -> None:
        """Append bytes, in chunks of any size: pieces are of PIECE_BYTES."""
        self.size += len(data)
        self._hash.update(data)
        self._piece += data
        while len(self._piece) >= PIECE_BYTES:
            self._cut()

    def finish(self) -> tuple[bytes, ...]:
        """The pieces. Raises InvalidRequestError where they are not what the id says."""
        if self._hash.hexdigest() != self.dataset_id:
            raise InvalidRequestError(
                f"dataset_id: {self.dataset_id} is not the SHA-256 of the {self.size} bytes sent "
                f"({self._hash.hexdigest()}): they were damaged on the way, or the id is wrong"
            )
        if self._piece:
            self._cut()
        return tuple(self._pieces)

    def _cut(self) -> None:
        self._pieces.append(bytes(self._piece[:PIECE_BYTES]))
        del self._piece[:PIECE_BYTES]


def check_id(dataset_id: str) -> None:
    """Refuse what is no id: InvalidRequestError."""
    if not _ID.fullmatch(dataset_id):
        raise InvalidRequestError(
            "dataset_id: must be a SHA-256 in 64 lower-case hexadecimal digits"
        )
