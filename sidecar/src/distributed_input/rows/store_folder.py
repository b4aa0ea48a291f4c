"""The files of a store, bounded in bytes. Several workers may share the folder.

A split is a file. What is before a boundary is a folder, because TensorFlow writes several files.

The split whose rows cost least to compute again, for its size, is removed first, and of equal ones
the one that was not used for the longest time. The modification time of a file is its rank: its
cost, and the rank of what was removed last when it was last used. So what is not used any more has
the lowest rank at some time, whatever it cost (Cao and Irani's GreedyDual-Size).
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from distributed_input.rows.stored_split import SplitFile, StoredSplit

SUFFIX = ".rows"
_PART, _REMOVED = ".part", "removed"
_SCANS = 256  # the folder is read after each of so many parts of its limit was written
_PART_SECONDS = 3600.0  # a file that is not complete, and was not written to, has no writer
_NS, _MIB = 1e9, 1 << 20
_SECTOR = 512  # the unit of st_blocks


class Entry(NamedTuple):
    """A split in the folder.

    Attributes:
        path: its file or folder.
        size: bytes on the disk.
        written: when it was written last, in seconds, if it is not complete.
        rank: the lowest one is removed first.
    """

    path: Path
    size: int
    written: float
    rank: tuple[int, int]


class StoreFolder:
    """The splits in a folder.

    Args:
        path: the folder; created when the first split is written.
        max_bytes: maximum size of all files. Several writers may exceed it by 1/256 each.

    Attributes:
        unfinished: bytes of this process's files that are not complete.
        live: folders that this process writes to, perhaps seldom.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path, self.max_bytes = path, max_bytes
        self.unfinished = 0
        self.live: set[Path] = set()
        self._unread = max_bytes  # bytes written since the folder was read
        self._removed = (
            path / _REMOVED
        )  # its modification time is the rank of what was removed last

    def open(self, name: str) -> StoredSplit | None:
        """Return a split; None if there is none.

        Raises:
            OSError: its file cannot be read.
            StoreError: it is damaged.
        """
        try:
            return StoredSplit(self._path(name))
        except FileNotFoundError:
            return None

    def create(self, name: str) -> SplitFile:
        """Return a file for a split, which `publish` makes visible. Raises OSError."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return SplitFile(self.new_path(name))

    def new_path(self, name: str) -> Path:
        """Return a path for a new file or folder, which `publish` makes visible."""
        return self.path / f"{name}.{secrets.token_hex(4)}{_PART}"

    def count(self, nbytes: int) -> None:
        """Count bytes that were written. Remove splits if all take too much. Raises OSError."""
        self.unfinished += nbytes
        self._unread += nbytes
        if self._unread >= self.max_bytes // _SCANS:
            self._make_room()

    def publish(self, name: str, path: Path, size: int, seconds: float) -> None:
        """Make a split visible. Raises OSError: also if there is a folder of this name.

        Args:
            name: name of the split.
            path: its complete file or folder.
            size: its bytes.
            seconds: CPU time that its rows cost.
        """
        os.replace(path, self._path(name))
        self._rank(self._path(name), size, seconds)

    def use(self, name: str, size: int, seconds: float) -> None:
        """Record that a split of `size` bytes was used. Without permission, it does nothing."""
        with contextlib.suppress(OSError):
            self._rank(self._path(name), size, seconds)

    def remove(self, name: str) -> None:
        """Remove a split. Without permission, it does nothing."""
        with contextlib.suppress(OSError):
            delete(self._path(name))

    def entries(self) -> Iterator[Entry]:
        """Yield the complete splits, and those that are being written."""
        try:
            found = list(os.scandir(self.path))
        except FileNotFoundError:
            return
        for one in found:
            if one.name.endswith((SUFFIX, _PART)):
                with contextlib.suppress(FileNotFoundError):
                    stat, path = one.stat(), Path(one.path)
                    latest, size = stat.st_mtime, stat.st_size
                    if one.is_dir():
                        files = [file.stat() for file in os.scandir(path)]
                        latest = max([latest, *(file.st_mtime for file in files)])
                        size = sum(map(size_of, files))
                    yield Entry(path, size, latest, (stat.st_mtime_ns, stat.st_ctime_ns))

    def _path(self, name: str) -> Path:
        return self.path / f"{name}{SUFFIX}"

    def _rank(self, path: Path, size: int, seconds: float) -> None:
        lowest = 0
        with contextlib.suppress(FileNotFoundError):
            lowest = self._removed.stat().st_mtime_ns
        os.utime(path, ns=(0, lowest + int(seconds * _NS * _MIB / max(size, 1))))

    def _make_room(self) -> None:
        self._unread = 0
        splits, total = [], 0
        for entry in self.entries():
            if entry.path.suffix == SUFFIX:
                splits.append((entry.rank, entry.size, entry.path))
            elif entry.path in self.live:
                with contextlib.suppress(OSError):
                    os.utime(entry.path)  # for other processes
            elif time.time() - entry.written > _PART_SECONDS:
                delete(entry.path)
                continue
            total += entry.size
        for rank, size, path in sorted(splits):
            if total <= self.max_bytes:
                break
            delete(path)
            self._removed.touch(mode=0o600)
            os.utime(self._removed, ns=(0, rank[0]))
            total -= size


def size_of(file: os.stat_result) -> int:
    """Return the bytes that a file takes on the disk: it may have holes."""
    return min(file.st_size, file.st_blocks * _SECTOR)


def delete(path: Path) -> None:
    """Remove a file or a folder, if it exists. Raises OSError."""
    try:
        path.unlink(missing_ok=True)
    except (IsADirectoryError, PermissionError):
        # A folder loses its name first: no reader finds a part of it.
        part = path.with_name(f"{path.name}.{secrets.token_hex(4)}{_PART}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(path, part)
        shutil.rmtree(part, ignore_errors=True)
