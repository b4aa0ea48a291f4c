"""How many workers are useful: `python -m testing.delivery.fleet`.

One trainer reads as fast as it can from many workers with several cores each. Each row needs a core
for some time. The code that assigns, computes, sends and reads is the product's. Time and cores are
simulated. Prints the share of their time in which the cores computed.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Sequence

_UNMEASURED = 0.25  # share of the rows, at the start and at the end


def measure(options: argparse.Namespace, workers: int, partitions: int, row_bytes: int) -> float:
    """Return the share of their time in which the cores compute, in the middle half of an epoch.

    At its start, the sidecar opens only some splits. At its end, only some are left.
    """
    from testing.chaos.schedule import Data, Schedule, Topology
    from testing.delivery.schedule import Delivery
    from testing.delivery.trainer import Trainers
    from testing.delivery.virtual.primitives import SimTime
    from testing.delivery.virtual.scheduler import Scheduler
    from testing.delivery.world import World, scratch

    topology = Topology(
        workers=workers, partitions=partitions, batch=options.batch, read_ahead=None, ring_steps=8
    )
    rows, sleep_ms = (options.rows,) * options.splits, 1000 * options.row_seconds
    data = Data(rows=rows, row_bytes=row_bytes, sleep_ms=sleep_ms)
    schedule = Schedule(seed=0, topology=topology, data=data, faults=(), timeout=600.0)
    cores = options.cores
    delivery = Delivery(
        0, schedule, parallelism=cores, window=1 << 22, cores=cores, share_bytes=1 << 30
    )
    times: list[tuple[int, float, float]] = []  # rows, time, busy seconds of all cores
    finished: list[bool] = []
    with scratch() as folder:
        scheduler = Scheduler(0, 0.0, 0.0, None, max_seconds=1e6)
        world = World(scheduler, delivery, folder)

        def drive() -> None:
            world.start()
            trainers = Trainers(world, "")
            trainers.connect(None)
            trainers.begin()
            count = 0
            while (units := trainers.step()[0]) is not None:
                count += sum(len(unit["id"]) for unit in units)
                times.append((count, SimTime.monotonic(), world.busy_seconds))
            finished.append(True)

        world.driver.spawn(drive, "drive")
        scheduler.run(lambda: bool(finished))
        problems = list(scheduler.problems)
        scheduler.close()
    if problems:
        raise RuntimeError("\n".join(problems))
    total = sum(rows)
    middle = [one for one in times if _UNMEASURED * total <= one[0] <= (1 - _UNMEASURED) * total]
    (_, began, before), (_, ended, after) = middle[0], middle[-1]
    return (after - before) / (ended - began) / (workers * cores)


def main(argv: Sequence[str] | None = None) -> int:
    """Measure each number of workers and print a table."""
    parser = argparse.ArgumentParser(prog="python -m testing.delivery.fleet", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--partitions", type=int, nargs="+", default=[8])
    parser.add_argument("--splits", type=int, default=2048)
    parser.add_argument("--rows", type=int, default=1000, help="of each split")
    parser.add_argument("--row-bytes", type=int, nargs="+", default=[100])
    parser.add_argument("--row-seconds", type=float, default=0.01)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args(argv)
    from testing.delivery.install import install

    install()
    gc.disable()
    print("| Workers | Cores | Partitions | Split | Busy |")
    print("|---|---|---|---|---|")
    for size in options.row_bytes:
        for partitions in options.partitions:
            for workers in options.workers:
                split = f"{size * options.rows / 1e6:.1f} MB"
                busy = measure(options, workers, partitions, size)
                cells = [workers, workers * options.cores, partitions, split]
                print(f"| {' | '.join(map(str, cells))} | {busy:.2f} |", flush=True)
                gc.collect()
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "testing.delivery.fleet", *sys.argv[1:]])
    sys.exit(main())
