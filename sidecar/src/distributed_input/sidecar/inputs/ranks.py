"""The ranks of one trainer: the processes beside one sidecar, each a consumer of its own. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError
from distributed_input.api.names import RANKS_ANNOTATION
from distributed_input.api.proto import trainer_pb2

_ARGUMENTS = "connect(rank=..., world_size=...)"
_DATA_ARGUMENTS = "connect(data_rank=..., data_size=...)"


@dataclass(frozen=True)
class TrainerRanks:
    """The ranks of one of several trainers. Rank r of trainer i is consumer i * each + r.

    If a rank spans several trainers, each of them reads all its rows, with a job of its own. Then
    trainer i has the one rank i // span.

    Attributes:
        trainer: index of the trainer.
        trainers: number of trainers.
        each: ranks of each trainer.
        span: trainers of each rank. Law: each == 1 or span == 1.
    """

    trainer: int = 0
    trainers: int = 1
    each: int = 1
    span: int = 1

    @staticmethod
    def of(trainer: int, trainers: int, per_trainer: str) -> TrainerRanks:
        """Return the ranks of a trainer. `per_trainer`: such as "4" or "1/2".

        Raises:
            ConfigError: a number is invalid, or the trainers cannot be divided among the ranks.
        """
        each, span = flags.ranks_per_trainer(per_trainer, flags.RANKS_PER_TRAINER)
        if not 0 <= trainer < trainers:
            raise ConfigError(f"{flags.CONSUMER_INDEX} {trainer}: must be from 0 to {trainers - 1}")
        if trainers % span:
            raise ConfigError(
                f"{flags.RANKS_PER_TRAINER} {per_trainer}: {trainers} trainers cannot be divided "
                f"among ranks of {span} trainers each: use a multiple of {span}"
            )
        return TrainerRanks(trainer, trainers, each, span)

    @property
    def count(self) -> int:
        """Number of ranks of all trainers: the number of consumers of a job."""
        return self.trainers * self.each // self.span

    def consumer(self, local: int) -> int:
        """Return the index of a consumer. `local`: its rank in this trainer, from 0."""
        return self.trainer * self.each // self.span + local

    def job(self, name: str) -> str:
        """Return the name of this trainer's job among those that read the same rows; see `COPY`.

        name: that of the trainer's program, or "" for the input's own job.
        """
        copy = self.trainer % self.span
        return ".".join(filter(None, [name, f"copy-{copy}"])) if copy else name

    def readers(self, claimed: trainer_pb2.Rank | None) -> int:
        """Return the number of processes of this trainer that read the same rows as one.

        Raises:
            ConfigError: the processes of a rank cannot be divided among its trainers.
        """
        if claimed is None or claimed.readers <= 1:
            return 1
        if claimed.readers % self.span:
            raise ConfigError(
                f"{claimed.source}: {claimed.readers} processes have the same data rank, which "
                f"cannot be divided among {self.span} trainers "
                f"({RANKS_ANNOTATION}: 1/{self.span}). Start the same number in each"
            )
        return claimed.readers // self.span

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
                f"Trainers are numbered so that those of a data rank, or the {self.each} data "
                f"rank(s) of a trainer, follow each other. Start its node as number {self.trainer},"
                f" or pass data_rank={self.consumer(0)} plus the index within the trainer"
            )
        each: int | str
        if claimed.count and self.trainers % claimed.count == 0:
            each = f"1/{self.trainers // claimed.count}".removesuffix("/1")
        elif claimed.count % self.trainers == 0:
            each = claimed.count // self.trainers
        else:
            return (
                f"The {self.trainers} trainers cannot share {claimed.count} data rank(s): use a "
                f"multiple or a divisor of {self.trainers}"
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
