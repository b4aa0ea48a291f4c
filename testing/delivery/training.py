"""The training loops of a simulation: trainers in lockstep, checkpoints, crashes and restores."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api.errors import FencedError, RetryableError
from testing.chaos.consumers import Checkpoint, Rows
from testing.chaos.faults import Injector
from testing.chaos.ledger import Ledger
from testing.chaos.run import UnevenSteps
from testing.chaos.schedule import Fault
from testing.delivery.trainer import TrainerDied, Trainers
from testing.delivery.virtual.primitives import SimTime
from testing.delivery.world import World


class Training:
    """The training loop of one job over all restarts. The first job's loop injects the faults."""

    def __init__(self, world: World, number: int) -> None:
        self.ledger = Ledger(world.schedule)
        self.injector = Injector(world)  # type: ignore[arg-type]
        self.finished = False
        self.problems: list[str] = []
        self._world, self._schedule = world, world.schedule
        self._topology = world.schedule.topology
        self._job = f"job-{number}" if number else ""
        self._pending = [] if number else sorted(world.schedule.faults, key=lambda f: f.step)
        self._taken = 0
        self._checkpoint: Checkpoint | None = None
        self._retries = world.delivery.retries
        self._older: Trainers | None = None  # that these replaced while they ran
        self._older_reads = False
        self.trainers = Trainers(world, self._job)

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
            self.trainers.each(lambda consumer: consumer.close())
            self.trainers.each(lambda consumer: consumer.forget())
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
        positions = self._restored()
        self.trainers.each(lambda c: c.connect(positions[c.index] if positions else None))
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
                elif fault.kind == "crash_trainer":
                    if self._world.delivery.case == "resplit":
                        self._world.change_splits()
                    raise TrainerDied(fault)
                else:
                    self._rewind()
            self._save(ended=True)

    def _begin(self) -> None:
        self.trainers.each(lambda consumer: consumer.begin())
        self.ledger.begin_epoch()

    def _has_next_epoch(self) -> bool:
        saved = self._checkpoint
        ended = 0 if saved is None or not saved.ended else saved.epoch + 1
        return ended < self._topology.epochs

    def _step_or_retry(self) -> bool:
        """Take one step. If a trainer that is alone gets a retryable error, it iterates again."""
        try:
            return self._step()
        except RetryableError:
            if len(self.trainers) > 1:
                raise  # the trainers do not stand at the same step: restore the checkpoint
            self._use_retry()
            self._begin()
            return False

    def _use_retry(self) -> None:
        """Count a retryable error, or raise it if there were too many."""
        if not self._retries:
            raise  # noqa: PLE0704  called while the error is handled
        self._retries -= 1

    def _step(self) -> bool:
        """Take one step on all trainers; return whether the epoch has ended."""
        units: list[list[Rows] | None] = self.trainers.each(lambda consumer: consumer.step())
        ends = [each is None for each in units]
        if all(ends):
            self.ledger.end_epoch(len(units))
            return True
        if any(ends) and not self._topology.whole:
            raise UnevenSteps(
                f"epoch {self.ledger.epoch} step {self.ledger.steps}: ends of the trainers {ends}"
            )
        self.ledger.commit(units)
        self._taken += 1
        ended = any(ends) if self._restores_only_itself else ends[0]
        if not ended and self.ledger.steps % self._schedule.save_every == 0:
            self._save(ended=False)
        if self._schedule.step_ms:
            SimTime.sleep(self._schedule.step_ms / 1000)
        return False

    def _save(self, ended: bool) -> None:
        positions = self.trainers.each(lambda consumer: consumer.position())
        steps = self.ledger.steps
        self._checkpoint = Checkpoint(tuple(positions), self.ledger.epoch, steps, ended)

    def _due(self) -> Fault | None:
        """Inject the faults that are due; return the next one that is the loop's own."""
        while self._pending and self._pending[0].step <= self._taken:
            fault = self._pending.pop(0)
            if fault.kind in {"crash_trainer", "rewind_trainer"}:
                return fault
            self.injector.inject(fault)
        return None

    def _restart(self, fault: Fault | None) -> None:
        """Start the trainers again, as many as before or as the fault says."""
        count = len(self.trainers)
        self.trainers.kill()
        after = (fault.consumers if fault is not None else 0) or count
        world = self._world
        if fault is not None and (after != count or fault.sidecars != "stay"):
            if fault.sidecars != "linger":
                for part in world.sidecars:
                    part.kill()
            world.start_sidecars(after)
        saved = self._checkpoint
        if saved is None:
            self.ledger.restore(0, 0, False)
        else:
            self.ledger.restore(saved.epoch, saved.steps, saved.ended)
        self.trainers = Trainers(world, self._job)

    def _replace(self) -> None:
        """Start other trainers and sidecars with the same indices, while the first ones live."""
        self._older = self.trainers
        self._world.start_sidecars(len(self.trainers))
        self.trainers = Trainers(self._world, self._job)
        positions = self._restored()
        assert positions is not None
        assert self._checkpoint is not None
        self.trainers.each(lambda consumer: consumer.connect(positions[consumer.index]))
        self.ledger.restore(self._checkpoint.epoch, self._checkpoint.steps, False)
        self._begin()
        self._older_reads = True
        self._world.driver.spawn(self._read_on, "older")

    def _read_on(self) -> None:
        """Read with the trainers that were replaced. They must be fenced before the end."""
        assert self._older is not None
        try:
            while self._older.each(lambda consumer: consumer.step())[0] is not None:
                SimTime.sleep(0.05)
            self.problems.append("the older of two holders of an index read to the end")
        except FencedError:
            pass
        except Exception as error:  # noqa: BLE001  every other error is wrong
            self.problems.append(f"the older holder of an index got {error!r}")
        self._older_reads = False

    def _rewind(self) -> None:
        """Restore the last checkpoint in the same processes."""
        saved, positions = self._checkpoint, self._restored()
        assert saved is not None
        assert positions is not None
        self.trainers.each(lambda consumer: consumer.rewind(positions[consumer.index]))
        self.ledger.restore(saved.epoch, saved.steps, saved.ended)
        if self._world.delivery.case == "restored" and not saved.ended:
            return  # the running iterator continues there
        self._begin()

    def _restored(self) -> Sequence[bytes] | None:
        """Return the positions to restore: one for all, unless each trainer has its own order."""
        saved = self._checkpoint
        if saved is None:
            return None
        if self._restores_only_itself and len(saved.positions) > 1:
            return saved.positions
        saver = 0 if self._topology.whole else self._schedule.saver
        return [saved.positions[saver % len(saved.positions)]] * len(self.trainers)

    @property
    def _restores_only_itself(self) -> bool:
        """Whether a trainer's position restores that trainer alone."""
        return self._topology.parallel
