"""A complete split in a file: its blocks, and behind them what they are of.

    block, block, …, description (JSON), length and digest of the description, magic

The description has the place and the digest of each block. A file is written under another name and
renamed when it is complete.

What is before a boundary is a folder: files that TensorFlow has written, and such a file without
blocks, whose description has their digests.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

import xxhash

from distributed_input.rows import blocks as encoding
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix

ABOUT = "about"
"""Name of the description in a folder."""
FORMAT = 1
"""Version of the files. Splits of another one are not found."""
_MAGIC = b"DIB1"
_PART_BYTES = 1 << 20
_END = struct.Struct("<Q16s4s")

Version = list[str | int]
"""The version of a file: name, bytes, the times of its modification and of the change of its inode
in nanoseconds, and the numbers of its device and inode. The last three are missing if it is not
local; the name is alone if there is no such file."""


class StoreError(Exception):
    """A stored split is damaged."""


class _BlockPlace(NamedTuple):
    """A block in the file: its rows, and where its bytes are."""

    first_row: int
    at: int
    size: int
    digest: str


class Description(NamedTuple):
    """What a stored split is of.

    Attributes:
        dataset: its name, as text for people.
        epoch: an epoch in which it was computed.
        split: its number.
        rows: number of rows.
        digest: digest of all rows.
        seconds: CPU time that they cost.
        files: versions of the files that it was computed from.
        blocks: places of the blocks, by row.
        data: name, bytes and digest of each file of TensorFlow.
    """

    dataset: str
    epoch: int
    split: int
    rows: int
    digest: int
    seconds: float
    files: list[Version]
    blocks: Sequence[_BlockPlace] = ()
    data: Sequence[tuple[str, int, str]] = ()

    @property
    def end(self) -> Prefix:
        """All rows."""
        return Prefix(self.rows, self.digest)


class StoredSplit:
    """A stored split that is open, so that it stays readable when it is removed.

    Attributes:
        path: its file or folder.
        about: its description.
        size: bytes of its files.

    Raises:
        OSError: a file cannot be opened. FileNotFoundError: there is none.
        StoreError: it is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        is_folder = path.is_dir()
        with contextlib.ExitStack() as opened:
            try:
                self._file = opened.enter_context(_open(path / ABOUT if is_folder else path))
                self.about = self._description()
                data = [path / name for name, *_ in self.about.data]
                self._data = [opened.enter_context(_open(one)) for one in data]
            except FileNotFoundError as error:
                if is_folder and path.exists():
                    raise StoreError(f"a file is missing: {error.filename}") from error
                raise
            self.size = sum(os.fstat(file.fileno()).st_size for file in (self._file, *self._data))
            self._opened = opened.pop_all()

    def _description(self) -> Description:
        size = os.fstat(self._file.fileno()).st_size
        length, digest, magic = _END.unpack(self._read(size - _END.size, _END.size))
        text = self._read(size - _END.size - length, length)
        if magic != _MAGIC or digest != xxhash.xxh3_128_digest(text):
            raise StoreError("its description is damaged")
        found = Description(**json.loads(text))
        blocks = [_BlockPlace(*one) for one in found.blocks]
        return found._replace(blocks=blocks, data=tuple((*one,) for one in found.data))

    def close(self) -> None:
        """Close the files."""
        self._opened.close()

    @property
    def is_current(self) -> bool:
        """Whether its files still have their name. Raises OSError."""
        about = self.path / ABOUT if self.about.data else self.path
        return os.path.samestat(about.stat(), os.fstat(self._file.fileno()))

    def check_data(self, most: float) -> None:
        """Check the sizes of TensorFlow's files, and the digests of those of at most `most` bytes.

        The index is always compared: TensorFlow leaves out what is damaged in it, without an error.

        Raises as `blocks`.
        """
        for (name, size, digest), file in zip(self.about.data, self._data, strict=True):
            if os.fstat(file.fileno()).st_size != size:
                raise StoreError(f"{name} has another size")
            if (size <= most or name.endswith(".index")) and digest_of(file) != digest:
                raise StoreError(f"{name} is damaged")

    def prefix(self, rows: int) -> Prefix | None:
        """Return the first rows of the split; None if it has fewer.

        Raises as `blocks`.
        """
        if rows >= self.about.rows:
            return self.about.end if rows == self.about.rows else None
        return next(self.blocks(rows)).prefix_at(rows)

    def verify(self) -> None:
        """Read everything. Raises as `blocks`."""
        self.check_data(float("inf"))
        at = Prefix()
        for block in self.blocks(0):
            if at != Prefix(block.first_row, block.prefix_digest):
                raise StoreError(f"row {block.first_row} does not follow")
            at = block.end_prefix
        if at != self.about.end:
            raise StoreError("its rows are not all")

    def blocks(self, row: int) -> Iterator[RowBlock]:
        """Yield the blocks from the one with a row on.

        Raises:
            OSError: the file cannot be read.
            StoreError: a block is damaged.
        """
        if row >= self.about.rows:
            return
        places = self.about.blocks
        ends = [*(one.first_row for one in places[1:]), self.about.rows]
        for at in range(bisect_right(ends, row), len(places)):
            place = places[at]
            data = self._read(place.at, place.size)
            _check(data, place)
            block = encoding.decode(data)
            if (block.first_row, block.end_row) != (place.first_row, ends[at]):
                raise StoreError(f"the block of row {place.first_row} has other rows")
            yield block

    def _read(self, at: int, size: int) -> bytes:
        parts: list[bytes] = []
        while at >= 0 and size > 0:
            part = os.pread(self._file.fileno(), size, at)
            if not part:
                break
            parts.append(part)
            at, size = at + len(part), size - len(part)
        if at < 0 or size:
            raise StoreError("the file is too short")
        return parts[0] if len(parts) == 1 else b"".join(parts)


def digest_of(file: IO[bytes]) -> str:
    """Return the digest of a file. Raises OSError."""
    digest, at = xxhash.xxh3_128(), 0
    while data := os.pread(file.fileno(), _PART_BYTES, at):
        digest.update(data)
        at += len(data)
    return digest.hexdigest()


def _open(path: Path) -> IO[bytes]:
    return open(path, "rb", buffering=0)


def _check(data: bytes, place: _BlockPlace) -> None:
    if xxhash.xxh3_128_hexdigest(data) != place.digest:
        raise StoreError(f"the block of row {place.first_row} is damaged")


class SplitFile:
    """A split that is being written.

    Raises, as its methods:
        OSError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "xb", buffering=0)  # noqa: SIM115 - see close
        self.size = 0
        self._places: list[_BlockPlace] = []

    def write(self, blocks: Sequence[RowBlock]) -> None:
        """Append consecutive blocks as one."""
        data = b"".join(encoding.encoded_pieces(blocks))
        digest = xxhash.xxh3_128_hexdigest(data)
        self._places.append(_BlockPlace(blocks[0].first_row, self.size, len(data), digest))
        self._append(data)

    def finish(self, about: Description) -> None:
        """Write the description, with the blocks that were written, and close the file."""
        text = json.dumps(about._replace(blocks=self._places)._asdict()).encode()
        self._append(text + _END.pack(len(text), xxhash.xxh3_128_digest(text), _MAGIC))
        self._file.close()

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            written = self._file.write(rest) or 0
            self.size += written
            rest = rest[written:]

    def close(self) -> None:
        """Close the file."""
        self._file.close()
