"""The ranks of one trainer: the processes beside one sidecar, each a consumer of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.errors import ConfigError
from distributed_input.api.names import RANKS_ANNOTATION
from distributed_input.api.proto import trainer_pb2

_ARGUMENTS = "connect(rank=..., world_size=...)"
_DATA_ARGUMENTS = "connect(data_rank=..., data_size=...)"


@dataclass(frozen=True)
class TrainerRanks:
    """The ranks of one of several trainers. Rank r of trainer i is consumer i * each + r.

    Attributes:
        trainer: index of the trainer.
        trainers: number of trainers.
        each: ranks of each trainer.
    """

    trainer: int = 0
    trainers: int = 1
    each: int = 1

    @property
    def count(self) -> int:
        """Number of ranks of all trainers: the number of consumers."""
        return self.trainers * self.each

    def consumer(self, local: int) -> int:
        """Return the index of a consumer. `local`: its rank in this trainer, from 0."""
        return self.trainer * self.each + local

    def local_rank(self, claimed: trainer_pb2.Rank | None) -> int:
        """Return the rank in this trainer of a process, which reports its rank in all trainers.

        A trainer with one process needs no report, and what a launcher sets does not matter: it may
        number nodes in another order, and its other processes may not read.

        Raises:
            ConfigError: the process does not belong to this trainer, or it reports no rank.
        """
        if self.each == 1 and not (claimed and claimed.requested):
            return 0
        if claimed is None:
            raise ConfigError(
                f"{self._own}, and this process has no rank: start it with torchrun, mpirun or "
                f"srun, or use {_ARGUMENTS}. If its package distributed-input is older than the "
                "sidecar, upgrade it: it may know no ranks"
            )
        local = claimed.index - self.consumer(0)
        if claimed.count == self.count and 0 <= local < self.each:
            return local
        kind, remedy = "rank", self._remedy
        if claimed.readers:
            kind, remedy = "data rank", self._data_remedy
        raise ConfigError(
            f"{claimed.source}: this process is {kind} {claimed.index} of {claimed.count}, but "
            f"{self._own}. {remedy(claimed)}"
        )

    @property
    def _own(self) -> str:
        first, last = self.consumer(0), self.consumer(self.each - 1)
        has = f"has the ranks {first} to {last}" if last > first else f"has rank {first}"
        return f"its trainer, {self.trainer} of {self.trainers}, {has} of {self.count}"

    def _data_remedy(self, claimed: trainer_pb2.Rank) -> str:
        if claimed.count == self.count:
            return (
                "All processes with the same data rank must be in one trainer, and a trainer has "
                f"{self.each} data rank(s) in a row. Start its node as number {self.trainer}, or "
                f"pass data_rank={self.trainer * self.each} plus the index within the trainer"
            )
        each, rest = divmod(claimed.count, self.trainers)
        if rest or not each:
            return (
                f"The {self.trainers} trainers cannot share {claimed.count} data rank(s): use a "
                f"multiple of {self.trainers}. A data rank cannot span several trainers"
            )
        return (
            f'For data_size={claimed.count}, set annotation {RANKS_ANNOTATION}: "{each}" in the '
            "pod template: the number of data ranks, not of processes. Or pass "
            f"data_size={self.count}"
        )

    def _remedy(self, claimed: trainer_pb2.Rank) -> str:
        if claimed.count == self.count:
            return (
                f"Start its node as number {self.trainer}, for example with torchrun "
                "--rdzv-backend=static --node-rank=$DISTRIBUTED_INPUT_CONSUMER_INDEX, or use "
                f"{_ARGUMENTS} with these ranks"
            )
        each, rest = divmod(claimed.count, self.trainers)
        other = ""
        if claimed.count % self.count == 0:
            same = claimed.count // self.count
            other = f". If {same} ranks read the same batches: {_DATA_ARGUMENTS}"
        if not rest:
            other += (
                f'. For {each}, set annotation {RANKS_ANNOTATION}: "{each}" in the pod template, '
                f"or distributed-input run --ranks-per-trainer {each}"
            )
        return (
            f"Start {self.each} process(es) in each of the {self.trainers} trainers, or use "
            f"{_ARGUMENTS}{other}"
        )
