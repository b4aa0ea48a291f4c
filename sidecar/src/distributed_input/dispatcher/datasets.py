"""Traced datasets: blobs by the hash of their bytes, within a size limit. Pure.

Blobs stay in pieces, because joining the pieces of a gigabyte would need a second gigabyte.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection

from distributed_input.api import flags
from distributed_input.api.errors import TerminalError
from distributed_input.link.statuses import InvalidRequestError, NotFoundError

PIECE_BYTES = 1 << 20
_ID = re.compile(r"[0-9a-f]{64}")


class DatasetStore:
    """The stored blobs, and space reserved for uploads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._blobs: dict[str, tuple[bytes, ...]] = {}  # least recently used first
        self._stored = 0
        self._reserved = 0

    @property
    def count(self) -> int:
        """Number of stored datasets."""
        return len(self._blobs)

    @property
    def size(self) -> int:
        """Bytes of stored datasets and uploads."""
        return self._stored + self._reserved

    def has(self, dataset_id: str) -> bool:
        """Return whether a dataset is stored, and mark it as most recently used."""
        blob = self._blobs.pop(dataset_id, None)
        if blob is not None:
            self._blobs[dataset_id] = blob
        return blob is not None

    def get(self, dataset_id: str) -> tuple[bytes, ...]:
        """Return the pieces of a dataset. Raise NotFoundError if it is not stored."""
        if not self.has(dataset_id):
            raise NotFoundError(
                f"dataset {dataset_id[:64]} is not registered (yet): after a restart of the "
                "dispatcher, its trainer registers it again"
            )
        return self._blobs[dataset_id]

    def reserve(self, size: int, in_use: Collection[str]) -> None:
        """Reserve `size` bytes for an upload.

        Removes datasets that are not `in_use`, the least recently used first.

        Raises:
            TerminalError: the space is still not sufficient.
        """
        if self.size + size > self._limit:
            for dataset_id in [key for key in self._blobs if key not in in_use]:
                self._stored -= sum(map(len, self._blobs.pop(dataset_id)))
                if self.size + size <= self._limit:
                    break
        if self.size + size > self._limit:
            raise TerminalError(
                f"no space for the dataset: datasets in use have {self._stored} bytes, uploads "
                f"have {self._reserved + size}, and the limit is {self._limit} bytes "
                f"({flags.MAX_DATASET_BYTES}). Capture less data in the dataset (read it from "
                "files), or set spec.dataset.entryPoint"
            )
        self._reserved += size

    def unreserve(self, size: int) -> None:
        """Release reserved bytes."""
        self._reserved -= size

    def add(self, dataset_id: str, pieces: tuple[bytes, ...]) -> None:
        """Store a dataset, and release the bytes reserved for it."""
        size = sum(map(len, pieces))
        self.unreserve(size)
        if not self.has(dataset_id):
            self._blobs[dataset_id] = pieces
            self._stored += size


class DatasetUpload:
    """One upload, which is verified against its id."""

    def __init__(self, dataset_id: str) -> None:
        check_id(dataset_id)
        self.dataset_id = dataset_id
        self.size = 0
        self._hash = hashlib.sha256()
        self._pieces: list[bytes] = []
        self._piece = bytearray()

    def add(self, data: bytes) -> None:
        """Append a chunk of any size. Pieces have PIECE_BYTES."""
        self.size += len(data)
        self._hash.update(data)
        self._piece += data
        while len(self._piece) >= PIECE_BYTES:
            self._cut()

    def finish(self) -> tuple[bytes, ...]:
        """Return the pieces. Raise InvalidRequestError if they do not match the id."""
        if self._hash.hexdigest() != self.dataset_id:
            raise InvalidRequestError(
                f"dataset_id: {self.dataset_id} is not the SHA-256 of the {self.size} bytes sent "
                f"({self._hash.hexdigest()}): the data was damaged, or the id is wrong"
            )
        if self._piece:
            self._cut()
        return tuple(self._pieces)

    def _cut(self) -> None:
        self._pieces.append(bytes(self._piece[:PIECE_BYTES]))
        del self._piece[:PIECE_BYTES]


def check_id(dataset_id: str) -> None:
    """Raise InvalidRequestError if the id is invalid."""
    if not _ID.fullmatch(dataset_id):
        raise InvalidRequestError(
            "dataset_id: must be a SHA-256 in 64 lower-case hexadecimal digits"
        )
