"""The files of what is before the boundary of a split: TensorFlow writes them, or reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2


class BoundaryError(UnavailableError):
    """The files cannot be read or written. The split has to continue without them."""


class BoundarySources(NamedTuple):
    """What the elements before a boundary depend on.

    Attributes:
        graph: digest of the graph before it.
        files: names of the files that it reads.
    """

    graph: bytes
    files: tuple[str, ...]


class BoundaryFiles(Protocol):
    """The files of one iterator.

    Attributes:
        path: their path, as in `Dataset.cache`.
        is_new: whether TensorFlow writes them.
    """

    path: str
    is_new: bool

    def iterate(self, elements: Iterator[Any]) -> Iterator[Any]:
        """Yield the elements of a split that uses the files. Raises BoundaryError."""


class BoundaryStore(Protocol):
    """Where such files are stored."""

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
            key: stands for the result of `sources`.
            split: the split.
            may_write: whether to write files that are missing.
            sources: returns what the elements depend on. Raises UnknownFilesError.
        """
