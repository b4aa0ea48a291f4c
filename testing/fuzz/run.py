"""Runs a target in a process of its own, with limits of CPU time and memory."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from ctypes import c_uint64
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from testing.fuzz.mutate import generated
from testing.fuzz.target import Subject, Target

CPU_SECONDS = 3.0
"""Maximum CPU time for one input."""
MEMORY_BYTES = 64 << 20
"""Maximum growth of the process over all inputs, in addition to 8 times the largest input."""
_ADDRESS_BYTES = 1 << 30  # of address space: a larger allocation fails, touched or not
_MOST_FINDINGS = 8  # per target, each of another place in the code
_BLOCKED_SECONDS = 60.0  # of which no input ends
_NONE = 2**64 - 1


class TooSlow(BaseException):
    """An input has taken too long. Not an Exception: a parser must not catch it."""


@dataclass(frozen=True)
class Finding:
    """An input that a parser must not answer in this way.

    Attributes:
        index: number of the input.
        cause: what happened.
        place: where in the code, to report each place once.
    """

    index: int
    cause: str
    place: str = ""


@dataclass
class Outcome:
    """The result of one target.

    Attributes:
        inputs: number of inputs.
        accepted: number of inputs that the parser accepted.
        seconds: CPU time.
        longest: CPU time of the slowest input, in seconds.
        grown: growth of the process's memory, in bytes.
        largest: size of the largest input, in bytes.
        findings: at most a few, each of another place.
    """

    inputs: int = 0
    accepted: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    grown: int = 0
    largest: int = 0
    findings: list[Finding] = field(default_factory=list)


def input_of(subject: Subject, name: str, seed: int, index: int) -> bytes:
    """Return an input of a target."""
    return generated(subject, random.Random(f"{seed}/{name}/{index}"))


Send = Callable[[Outcome], object]
Measure = Callable[[Target, int, int, Any, Send], None]
"""Runs inputs of a target, the number of inputs and the seed. Its other arguments: `index.value` is
the current input, and what gets the outcome."""


def run(target: Target, count: int, seed: int, measure: Measure | None = None) -> Outcome:
    """Run inputs of a target in a new process, which may crash."""
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else None  # files are written for each input
    with tempfile.TemporaryDirectory(prefix="fuzz-", dir=memory) as scratch:
        return _run(target, count, seed, scratch, measure or _measure)


def _run(target: Target, count: int, seed: int, scratch: str, measure: Measure) -> Outcome:
    context = multiprocessing.get_context("fork")
    index = context.RawValue(c_uint64, _NONE)
    ours, theirs = context.Pipe(duplex=False)
    arguments = (target, count, seed, scratch, index, theirs, measure)
    process = context.Process(target=_child, args=arguments)
    process.start()
    theirs.close()
    try:
        at = _NONE - 1
        while not ours.poll(_BLOCKED_SECONDS):
            if index.value == at:
                process.kill()
                process.join()
                outcome = Outcome(at + 1)
                outcome.findings.append(Finding(at, "the parser is blocked"))
                return outcome
            at = index.value
        outcome = ours.recv()
    except EOFError:
        process.join()
        at = index.value
        where = "before the first input" if at == _NONE else "in the parser"
        cause = f"the process ended {where} with code {process.exitcode}"
        outcome = Outcome(0 if at == _NONE else at + 1)
        outcome.findings.append(Finding(0 if at == _NONE else at, cause))
    process.join()
    return outcome


def _child(
    target: Target, count: int, seed: int, scratch: str, index: Any, results: Any, measure: Measure
) -> None:
    tempfile.tempdir = scratch
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    output = os.open(os.devnull, os.O_WRONLY)
    os.dup2(output, 1)
    os.dup2(output, 2)
    with _limits():
        try:
            measure(target, count, seed, index, results.send)
        except Exception as error:  # noqa: BLE001 - a valid input was refused, or no input could be made
            outcome = Outcome()
            outcome.findings.append(Finding(0, f"the target is broken: {error!r}"))
            results.send(outcome)
    results.close()
    os._exit(0)  # threads of libraries may still run


@contextlib.contextmanager
def _limits() -> Iterator[None]:
    def stop(_number: int, _frame: FrameType | None) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _measure(target: Target, count: int, seed: int, index: Any, send: Send) -> None:
    send(measure(target, count, seed, index))


def measure(target: Target, count: int, seed: int, index: Any) -> Outcome:
    """Run inputs of a target in this process, and set `index.value` to the current one."""
    subject = target.build()
    for one in subject.seeds:
        subject.parse(one)  # a valid input: no error
    limit_address_space()
    inputs = Inputs(subject, index)
    for number in range(count):
        finding = inputs.run(input_of(subject, target.name, seed, number))
        is_too_large = finding is not None and finding.place == "memory"
        if is_too_large or len(inputs.outcome.findings) >= _MOST_FINDINGS:
            break
    return inputs.finish()


class Inputs:
    """Runs inputs of one target in this process, and records the outcome."""

    def __init__(self, subject: Subject, index: Any, memory_bytes: int = MEMORY_BYTES) -> None:
        self.outcome = Outcome()
        self._subject, self._index, self._memory_bytes = subject, index, memory_bytes
        self._start, self._began = _peak_bytes(), time.process_time()

    def run(self, data: bytes) -> Finding | None:
        """Run one input. Return what was found at a new place."""
        outcome, before = self.outcome, time.process_time()
        self._index.value = number = outcome.inputs
        finding = _tried(self._subject, data, number, outcome)
        outcome.longest = max(outcome.longest, time.process_time() - before)
        outcome.largest = max(outcome.largest, len(data))
        outcome.inputs += 1
        outcome.grown = _peak_bytes() - self._start
        if outcome.grown > self._memory_bytes + 8 * outcome.largest:
            text = f"the process has grown by {outcome.grown >> 20} MiB ({len(data)} bytes)"
            finding = Finding(number, text, "memory")
        if finding is None or any(one.place == finding.place for one in outcome.findings):
            return None
        outcome.findings.append(finding)
        return finding

    def finish(self) -> Outcome:
        """Return the outcome."""
        self.outcome.seconds = time.process_time() - self._began
        return self.outcome


def _tried(subject: Subject, data: bytes, number: int, outcome: Outcome) -> Finding | None:
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            subject.parse(data)
            outcome.accepted += 1
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
    except subject.errors:
        return None
    except TooSlow:
        return Finding(number, f"more than {CPU_SECONDS:g} s of CPU time", "slow")
    except BaseException as error:  # noqa: BLE001 - this is what the fuzzer looks for
        frames = traceback.extract_tb(error.__traceback__)
        inner = [one for one in frames if "distributed_input" in one.filename] or frames
        place = f"{type(error).__name__} at {Path(inner[-1].filename).name}:{inner[-1].lineno}"
        return Finding(number, f"{place}: {str(error)[:200]}", place)
    return None


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def limit_address_space() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _ADDRESS_BYTES, hard))
