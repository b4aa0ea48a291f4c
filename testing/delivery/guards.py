"""The deliberate bugs that a simulation must report, and how many seeds it may need."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence

GUARDS = {
    "resume_at_row_zero": "",
    "resume_one_late": "",
    "resume_one_early": "",
    "broken_stream_ends_split": "",
    "partitions_of_next_consumer": "",
    "end_without_others": "",
    "drop_without_others": "",
    "position_one_step_late": "",
    "position_one_step_early": "",
    "slots_released_early": "",
    "slots_leak": "",
    "failing_streams_wake_each_other": "",
    "shares_any_epoch": "",
    "shares_any_split": "",
    "shares_whole_blocks": "",
    "stale_units": "",
    "position_of_previous_save": "",
    "loop_takes_steps_of_the_job": "",
    "bursts_of_any_epoch": "abandoned",
    "digest_unchecked": "flaky",
    "shares_unchecked": "flaky",
    "no_fencing": "held",
    "ignore_fencing": "held",
    "first_messages_in_any_order": "restarted",
    "closed_partitions_forget": "forgotten",
}
"""Bugs of `testing.chaos.mutants`, and the case of `cases.CASES` that shows each; "" for any."""
MOST_SEEDS = 400


def first_seeds(names: Sequence[str], jobs: int) -> Iterator[tuple[str, int | None]]:
    """Yield each bug, and the first seed that reports it or None. Each bug has a process."""
    from testing.delivery.install import install

    install()
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(_first_seed, names, chunksize=1)


def _first_seed(name: str) -> tuple[str, int | None]:
    from testing.chaos import mutants
    from testing.delivery.cases import draw
    from testing.delivery.run import collect, simulate
    from testing.delivery.world import scratch

    mutants.apply(name)
    for seed in range(MOST_SEEDS):
        with scratch() as folder:
            if not simulate(draw(seed, GUARDS[name] or None), folder).passed:
                return name, seed
        collect()
    return name, None
