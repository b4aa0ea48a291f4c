"""The saved states of a worker's splits: which one a stream may use, and who saves new ones."""

from __future__ import annotations

from collections import Counter

from distributed_input.api.hashing import mix
from distributed_input.api.proto import worker_pb2
from distributed_input.runtime import logs
from distributed_input.worker.states.saved_state import SavedState, StateError, decode
from distributed_input.worker.states.state_files import StateFiles, StoredState
from distributed_input.worker.states.state_saver import SaveCost, StateSaver, StateSource

_log = logs.get("worker.states")
_CHECKED = 16  # one epoch of this many replays all rows, which checks what states cannot show
_MAX_DATASETS = 1000


class SplitStates:
    """Finds and saves states. The GIL makes it thread-safe.

    Args:
        files: states in a folder; None: only the sidecars keep states.

    Attributes:
        counts: number of states "saved", "restored" and "refused", and of splits of which the first
            rows were "skipped".
    """

    def __init__(self, files: StateFiles | None = None) -> None:
        self._files = files
        self.counts: Counter[str] = Counter({"saved": 0, "restored": 0, "refused": 0, "skipped": 0})
        self._costs: dict[str, SaveCost] = {}

    def find(self, request: worker_pb2.StreamRequest) -> SavedState | None:
        """Return the state in a request, if the stream can start from it."""
        token = request.resume_token
        if not token or is_checked(request):
            return None
        state = self._decode(request, token)
        return state if state is not None and 0 < state.prefix.rows <= last_row(request) else None

    def uses_files(self, request: worker_pb2.StreamRequest) -> bool:
        """Return whether the folder may have a state for a stream."""
        return self._files is not None and request.start_row > 0 and not is_checked(request)

    def take_file(
        self, request: worker_pb2.StreamRequest, key: bytes
    ) -> tuple[StoredState | None, SavedState | None]:
        """Return a state in the folder from which a stream can start, if there is one.

        Args:
            request: request of a sidecar.
            key: key of the split.
        """
        stored = self._files.take(key, last_row(request)) if self._files is not None else None
        state = self._decode(request, stored.token) if stored is not None else None
        if stored is not None and state is None:
            stored.remove()
        return stored, state

    def _decode(self, request: worker_pb2.StreamRequest, token: bytes) -> SavedState | None:
        try:
            return decode(token)
        except StateError as error:
            self.refuse(request, error)
            return None

    def record_restore(self, request: worker_pb2.StreamRequest, state: SavedState) -> None:
        """Record that a split continues from a state."""
        self._record("restored", "from a saved state", request, state.prefix.rows)

    def record_skip(self, request: worker_pb2.StreamRequest, rows: int) -> None:
        """Record that the first rows of a split are skipped."""
        self._record("skipped", "without its first rows", request, rows)

    def _record(self, event: str, start: str, request: worker_pb2.StreamRequest, rows: int) -> None:
        self.counts[event] += 1
        _log.info(
            f"resuming a split {start}",
            job=request.job.name,
            epoch=request.epoch,
            split=request.split,
            row=rows,
            start_row=request.start_row,
        )

    def refuse(self, request: worker_pb2.StreamRequest, cause: Exception) -> None:
        """Record that a state or an anchor could not be used, and that the split is replayed."""
        self.counts["refused"] += 1
        _log.warning(
            "replaying a split: it cannot continue from a saved state or an anchor",
            job=request.job.name,
            epoch=request.epoch,
            split=request.split,
            cause=str(cause),
        )

    def saver(
        self,
        request: worker_pb2.StreamRequest,
        source: StateSource | None,
        batch_rows: int,
    ) -> StateSaver | None:
        """Return what saves the states of a stream, or None.

        Args:
            request: request of a sidecar.
            source: iterator of the split; None if it has no state.
            batch_rows: number of rows in an element for which the dataset was opened.
        """
        if source is None:
            return None
        dataset = request.job.dataset_id
        cost = self._costs.setdefault(dataset, SaveCost())
        while len(self._costs) > _MAX_DATASETS:
            self._costs.pop(next(iter(self._costs)))
        return StateSaver(source, batch_rows, cost, self._keep)

    def _keep(self, key: bytes, row: int, token: bytes) -> None:
        self.counts["saved"] += 1
        if self._files is not None:
            self._files.write(key, row, token)


def last_row(request: worker_pb2.StreamRequest) -> int:
    """Return the last row at which a state may be.

    If the request has a digest, at least one row is produced again. Its digest shows whether the
    iterator continues as before.
    """
    return request.prefix_rows - 1 if request.check_prefix else request.start_row


def is_anchored(request: worker_pb2.StreamRequest) -> bool:
    """Return whether the rows before an anchor may be skipped: at least one row shows a change."""
    return request.check_prefix and 0 < request.anchor_rows < request.prefix_rows


def is_checked(request: worker_pb2.StreamRequest) -> bool:
    """Return whether all rows of an epoch are replayed, although there may be states.

    A replay also finds changes of data that was read before a state. All splits of an epoch are
    replayed or none, because the slowest one determines the time of a restore.
    """
    return mix(request.seed, request.epoch, _CHECKED) % _CHECKED == 0
