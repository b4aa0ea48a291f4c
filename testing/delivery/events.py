"""Faults at virtual times, in addition to those of `testing.chaos` at the steps of a loop."""

from __future__ import annotations

from distributed_input.rows.store_folder import SUFFIX
from testing.delivery.loops import JobLoops
from testing.delivery.trainer import Trainer
from testing.delivery.training import Training
from testing.delivery.world import Part, WorkerPlace, World


def schedule_events(world: World, loops: JobLoops) -> None:
    """Schedule the faults that a schedule has at virtual times. Those of trainers: in one job."""
    for when, kind, target, lasts in world.delivery.chaos:
        event = _Event(world, loops, target, lasts)
        world.scheduler.after(when, getattr(event, kind))


class _Event:
    """One fault. Its methods are called in the scheduler's loop and do not block."""

    def __init__(self, world: World, loops: JobLoops, target: int, lasts: float) -> None:
        self._world, self._loops = world, loops
        self._target, self._lasts = target, lasts

    # Ends of processes.

    def crash_trainer(self) -> None:
        loop, trainer = self._trainer()
        if self._loops.may_die(loop):
            trainer.process.kill()

    def kill_dispatcher(self) -> None:
        world, part = self._world, self._world.dispatcher
        if part.alive:
            part.kill()
            world.scheduler.after(self._lasts, world.restart_dispatcher)

    def kill_worker(self) -> None:
        place = self._worker()
        if place is not None:
            place.busy = True
            place.process.kill()
            self._world.scheduler.after(self._lasts, lambda: self._world.restart_worker(place))

    def kill_sidecar(self) -> None:
        consumer, part = self._sidecar()
        if part.alive:
            part.kill()
            self._restart_sidecar(consumer, part)

    def end_sidecar(self) -> None:
        consumer, part = self._sidecar()
        if part.alive:
            part.terminating.set()
            self._restart_sidecar(consumer, part)

    def _restart_sidecar(self, consumer: int, part: Part) -> None:
        world = self._world

        def restart() -> None:
            if world.sidecars[consumer : consumer + 1] != [part]:
                return
            if part.alive:  # still ending
                world.scheduler.after(1.0, restart)
            else:
                world.restart_sidecar(consumer)

        world.scheduler.after(self._lasts, restart)

    # Pauses.

    def _pause(self, part: Part | None) -> None:
        if part is not None and part.alive:
            part.process.pause()
            self._world.scheduler.after(self._lasts, part.process.resume)

    def pause_dispatcher(self) -> None:
        self._pause(self._world.dispatcher)

    def pause_worker(self) -> None:
        place = self._worker()
        self._pause(place.process if place is not None else None)

    def pause_sidecar(self) -> None:
        self._pause(self._sidecar()[1])

    def pause_trainer(self) -> None:
        process = self._trainer()[1].process
        process.pause()
        self._world.scheduler.after(self._lasts, process.resume)

    # Partitions.

    def _partition(self, one: str, other: str) -> None:
        network = self._world.network
        network.block(one, other)
        self._world.scheduler.after(self._lasts, lambda: network.heal(one, other))

    def partition_dispatcher(self) -> None:
        sites = [self._site(part) for part in self._world.sidecars]
        sites += [self._site(place.process) for place in self._world.workers]
        self._partition("dispatcher", sites[self._target % len(sites)])

    def partition_worker(self) -> None:
        place = self._worker()
        if place is not None:
            self._partition(self._site(place.process), self._site(self._sidecar()[1]))

    # The store.

    def damage_store(self) -> None:
        """Change a byte of a stored split, cut it off there, or remove it."""
        files = sorted(self._world.store.glob(f"*{SUFFIX}"))
        if not files:
            return
        file = files[self._target % len(files)]
        data = bytearray(file.read_bytes())
        at = self._target % len(data)
        kind = self._target % 5
        if kind == 0:
            file.unlink()
            return
        data[at] ^= 1 + self._target % 255
        file.write_bytes(data[:at] if kind == 1 else data)

    def fill_disk(self) -> None:
        self._world.is_disk_full = True
        self._world.scheduler.after(self._lasts, self._free_disk)

    def _free_disk(self) -> None:
        self._world.is_disk_full = False

    # Targets.

    @staticmethod
    def _site(part: Part) -> str:
        return part.name.partition(".")[0]

    def _worker(self) -> WorkerPlace | None:
        live = self._world.live_workers()
        return live[self._target % len(live)] if live else None

    def _trainer(self) -> tuple[Training, Trainer]:
        found = [(loop, each) for loop in self._loops.all for each in loop.consumers.all]
        return found[self._target % len(found)]

    def _sidecar(self) -> tuple[int, Part]:
        consumer = self._target % len(self._world.sidecars)
        return consumer, self._world.sidecars[consumer]
