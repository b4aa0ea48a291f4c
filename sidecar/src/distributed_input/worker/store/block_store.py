"""The store as a part of a running split: its blocks are read, or computed and stored.

A split is found by what its rows depend on: the definition of the dataset, the seed, the epoch if
the rows depend on it, the split, the kind of node and the releases. Its file has the versions of
the files that it was computed from, which are compared whenever it is read. A dataset of which this
is not known is not stored. An error of the store costs speed: the rows are computed.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.api.stalls import dataset_name
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.order.identity import fingerprint
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.store_folder import StoreFolder
from distributed_input.rows.stored_split import (
    Description,
    StoredSplit,
    StoreError,
    Version,
)
from distributed_input.runtime import logs
from distributed_input.worker.datasets.dataset_cache import LruCache
from distributed_input.worker.datasets.split_opener import SplitSources
from distributed_input.worker.states.saved_state import StateTimeoutError, within
from distributed_input.worker.store.file_versions import are_old, versions
from distributed_input.worker.store.names import is_storable, names_of
from distributed_input.worker.store.recordings import Recording, TooLargeError, WriteQueue
from distributed_input.worker.store.stored_prefixes import StoredPrefixes
from distributed_input.worker.streams.split_blocks import cut, end_of
from distributed_input.worker.streams.split_runner import behind

_log = logs.get("worker.store")
_READ_SECONDS = 5.0  # for a block, or for the versions of files
_PAUSE_SECONDS = 60.0  # after a read that took longer, or an error of the file system
_MOST_TIMEOUTS = 2  # of the versions of a dataset's files: then it is not stored and not read
_MAX_DATASETS, _MAX_NAMES = 1000, 100_000

Compute = Callable[[worker_pb2.StreamRequest, StreamCounters], Iterator[RowBlock]]
FindSources = Callable[[worker_pb2.StreamRequest], SplitSources]


class BlockStore:
    """The splits in a folder. Thread-safe.

    Args:
        folder: the folder.
        max_bytes: maximum size of its files.

    Attributes:
        prefixes: what is before the boundaries of splits, in the same folder.
        counts: number of "rows" and "bytes" that were read instead of computed, and of splits that
            were "stored" or found "damaged".
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.counts: Counter[str] = Counter()
        self._folder = StoreFolder(folder, max_bytes)
        self._queue = WriteQueue()
        self.prefixes = StoredPrefixes(self._folder, self._queue, self.counts)
        self._paused = {"read": 0.0, "write": 0.0}  # until when
        self._is_warned = False
        self._known: LruCache[SplitSources] = LruCache(_MAX_NAMES)  # by the splits' names
        self._refused: LruCache[bool] = LruCache(_MAX_DATASETS)  # datasets that are not stored
        self._too_large: LruCache[bool] = LruCache(_MAX_NAMES)  # by the splits' names
        self._slow: LruCache[int] = LruCache(_MAX_DATASETS)  # how often their files took too long

    def flush(self, timeout: float) -> bool:
        """Wait for what is being written. Return whether all is."""
        return self._queue.flush(timeout)

    def blocks(
        self,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters,
        compute: Compute,
        sources: FindSources,
    ) -> Generator[RowBlock, None, None]:
        """Yield a split's blocks as `compute` does; see `SplitRunner.blocks`.

        Args:
            request: request of a sidecar.
            counters: those of `compute`.
            compute: computes the blocks.
            sources: returns what the rows depend on.

        Raises:
            UnavailableError: a block is damaged, and the rows before it, which were sent, are not
                computed again as they were stored.
            Exception: any error of `compute`.
        """
        if not is_storable(request.job):
            yield from compute(request, counters)
            return
        rest = yield from self._read(request)
        if rest is request and not request.start_row:
            yield from self._recorded(request, counters, compute, sources)
        elif rest is request:
            yield from compute(request, counters)
        elif rest is not None:
            for block in compute(rest, counters):
                if block.prefix_differs:
                    raise UnavailableError("stored rows that were sent are not computed again")
                yield block

    # Reading.

    def _read(
        self, request: worker_pb2.StreamRequest
    ) -> Generator[RowBlock, None, worker_pb2.StreamRequest | None]:
        """Yield the blocks of a stored split. Return the request of the rows that are missing.

        None: there are none. The same request: the split is not stored.
        """
        if self._is_off("read", request):
            return request
        row, name, sent = ElementSpec.from_json(request.job.row_spec), "", None
        try:
            name, stored = self._find(request)
            if stored is None:
                return request
            with contextlib.closing(stored):
                blocks = stored.blocks(request.start_row)
                while True:
                    block = within(_READ_SECONDS, "read a block", lambda: next(blocks, None))
                    for part in cut(block, row.columns, request) if block is not None else ():
                        if part.end_row > request.start_row:
                            self.counts["rows"] += part.rows
                            self.counts["bytes"] += part.nbytes
                            sent = part.end_prefix
                            yield part
                    if block is None:
                        yield end_of(stored.about.end, row)
                        return None
        except StoreError as error:
            self._remove_damaged(name, error)
        except (OSError, StateTimeoutError, RuntimeError) as error:  # no thread can start
            self._pause("read", error)
        return request if sent is None else behind(request, sent)

    def _find(self, request: worker_pb2.StreamRequest) -> tuple[str, StoredSplit | None]:
        """Return a stored split that has the rows of a request, and its name.

        Raises:
            OSError: it cannot be read.
            StateTimeoutError: that takes too long.
        """
        for name in names_of(request):
            with contextlib.ExitStack() as opened:
                try:
                    open_it = functools.partial(self._folder.open, name)
                    stored = within(_READ_SECONDS, "open a split", open_it)
                    if stored is None:
                        continue
                    opened.callback(stored.close)
                    if self._has_rows(name, stored, request):
                        opened.pop_all()
                        return name, stored
                except StoreError as error:
                    self._remove_damaged(name, error)
        return "", None

    def _has_rows(self, name: str, stored: StoredSplit, request: worker_pb2.StreamRequest) -> bool:
        """Return whether a split has the rows before a request, and its files are unchanged.

        Raises:
            StoreError: it is damaged.
            Exception: as `_find`.
        """
        about, known = stored.about, Prefix(request.prefix_rows, request.prefix_digest)

        def has_rows() -> bool:
            if request.check_prefix and stored.prefix(known.rows) != known:
                return False
            self._folder.use(name, stored.size, about.seconds)
            return True

        if request.start_row > about.rows or not within(_READ_SECONDS, "read a split", has_rows):
            return False
        return self._versions([str(one[0]) for one in about.files], request) == about.files

    def _versions(
        self, names: Sequence[str], request: worker_pb2.StreamRequest
    ) -> list[Version] | None:
        """Return the versions of files.

        Raises:
            StateTimeoutError: it takes too long.
        """
        try:
            return within(_READ_SECONDS, "open files", lambda: versions(names))
        except StateTimeoutError as error:
            if not self._is_off("write", request):  # the first of its streams
                dataset = _dataset(request)
                self._slow.put(dataset, 1 + (self._slow.get(dataset) or 0), 1)
            self._pause("write", error)
            raise

    def _is_off(self, what: str, request: worker_pb2.StreamRequest) -> bool:
        """Return whether a split is not read, or not written: it would take too long."""
        if time.monotonic() < self._paused[what]:
            return True
        return (self._slow.get(_dataset(request)) or 0) >= _MOST_TIMEOUTS

    def _remove_damaged(self, name: str, error: StoreError) -> None:
        self.counts["damaged"] += 1
        self._folder.remove(name)
        _log.warning("computing a split: what was stored is damaged", name=name, cause=str(error))

    def _pause(self, what: str, error: Exception) -> None:
        """Stop reading or writing for a while: each attempt may take long."""
        self._paused[what] = time.monotonic() + _PAUSE_SECONDS
        if not self._is_warned:
            self._is_warned = True
            folder = str(self._folder.path)
            _log.warning(
                f"cannot {what} stored splits: computing rows", dir=folder, cause=str(error)
            )

    # Writing.

    def _recorded(
        self,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters,
        compute: Compute,
        sources: FindSources,
    ) -> Generator[RowBlock, None, None]:
        """Yield the computed blocks of a whole split, and store them."""
        known = self._sources(request, sources)
        if known is None:
            yield from compute(request, counters)
            return
        depends_on_epoch, is_cheap, files = known
        name = names_of(request)[depends_on_epoch]
        failed = functools.partial(self._failed, request)
        recording = Recording(self._folder, self._queue, failed)
        try:
            for block in compute(request, counters):
                if block.rows:
                    recording.add(block)
                elif block.last:
                    about = Description(
                        dataset_name(request.job),
                        request.epoch,
                        request.split,
                        block.first_row,
                        block.prefix_digest,
                        0.0 if is_cheap else counters.busy_seconds,
                        files,
                    )
                    is_valid = functools.partial(self._is_valid, name, about)
                    stored = functools.partial(self.counts.update, ["stored"])
                    recording.finish(name, about, is_valid, stored)
                yield block
        finally:
            recording.drop()

    def _failed(self, request: worker_pb2.StreamRequest, error: Exception) -> None:
        if isinstance(error, TooLargeError):  # each attempt would remove others
            self._too_large.put(names_of(request)[0], True, 1)
            _log.info("not storing a split", split=request.split, cause=str(error))
        else:
            self._pause("write", error)

    def _sources(
        self, request: worker_pb2.StreamRequest, sources: FindSources
    ) -> tuple[bool, bool, list[Version]] | None:
        """Return what the rows of a split depend on. None: it is not stored.

        These are whether they depend on the epoch; whether they do and are cheap later, when what
        is before their boundary is read; and the files.
        """
        if self._is_off("write", request) or self._refused.get(_dataset(request)):
            return None
        name = names_of(request)[0]
        if self._too_large.get(name):
            return None
        try:
            found = self._known.get(name) or sources(request)
            self._known.put(name, found, 1 + len(found.files))
            files = self._versions(found.files, request)
            if files is None:
                raise UnknownFilesError("it reads too many files, or something else than files")
        except UnknownFilesError as error:
            self._refused.put(_dataset(request), True, 1)
            _log.info("not storing a dataset", dataset=dataset_name(request.job), cause=str(error))
            return None
        except StateTimeoutError:
            return None
        except Exception as error:  # noqa: BLE001 - one of the dataset is raised by `compute`
            _log.info("not storing a split", split=request.split, cause=str(error))
            return None
        is_cheap = found.epoch and found.boundary
        return (found.epoch, is_cheap, files) if are_old(files) else None

    def _is_valid(self, name: str, about: Description) -> bool:
        """Return whether a split may be stored: its files are the same as before it was computed.

        If another worker has stored other rows, both are not.
        """
        if versions([str(one[0]) for one in about.files]) != about.files:
            return False
        try:
            other = self._folder.open(name)
        except StoreError:
            other = None
        if other is None:
            return True
        other.close()
        differs = other.about.files == about.files and other.about.end != about.end
        if differs:
            self._folder.remove(name)
            _log.warning("not storing a split: two workers computed different rows", name=name)
        return not differs


def _dataset(request: worker_pb2.StreamRequest) -> tuple[str, int]:
    return request.job.dataset_id, fingerprint(request.job)
