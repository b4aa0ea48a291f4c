"""Whether to restart a process that ended: pure, with `now` as an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace

from distributed_input.runtime.args import EXIT_CONFIG


@dataclass(frozen=True)
class RestartPolicy:
    """Delays and limits of restarts. Times in seconds."""

    first_delay: float = 0.25
    max_delay: float = 8.0
    max_crashes: int = 5
    """Number of crashes within `window` before the runner gives up."""
    window: float = 60.0
    max_unready: int = 3
    """Number of consecutive starts that end before the process is ready."""


@dataclass(frozen=True)
class CrashHistory:
    """The crashes of one process."""

    crashes: tuple[float, ...] = ()
    """Times of the crashes within the window, oldest first."""
    unready: int = 0
    """Consecutive starts that ended before the process was ready."""
    ever_ready: bool = False


def after_exit(
    history: CrashHistory, now: float, status: int, was_ready: bool, policy: RestartPolicy
) -> tuple[CrashHistory, float | str]:
    """Return the history after a process ended with `status` at `now`, and what to do: the seconds
    until its next start, or why to give up.

    The delay doubles with each crash within the window, so it is short again after a time without
    crashes. A negative status is the number of the signal that ended the process.
    """
    recent = (*(at for at in history.crashes if now - at < policy.window), now)
    ever_ready = history.ever_ready or was_ready
    history = replace(
        history,
        crashes=recent,
        unready=0 if was_ready else history.unready + 1,
        ever_ready=ever_ready,
    )
    if status == EXIT_CONFIG and not ever_ready:
        return history, "it cannot start with this configuration"
    if history.unready >= policy.max_unready:
        return history, f"it ended {history.unready} times in a row before it was ready"
    if len(recent) > policy.max_crashes:
        return history, f"it crashed {len(recent)} times within {policy.window:g} s"
    return history, min(policy.max_delay, policy.first_delay * 2.0 ** (len(recent) - 1))
