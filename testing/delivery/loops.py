"""The training loops of one job: one for each of the processes that read a consumer's batches.

They do not wait for each other, except where real ones must: all are started again if the sidecars
or their number change, and none closes the input while another one may have to return.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from distributed_input.api.errors import DistributedInputError
from testing.chaos.schedule import Fault
from testing.delivery.trainer import TrainerDied
from testing.delivery.virtual.primitives import SimTime
from testing.delivery.world import World

if TYPE_CHECKING:
    from testing.delivery.training import Training

_POLL_SECONDS = 0.05


class JobLoops:
    """The loops of one job.

    Attributes:
        all: the loops, by reader.
    """

    def __init__(self, world: World) -> None:
        self.all: list[Training] = []
        self._world = world
        self._stopping = False  # all loops stop and start again
        self._fault: Fault | None = None  # that stops them
        self._stopped: list[Training] = []
        self._ended: list[Training] = []  # that have read all, and wait for the others
        self._over = False  # no reader returns any more
        delivery = world.delivery
        returns = {"crash_trainer", *(["rewind_trainer"] if len(world.sidecars) > 1 else [])}
        kinds = {fault.kind for fault in delivery.schedule.faults} | {c[1] for c in delivery.chaos}
        self._none_returns = not delivery.retries and kinds.isdisjoint(returns)

    @property
    def return_together(self) -> bool:
        """Whether all loops return to a checkpoint if one does.

        A loop takes the steps of several consumers together. One that returned alone could wait for
        room in the memory of one consumer, which another loop holds, and hold the memory of another
        consumer that this loop waits for.
        """
        return len(self.all) > 1 and len(self._world.sidecars) > 1

    def restart(self, loop: Training, fault: Fault | None) -> None:
        """Return when the trainers of a loop, which have ended, may start again.

        If the sidecars or the number of consumers change, all loops restore one checkpoint: the
        earliest one, behind which no reader may miss rows.
        """
        changes = fault is not None and self._changes_sidecars(fault)
        if not self._stopping and (changes or self.return_together):
            self._stopping, self._fault = True, fault if changes else None
            for other in self.all:
                other.consumers.kill()
        while self._stopping:
            if loop not in self._stopped:
                self._stopped.append(loop)
            if len(self._stopped) == len(self._unfinished):
                self._start_again()
            else:
                SimTime.sleep(_POLL_SECONDS)

    def _changes_sidecars(self, fault: Fault) -> bool:
        count = len(self._world.sidecars)
        return (fault.consumers or count) != count or fault.sidecars != "stay"

    def _start_again(self) -> None:
        world, fault = self._world, self._fault
        if fault is not None:
            count = fault.consumers or len(world.sidecars)
            if fault.sidecars != "linger":
                for part in world.sidecars:
                    part.kill()
            world.start_sidecars(count)
        earliest = min(self.all, key=_progress).checkpoint
        for loop in self.all:
            loop.checkpoint = earliest
        self._stopping = False
        self._stopped.clear()

    def wait_for_ends(self, loop: Training) -> None:
        """Wait at the end of the last epoch until no reader may have to return.

        Raises TrainerDied if a trainer of the loop has died meanwhile. Raises the error of one that
        could not connect to the next sidecar, because the others wait for it.
        """
        if self._none_returns or len(self.all) == 1:
            return
        self._ended.append(loop)
        try:
            while not self._over:
                loop.consumers.each(lambda consumer: consumer.check())
                if len(self._ended) == len(self._unfinished) and self._all_live():
                    self._over = True
                else:
                    SimTime.sleep(_POLL_SECONDS)
        except (TrainerDied, DistributedInputError):
            self._ended.remove(loop)
            raise

    def may_die(self, loop: Training) -> bool:
        """Return whether a trainer of a loop may die: one that returns later finds no others."""
        return not loop.finished and not self._over

    def _all_live(self) -> bool:
        return all(each.process.alive for loop in self._ended for each in loop.consumers.all)

    @property
    def _unfinished(self) -> list[Training]:
        """The loops that have not failed: those that have read all wait for the others."""
        return [loop for loop in self.all if not loop.finished]


def _progress(loop: Training) -> tuple[int, bool, int]:
    """Return what orders the checkpoints of loops."""
    saved = loop.checkpoint
    return (saved.epoch, saved.ended, saved.steps) if saved is not None else (-1, False, 0)
