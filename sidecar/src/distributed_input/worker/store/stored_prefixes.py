"""Elements before the boundary of a split, in files that TensorFlow writes and reads.

They are found by the graph of what is before the boundary, and by the files that it reads. Two
datasets with the same one share them. The first iterator that reads a split from its start writes
them to a folder of its own, which gets its name when they are complete. An error of the files is a
`BoundaryError`: the split then continues without them.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import dataset_name
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.rows.store_folder import StoreFolder, delete, size_of
from distributed_input.rows.stored_split import (
    ABOUT,
    Description,
    SplitFile,
    StoredSplit,
    StoreError,
    Version,
    digest_of,
)
from distributed_input.runtime import logs
from distributed_input.worker.datasets.boundary_files import (
    BoundaryError,
    BoundaryFiles,
    BoundarySources,
)
from distributed_input.worker.datasets.dataset_cache import LruCache
from distributed_input.worker.states.saved_state import StateTimeoutError, within
from distributed_input.worker.store.file_versions import are_old, versions
from distributed_input.worker.store.names import name_of
from distributed_input.worker.store.recordings import WriteQueue

_log = logs.get("worker.store")
_ROWS = "rows"  # TensorFlow's files are rows.index and rows.data-00000-of-00001
_INDEX = f"{_ROWS}.index"
_DIGEST_BYTES = 16 << 20  # of a larger file, TensorFlow compares checksums while it reads
_OPEN_SECONDS = 5.0
_PAUSE_SECONDS = 60.0  # without files, after an error
_MEASURE_SECONDS = 0.5  # between measurements of what was written
_MAX_SPLITS = 100_000
_MOST_DAMAGES = 2
_OF_FILES = (
    *(StoreError, OSError, tf.errors.DataLossError, tf.errors.NotFoundError),
    *(tf.errors.OutOfRangeError, tf.errors.FailedPreconditionError, tf.errors.InternalError),
)


class StoredPrefixes:
    """The elements before boundaries in a folder. Thread-safe.

    Args:
        folder: the folder.
        queue: runs what writes.
        counts: see `BlockStore`.
    """

    def __init__(self, folder: StoreFolder, queue: WriteQueue, counts: Counter[str]) -> None:
        self.folder, self.queue, self.counts = folder, queue, counts
        self._known: LruCache[BoundarySources | str] = LruCache(_MAX_SPLITS)
        self._logged: LruCache[bool] = LruCache(_MAX_SPLITS)  # datasets
        self._refused: LruCache[bool] = LruCache(_MAX_SPLITS)  # names that are not written
        self._damages: LruCache[int] = LruCache(_MAX_SPLITS)  # of each name
        self._failed: LruCache[float] = LruCache(_MAX_SPLITS)  # until when a name is not used
        self._paused = 0.0  # until when

    def find(
        self,
        job: types_pb2.Job,
        key: bytes,
        split: int,
        may_write: bool,
        sources: Callable[[], BoundarySources],
    ) -> BoundaryFiles | None:
        """Return the files of what is before a split's boundary; None: it is computed.

        Args:
            job: the job.
            key: of the result of `sources`.
            split: the split.
            may_write: whether to write them if they are missing.
            sources: returns what the elements depend on. Raises UnknownFilesError.
        """
        if time.monotonic() < self._paused:
            return None
        of = self._sources(job, hashlib.blake2b(key).digest(), sources)
        if of is None:
            return None
        try:
            name = name_of(of.graph)
            if time.monotonic() < (self._failed.get(name) or 0.0):
                return None
            found = within(_OPEN_SECONDS, "open stored rows", lambda: self._open(name, of.files))
            if isinstance(found, StoredSplit):
                return _PrefixReading(self, name, found)
            if found is None:
                self._log_once(job, "it reads too many files, or something else than files")
            if found is None or not may_write or not are_old(found) or self._refused.get(name):
                return None
            about = Description(dataset_name(job), 0, split, 0, 0, 0.0, found)
            return _PrefixWriting(self, name, about)
        except (OSError, StateTimeoutError, RuntimeError) as error:  # no thread can start
            self.pause(error)
            return None

    def _sources(
        self, job: types_pb2.Job, key: bytes, sources: Callable[[], BoundarySources]
    ) -> BoundarySources | None:
        found = self._known.get(key)
        if found is None:
            try:
                found = sources()
            except UnknownFilesError as error:
                found = str(error)
            except Exception as error:  # noqa: BLE001 - it may be passing: the rows are computed
                self._log_once(job, str(error))
                return None
            self._known.put(key, found, 1 if isinstance(found, str) else 1 + len(found.files))
        if isinstance(found, str):
            self._log_once(job, found)
            return None
        return found

    def _log_once(self, job: types_pb2.Job, cause: str) -> None:
        if not self._logged.get(job.dataset_id):
            self._logged.put(job.dataset_id, True, 1)
            dataset = dataset_name(job)
            _log.info("not storing rows before the boundary", dataset=dataset, cause=cause)

    def _open(self, name: str, reads: Sequence[str]) -> StoredSplit | list[Version] | None:
        """Return stored elements, or the versions of the files that are read; None: unknown."""
        files = versions(reads)
        try:
            found = self.folder.open(name)
            if found is not None:
                with contextlib.ExitStack() as opened:
                    opened.callback(found.close)
                    if found.about.files == files:
                        found.check_data(_DIGEST_BYTES)
                        self.folder.use(name, found.size, found.about.seconds)
                        opened.pop_all()
                        return found
        except StoreError as error:
            self.remove_damaged(name, error)
        return files

    def remove_damaged(self, name: str, error: Exception, found: StoredSplit | None = None) -> None:
        """Remove stored elements that cannot be read, unless others have replaced them."""
        self.counts["damaged"] += 1
        damages = 1 + (self._damages.get(name) or 0)
        self._damages.put(name, damages, 1)
        with contextlib.suppress(OSError):
            if found is None or found.is_current:
                self.folder.remove(name)
        _log.warning("computing rows: what was stored is damaged", name=name, cause=str(error))
        if damages >= _MOST_DAMAGES:  # TensorFlow may not read what it writes: datasets of datasets
            self._refused.put(name, True, 1)

    def leave(self, name: str) -> None:
        """Do not use the elements of a name for a while."""
        self._failed.put(name, time.monotonic() + _PAUSE_SECONDS, 1)

    def pause(self, error: Exception) -> None:
        """Use no files for a while."""
        if time.monotonic() >= self._paused:
            path = str(self.folder.path)
            _log.warning("cannot store rows: computing rows", dir=path, cause=str(error))
        self._paused = time.monotonic() + _PAUSE_SECONDS

    def refuse(self, name: str, about: Description, why: str) -> None:
        """Do not write elements again in this process: each attempt would fail."""
        self._refused.put(name, True, 1)
        of = {"dataset": about.dataset, "split": about.split}
        _log.info("not storing the rows before a boundary", **of, cause=why)


class _PrefixReading:
    """Complete files that an iterator reads."""

    is_new = False

    def __init__(self, store: StoredPrefixes, name: str, found: StoredSplit) -> None:
        self._store, self._name, self._found = store, name, found
        weakref.finalize(self, found.close)
        self.path = str(found.path / _ROWS)

    def iterate(self, elements: Iterator[Any]) -> Iterator[Any]:
        """See `BoundaryFiles`."""
        try:
            yield from elements
            self._found.check_data(0)  # TensorFlow takes the end of a file for that of rows
        except Exception as error:
            self._store.leave(self._name)  # the split continues without files
            if isinstance(error, _OF_FILES):  # any other one may be of what follows the boundary
                self._store.remove_damaged(self._name, error, self._found)
            raise BoundaryError(f"cannot read stored rows: {error}") from error
        self._store.counts["bytes"] += self._found.size


class _PrefixWriting:
    """New files that an iterator writes. The thread of the queue measures and publishes them."""

    is_new = True

    def __init__(self, store: StoredPrefixes, name: str, about: Description) -> None:
        self._store, self._name, self._about = store, name, about
        self._folder = store.folder.new_path("boundary")
        self.path = str(self._folder / _ROWS)
        self._size = 0  # as counted in the store
        self._is_broken = False

    def iterate(self, elements: Iterator[Any]) -> Iterator[Any]:
        """See `BoundaryFiles`."""
        put, seconds, measured = self._store.queue.put, 0.0, time.monotonic()
        end = self._remove
        try:
            within(_OPEN_SECONDS, "make a folder", self._make_folder)
            while True:
                began = time.monotonic()
                try:
                    element = next(elements)
                except StopIteration:
                    break
                finally:
                    now = time.monotonic()
                    seconds += now - began
                if now - measured > _MEASURE_SECONDS:
                    measured = now
                    put(self._measure)
                yield element
            del elements  # TensorFlow's iterator
            about = self._about._replace(seconds=seconds)
            end = lambda: self._publish(about)  # noqa: E731
        except Exception as error:
            self._store.pause(error)
            raise BoundaryError(f"rows that are stored raised an error: {error}") from error
        finally:
            put(end)

    def _make_folder(self) -> None:
        self._store.folder.live.add(self._folder)
        self._folder.mkdir(mode=0o700, parents=True)

    # The thread of the queue.

    def _measure(self) -> None:
        try:
            with contextlib.suppress(FileNotFoundError):  # TensorFlow removes some
                self._count()
        except OSError as error:
            self._store.pause(error)

    def _count(self) -> None:
        files = [Path(one.path) for one in os.scandir(self._folder)]
        size = sum(size_of(file.stat()) for file in files)
        before, self._size = self._size, size
        folder = self._store.folder
        folder.count(size - before)
        if max(size, folder.unfinished) > folder.max_bytes // 2 and not self._is_broken:
            self._is_broken = True
            if size > folder.max_bytes // 2:
                why = "they take more than half of the store"
                self._store.refuse(self._name, self._about, why)
        if self._is_broken:  # TensorFlow goes on writing, at the same place
            for file in files:
                os.truncate(file, 0)

    def _publish(self, about: Description) -> None:
        try:
            self._measure()
            if self._is_broken:
                return
            if not (self._folder / _INDEX).exists():
                self._store.refuse(self._name, about, "a split does not read all of them")
                return
            if versions([str(one[0]) for one in about.files]) != about.files:
                return
            self._describe(about)
            self._rename(about)
        except OSError as error:
            self._store.pause(error)
        finally:
            self._remove()

    def _describe(self, about: Description) -> None:
        data = []
        for path in sorted(self._folder.iterdir()):
            if not path.name.startswith((_INDEX, f"{_ROWS}.data-")):
                path.unlink()
                continue
            with open(path, "rb", buffering=0) as opened:
                size = os.fstat(opened.fileno()).st_size
                data.append((path.name, size, digest_of(opened)))
        file = SplitFile(self._folder / ABOUT)
        try:
            file.finish(about._replace(data=data))
        finally:
            file.close()
        self._measure()

    def _rename(self, about: Description) -> None:
        folder = self._store.folder
        try:
            other = folder.open(self._name)
        except StoreError:
            folder.remove(self._name)
            other = None
        if other is not None:
            other.close()
            if other.about.files == about.files:
                return  # another iterator was first
            folder.remove(self._name)
        try:
            folder.publish(self._name, self._folder, self._size, about.seconds)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return  # another worker was first
            raise
        self._store.counts["stored"] += 1

    def _remove(self) -> None:
        """Remove the files, unless they have got their name."""
        self._store.folder.unfinished -= self._size
        self._store.folder.live.discard(self._folder)
        self._size = 0
        with contextlib.suppress(OSError):
            if self._folder.exists():
                delete(self._folder)
