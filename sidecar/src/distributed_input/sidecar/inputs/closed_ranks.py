"""The readers of a consumer that have closed their job. The others do not wait for them.

Each records that in a file. A sidecar that starts later knows it from nothing else, because the
processes of these readers do not connect again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from distributed_input.api.files import closed_prefix

_MAX_DIGITS = 10


class ClosedRanks:
    """The ranks of one group.

    Args:
        folder: folder shared with trainers.
        job: full name of the job.
        consumer: index of the consumer.
        readers: number of readers of the consumer.

    Attributes:
        ranks: the ranks.
    """

    def __init__(self, folder: Path, job: str, consumer: int, readers: int) -> None:
        self._folder = folder
        self._prefix = closed_prefix(job, consumer, readers)
        self.ranks: set[int] = set()
        self.read()

    def read(self) -> bool:
        """Add the ranks that have recorded it. Return whether there are more than before."""
        before = len(self.ranks)
        self.ranks.update(rank for rank, _ in self._files())
        return len(self.ranks) > before

    def reopen(self, rank: int) -> None:
        """Remove a rank that reads again."""
        self.ranks.discard(rank)
        for other, file in self._files():
            if other == rank:
                file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all ranks."""
        self.ranks.clear()
        for _, file in self._files():
            file.unlink(missing_ok=True)

    def _files(self) -> Iterator[tuple[int, Path]]:
        for file in sorted(self._folder.glob(f"{self._prefix}*")):
            rank = file.name.removeprefix(self._prefix)
            if rank.isascii() and rank.isdecimal() and len(rank) <= _MAX_DIGITS:
                yield int(rank), file
