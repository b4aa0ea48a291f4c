"""What both sides made of a case, as rows that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from distributed_input.api.proto import types_pb2
from distributed_input.order import splits as assignment
from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.judgement import values
from testing.same_meaning.judgement.values import Element
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.product import RESTORES, Epoch, Seen, Step
from testing.same_meaning.reference import Reference, Run, is_random

_PADDED = ("padded_batch", "replica_padded")
_OTHER_SEEDS = range(3, 8)
_PADDING = ("padded_batch", "bucket", "replica_padded")


@dataclass(frozen=True)
class Difference:
    """One way in which the product differs from TensorFlow.

    Attributes:
        kind: what differs.
        detail: expected and found values.
    """

    kind: str
    detail: str


class Evidence:
    """A case, what its trainers saw, and what TensorFlow makes of it.

    Attributes:
        runs: of each split; of a plain dataset, the only one.
        again: the same with other random numbers; None if the pipeline draws none.
        by_rows: steps have rows; else, whole elements.
        batched: elements are batches of rows, also if the product takes padded ones apart.
        error: of TensorFlow; "" for none.
        endless: the dataset never ends.
        python: name of the Python source; "" for a dataset.
        copies: how often each row is read.
    """

    def __init__(self, case: Case, seen: Seen, reference: Reference) -> None:
        self.case, self.seen, self.job = case, seen, seen.job
        self._reference = reference
        splits = self.job.num_splits, self.job.partitions
        self.runs = reference.splits(*splits)
        self.again = reference.splits(*splits, seed=2) if is_random(case) else None
        self.names = grammar.names_of(case.pipeline)
        self.plain = case.api == PLAIN
        self.by_rows = bool(self.job.global_batch_size)
        last = grammar.last_batch(case.pipeline)
        padded = last is not None and case.pipeline["ops"][last][0] in _PADDED
        self.batched = self.job.batched or (padded and not self.says_whole)
        self.share = self.job.global_batch_size // case.trainers
        self.error = next((run.error for run in self.runs if run.error), "")
        self.endless = any(run.endless for run in self.runs)
        name, *args = case.pipeline["source"]
        self.python = str(args[0]) if name == "python" else ""
        self.copies = case.trainers if self.job.shard_policy == "OFF" else 1
        self.pads = self.by_rows and any(name in _PADDING for name in self.names)

    @property
    def says_whole(self) -> bool:
        """Whether a warning says that elements are not taken as batches, which is the safe way.

        Only of `concatenate`, which may join batches with something else, of `unique`, and of
        `snapshot`, whose `reader_func` may return anything.
        """
        ops = ("ConcatenateDataset", "UniqueDataset", "SnapshotDatasetV2")
        said = (f"{op} follows the batch" for op in ops)
        return any(text in one for text in said for one in self.job.warnings)

    @property
    def says_unknown_end(self) -> bool:
        """Whether a warning says that splits are taken as finite, although they may not be."""
        return any("not known whether the dataset's splits end" in one for one in self.job.warnings)

    def others(self) -> Iterator[list[Run]]:
        """Yield runs with other random numbers, if a run may differ: two may be equal by chance."""
        splits = self.job.num_splits, self.job.partitions
        for seed in _OTHER_SEEDS if self.again is not None else ():
            yield self._reference.splits(*splits, seed=seed)

    def first_splits(self, epoch: int) -> list[int]:
        """Return the splits with which the partitions begin."""
        job = self.job
        dealt = assignment.deal(job.seed, epoch, job.num_splits, job.partitions)
        return [splits[0] for splits in dealt if splits]

    def expected(self, runs: Iterable[Run]) -> list[str]:
        """Return the rows of an epoch. Raises ValueError if the elements are no batches."""
        elements = [element for run in runs for element in run.elements]
        if self.by_rows and self.batched:
            rows = [row for element in elements for row in values.rows_of(element)]
        else:
            rows = [values.whole(element) for element in elements]
        return self._plain(rows)

    def found(self, epochs: Iterable[Epoch]) -> list[list[str]]:
        """Return the rows of each trainer, in order. Raises ValueError: see `expected`."""
        return [
            self._plain([row for step in self._steps_of(epoch) for row in self._rows(step)])
            for epoch in epochs
        ]

    def _steps_of(self, epoch: Epoch) -> list[Step]:
        """Return the steps without what replicas get that have no element in the last one.

        They get zeros and empty tensors, as in TensorFlow.
        """
        if self.by_rows or not epoch.steps or epoch.stopped:
            return list(epoch.steps)
        *steps, last = epoch.steps
        while len(last) > 1 and values.is_empty(last[-1]):
            last = last[:-1]
        return [*steps, last]

    def _rows(self, step: Step) -> list[str]:
        if self.by_rows:
            return [row for part in step for row in values.rows_of(part) if part]
        if self.plain and len(step) > 1 and all(_has_rows(part) for part in step):
            return [values.whole(values.joined(step))]
        return [values.whole(part) for part in step]

    def _plain(self, rows: list[str]) -> list[str]:
        """Return rows without what may differ: types of Python values, lengths of padding."""
        if self.python:
            rows = [values.untyped(row) for row in rows]
        return [values.without_padding(row) for row in rows] if self.pads else rows

    def of_splits(self, runs: Sequence[Run] | None = None) -> list[list[str]] | None:
        """Return the rows of each split; None if only the product decides it.

        Raises:
            ValueError: see `expected`.
        """
        runs = self.runs if runs is None else runs
        if not self.plain:
            return [self.expected([run]) for run in runs]
        ops = self.case.pipeline["ops"]
        deals_rows = bool(ops) and ops[-1][0] == "batch" and not ops[-1][2] and self.batched
        if self.job.shard_policy != "DATA" or not (deals_rows or not self.batched):
            return None
        if not deals_rows and any(op[0] in grammar.BATCHES for op in ops):
            return None
        rows = self.expected(runs)
        return [rows[split :: self.job.num_splits] for split in range(self.job.num_splits)]

    def complete_steps(self, number: int) -> set[int] | None:
        """Return the numbers of steps that an epoch may have; None if it is not known.

        All trainers take the same number of steps. It follows from the rows of each trainer, and so
        from the deal of the splits.

        Args:
            number: of the epoch.
        """
        sizes = self._sizes()
        if sizes is None or not self.share:
            return None
        # An abandoned iterator and a restored position may have begun an epoch.
        later = 2 if self.case.fault in (*RESTORES, "again") else 1
        return {self._steps(sizes, number + more) for more in range(later)}

    def _steps(self, sizes: Sequence[int], epoch: int) -> int:
        partitions = assignment.deal(self.job.seed, epoch, self.job.num_splits, self.job.partitions)
        rows = [
            sum(
                sizes[split]
                for p in assignment.partitions_of(consumer, self.case.trainers, self.job.partitions)
                for split in partitions[p]
            )
            for consumer in range(self.case.trainers)
        ]
        if self.job.remainder == types_pb2.DROP:
            return min(count // self.share for count in rows)
        return max(-(-count // self.share) for count in rows)

    def _sizes(self) -> list[int] | None:
        """Return the number of rows of each split, if it is known and not random."""
        rows = self.of_splits()
        if rows is None:
            return None
        sizes = [len(one) for one in rows]
        if self.again is None:
            return sizes
        if any(name in grammar.COUNT_BY_VALUE for name in self.names):
            return None
        other = self.of_splits(self.again)
        return sizes if other is not None and [len(one) for one in other] == sizes else None


def _has_rows(element: Element) -> bool:
    return all(leaf.count is not None for leaf in element if leaf.kind != "none")
