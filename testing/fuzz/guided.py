"""Fuzzing with feedback: an input that reaches new code is changed further.

It runs the parsers of `testing.fuzz.targets` with atheris (libFuzzer). The limits of CPU time are
those of `testing.fuzz`. Unlike there, the inputs depend on the code that earlier inputs reach, so
the input of a finding is kept as a file.

    make fuzz-guided N=1000000 SEED=0
    python -m testing.fuzz.guided --only rows/blocks --file build/fuzz/rows-blocks-4711

atheris is not in the lock file: it has no package for some versions of Python that the project
supports. `make fuzz-guided` installs it for this command alone.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import io
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.fuzz import run
from testing.fuzz.mutate import generated
from testing.fuzz.run import Outcome, Send
from testing.fuzz.target import Subject, Target

KEPT = Path("build/fuzz")
"""Folder for the inputs of findings."""
CODE = ["distributed_input", "distributed_input_operator"]
"""Packages whose branches guide the changes."""
MEMORY_BYTES = 256 << 20
"""Maximum growth of a process, with what atheris keeps."""
_LONGEST = 1 << 16  # bytes of an input
_LONGEST_SECONDS = 300  # of libFuzzer: the limits of `testing.fuzz.run` are lower
_OWN_CHANGES = 0.3  # share of the changes that `testing.fuzz.mutate` makes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the targets, print a table and findings, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m testing.fuzz.guided", description=__doc__)
    parser.add_argument("--n", type=int, default=100_000, help="inputs of all targets together")
    parser.add_argument("--seed", type=int, default=0, help="default: 0")
    parser.add_argument("--only", metavar="NAME", default="", help="targets whose names begin so")
    parser.add_argument("--file", type=Path, help="parse this input in this process")
    args = parser.parse_args(arguments)
    import atheris

    listed = contextlib.redirect_stderr(io.StringIO())  # it prints the name of each module
    with listed, atheris.instrument_imports(include=CODE):
        from testing.fuzz.__main__ import repeat, run_all
        from testing.fuzz.targets import TARGETS

    targets = [one for one in TARGETS if one.name.startswith(args.only) and not one.known]
    if not targets:
        parser.error(f"--only {args.only}: no such target")
    if args.file is None:
        return run_all(targets, args.n, args.seed, run_guided, place)
    repeat(targets[0].build(), args.file.read_bytes())
    return 0


def place(target: Target, _seed: int, index: int) -> str:
    """Return the flags that run the input of a finding again."""
    kept = _kept(target, index)
    return f"--only {target.name} --file {kept if kept.exists() else _kept(target, 'crash')}"


def _kept(target: Target, which: object) -> Path:
    return KEPT / f"{target.name.replace('/', '-')}-{which}"


def run_guided(target: Target, count: int, seed: int) -> Outcome:
    """Run inputs of a target in a new process."""
    KEPT.mkdir(parents=True, exist_ok=True)
    for old in KEPT.glob(f"{target.name.replace('/', '-')}-*"):
        old.unlink()
    return run.run(target, count, seed, _measure)


def _measure(target: Target, count: int, seed: int, index: Any, send: Send) -> None:
    """Run inputs of a target. libFuzzer then ends the process."""
    import atheris

    with atheris.instrument_imports(include=CODE):
        subject = target.build()
    corpus = Path(tempfile.mkdtemp())
    for number, data in enumerate(subject.seeds):
        subject.parse(data)  # a valid input: no error
        (corpus / str(number)).write_bytes(data)
    run.limit_address_space()
    ours = _Inputs(target, subject, count, index, send)
    settings = [
        f"-seed={seed + 1}", f"-runs={count}", f"-max_len={_LONGEST}", "-rss_limit_mb=0",
        f"-exact_artifact_path={_kept(target, 'crash').absolute()}", f"-timeout={_LONGEST_SECONDS}",
    ]  # fmt: skip
    atheris.Setup([target.name, *settings, str(corpus)], ours.parse, custom_mutator=ours.change)
    atheris.Fuzz()


class _Inputs:
    """The inputs of one target in this process."""

    def __init__(
        self, target: Target, subject: Subject, count: int, index: Any, send: Send
    ) -> None:
        self._target, self._subject, self._count, self._send = target, subject, count, send
        self._inputs = run.Inputs(subject, index, MEMORY_BYTES)

    def parse(self, data: bytes) -> None:
        """Run one input. After the last one, send the outcome."""
        outcome = self._inputs.outcome
        if outcome.inputs == self._count:
            return  # the outcome is sent: libFuzzer runs one or two more
        if (finding := self._inputs.run(data)) is not None:
            _kept(self._target, finding.index).write_bytes(data)
        if outcome.inputs == self._count:
            self._send(self._inputs.finish())

    def change(self, data: bytes, longest: int, seed: int) -> bytes:
        """Return a changed copy of an input."""
        import atheris

        rng = random.Random(seed)
        if rng.random() >= _OWN_CHANGES:
            return bytes(atheris.Mutate(data, longest))
        seeds = self._subject.seeds
        own = dataclasses.replace(self._subject, seeds=[*[data] * len(seeds), *seeds])
        return generated(own, rng)[:longest]


if __name__ == "__main__":
    sys.exit(main())
