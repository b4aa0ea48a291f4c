"""The training loops of a simulation: trainers in lockstep, checkpoints, crashes and restores."""

from __future__ import annotations

from dataclasses import replace

from distributed_input.api.errors import FencedError, RetryableError
from testing.chaos.consumers import Checkpoint
from testing.chaos.faults import Injector
from testing.chaos.ledger import Ledger
from testing.chaos.loop import TrainingLoop
from testing.chaos.schedule import Fault
from testing.delivery.loops import JobLoops
from testing.delivery.schedule import Delivery
from testing.delivery.trainer import TrainerDied, Trainers
from testing.delivery.virtual.primitives import SimTime
from testing.delivery.world import World


class Training(TrainingLoop):
    """The training loop of one job, in virtual time.

    If several processes read the batches of each consumer, one of each consumer: these take their
    steps together, and do not wait for the other readers, which have loops and ledgers of their
    own.

    Args:
        world: the processes.
        number: number of the job.
        loops: the loops of the job; this one is appended.
    """

    consumers: Trainers

    def __init__(self, world: World, number: int, loops: JobLoops) -> None:
        super().__init__(world.schedule, Injector(world), number)  # type: ignore[arg-type]
        delivery, self._reader = world.delivery, len(loops.all)
        pace = delivery.schedule.step_ms + delivery.paces[self._reader]
        self._schedule = replace(delivery.schedule, step_ms=pace)
        self.ledger = Ledger(world.schedule, keeps_epochs=delivery.readers > 1)
        self._pending = [f for f in self._pending if _reader_of(f, delivery) == self._reader]
        self._loops = loops
        loops.all.append(self)
        self.finished = False
        self.problems: list[str] = []
        self._world = world
        self._retries = world.delivery.retries
        self._older: Trainers | None = None  # that these replaced while they ran
        self._older_reads = False
        self.consumers = Trainers(world, self.job, self._reader)

    def _sleep(self, seconds: float) -> None:
        SimTime.sleep(seconds)

    def run(self) -> None:
        """Read all epochs. Errors become problems."""
        try:
            while True:
                try:
                    self._life()
                    break
                except TrainerDied as death:
                    self._restart(death.fault)
                except RetryableError:
                    self._use_retry()
                    self._restart(None)
            self.consumers.close()
            self.consumers.each(lambda consumer: consumer.forget())
        except TrainerDied:
            pass  # after its last batch
        except Exception as error:  # noqa: BLE001  every error of the product is a result
            self.problems.append(f"{type(error).__name__}: {error}")
        while self._older_reads:
            SimTime.sleep(0.2)
        self.injector.finish()
        self.problems += [f"fault: {type(e).__name__}: {e}" for e in self.injector.errors]
        self.finished = True

    def _life(self) -> None:
        """Connect and read until the last epoch has ended."""
        self.consumers.connect(self._positions(len(self.consumers)))
        if self._checkpoint is None:
            self._save(ended=False)
        while self._has_next_epoch():
            self._begin()
            ended = False
            while not ended:
                fault = self._due()
                if self._world.delivery.case == "held" and self._taken == 2 and not self._older:
                    self._replace()
                elif fault is None:
                    ended = self._step_or_retry()
                else:
                    self._return(fault)
            if self.ledger.epoch + 1 == self._topology.epochs:
                self._loops.wait_for_ends(self)
            self._save(ended=True)

    def _return(self, fault: Fault) -> None:
        """Return to the last checkpoint, in new processes or in the same ones."""
        if fault.kind == "crash_trainer":
            if self._world.delivery.case == "resplit":
                self._world.change_splits()
            raise TrainerDied(fault)
        if self._loops.return_together:
            raise TrainerDied
        saved = self._rewind()
        # In this case, the running iterator continues there.
        if self._world.delivery.case != "restored" or saved.ended:
            self._begin()

    def _step_or_retry(self) -> bool:
        """Take one step. If a trainer that is alone gets a retryable error, it iterates again."""
        try:
            return self._step()
        except RetryableError:
            if len(self.consumers) > 1:
                raise  # the trainers do not stand at the same step: restore the checkpoint
            self._use_retry()
            self._begin()
            return False

    def _use_retry(self) -> None:
        """Count a retryable error, or raise it if there were too many."""
        if not self._retries:
            raise  # noqa: PLE0704  called while the error is handled
        self._retries -= 1

    def _restart(self, fault: Fault | None) -> None:
        """Start the trainers again, as many as before or as the fault says."""
        self.consumers.kill()
        self._loops.restart(self, fault)
        self._restore_ledger()
        self.consumers = Trainers(self._world, self.job, self._reader)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The last checkpoint; None before the first."""
        return self._checkpoint

    @checkpoint.setter
    def checkpoint(self, checkpoint: Checkpoint | None) -> None:
        self._checkpoint = checkpoint

    def _replace(self) -> None:
        """Start other trainers and sidecars with the same indices, while the first ones live."""
        self._older = self.consumers
        self._world.start_sidecars(len(self.consumers))
        self.consumers = Trainers(self._world, self.job)
        assert self._checkpoint is not None
        self.consumers.connect(self._positions(len(self.consumers)))
        self.ledger.restore(self._checkpoint.epoch, self._checkpoint.steps, False)
        self._begin()
        self._older_reads = True
        self._world.driver.spawn(self._read_on, "older")

    def _read_on(self) -> None:
        """Read with the trainers that were replaced. They must be fenced before the end."""
        assert self._older is not None
        try:
            while self._older.step()[0] is not None:
                SimTime.sleep(0.05)
            self.problems.append("the older of two holders of an index read to the end")
        except FencedError:
            pass
        except Exception as error:  # noqa: BLE001  every other error is wrong
            self.problems.append(f"the older holder of an index got {error!r}")
        self._older_reads = False


def _reader_of(fault: Fault, delivery: Delivery) -> int:
    """Return the reader whose loop injects a fault: faults of trainers are spread over all."""
    return fault.target % delivery.readers if fault.kind.endswith("_trainer") else 0
