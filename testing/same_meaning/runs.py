"""Runs cases one after another, shrinks and writes those that differ, and prints the tables."""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import os
import re
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.check import DoesNotFit, Result, check, drawn
from testing.same_meaning.judgement.evidence import Difference
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.reference import Reference
from testing.same_meaning.servers import Servers
from testing.same_meaning.shrink import shrink

_OUTCOMES = ("by file", "dealt", "off", "by function", "refused")
REGRESSIONS = Path(__file__).parent / "regressions"
"""Cases that differed once, as JSON."""
ONCE = "once: "
_PROGRESS = 50
_HANG_SECONDS = 600.0
_SLOW_SECONDS = 60.0
_SMALLEST = 3
"""Failing cases of one kind that are made smaller."""


def checked(servers: Servers, case: Case, reference: Reference | None = None) -> Result:
    """Return the result of a case. An error of the tester is a difference too.

    A case that differs runs again, to know whether it always does.
    """
    first = _once(servers, case, reference)
    if not first.differences:
        return first
    second = _once(servers, case)
    again = {one.kind: one.detail for one in second.differences}
    found = [
        replace(
            one,
            kind=one.kind if one.kind in again else f"{ONCE}{one.kind}",
            detail=f"{one.detail}\n  again: {again.get(one.kind, 'no difference')}",
        )
        for one in first.differences
    ]
    return replace(first, differences=tuple(found))


def _once(servers: Servers, case: Case, reference: Reference | None = None) -> Result:
    try:
        return check(servers, case, reference)
    except DoesNotFit:
        raise
    except Exception:  # noqa: BLE001  the other cases run on
        return Result("", "", (), (Difference("crash", traceback.format_exc()[-1500:]),))


def show(servers: Servers, case: Case) -> int:
    """Run one case and print everything about it. Return 1 if it differs."""
    print(case.to_json())
    print(case.text)
    result = checked(servers, case)
    print(f"{result.outcome} {result.refusal}")
    for warning in result.warnings:
        print(f"warning: {warning}")
    for one in result.differences:
        print(f"{one.kind}: {one.detail}")
    return 1 if result.differences else 0


@contextlib.contextmanager
def _limited(seed: int, case: Case) -> Iterator[None]:
    """Print all stacks of a slow case, and end the process if it hangs."""

    def end() -> None:
        print(f"seed {seed}: hangs\n  {case.to_json()}\n  {case.text}", flush=True)
        faulthandler.dump_traceback(all_threads=True)
        os._exit(3)

    timer = threading.Timer(_HANG_SECONDS, end)
    timer.daemon = True
    timer.start()
    faulthandler.dump_traceback_later(_SLOW_SECONDS)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        timer.cancel()


class Tables:
    """Counts of outcomes."""

    def __init__(self) -> None:
        self.cases = 0
        self.kinds: Counter[str] = Counter()
        self.ops: dict[str, Counter[str]] = {}
        self.refusals: Counter[str] = Counter()
        self.silent = 0

    def add(self, case: Case, result: Result) -> None:
        self.cases += 1
        for name in set(grammar.names_of(case.pipeline)):
            self.ops.setdefault(name, Counter())[result.outcome] += 1
        if result.refusal:
            self.refusals[result.refusal] += 1
        self.kinds.update({one.kind for one in result.differences})
        if case.api == PLAIN and result.outcome == "dealt" and not result.warnings:
            self.silent += 1

    def text(self) -> str:
        lines = ["", "| Difference | Cases |", "|---|---|"]
        lines += [f"| {kind} | {count} |" for kind, count in self.kinds.most_common()]
        lines += ["", f"| Op | {' | '.join(_OUTCOMES)} |", "|---" * (len(_OUTCOMES) + 1) + "|"]
        for name, counts in sorted(self.ops.items()):
            lines.append(f"| {name} | {' | '.join(str(counts[o]) for o in _OUTCOMES)} |")
        lines += ["", "| Refused | Cases |", "|---|---|"]
        for text, count in self.refusals.most_common():
            lines.append(f"| {text} | {count} ({count / self.cases:.1%}) |")
        lines += ["", f"dealt without a warning: {self.silent}"]
        return "\n".join(lines)


def regressions(servers: Servers) -> int:
    """Run the kept cases. Return 1 if one differs."""
    failed = 0
    for path in sorted(REGRESSIONS.glob("*.json")):
        case = Case.from_json(path.read_text())
        result = checked(servers, case)
        print(f"{path.name}: {result.outcome}", flush=True)
        for one in result.differences:
            failed = 1
            print(f"{path.name}: {one.kind}: {one.detail}\n  {case.text}", flush=True)
    return failed


def many(servers: Servers, seeds: Iterable[int], options: argparse.Namespace) -> int:
    """Run the cases of these seeds and print the tables. Return 1 if one differs.

    An interrupt ends the run, and the tables have the cases so far. `options`: see `__main__`.
    """
    tables, began, cpu = Tables(), time.monotonic(), time.process_time()
    with contextlib.suppress(KeyboardInterrupt):
        for seed in seeds:
            if seed not in options.skip:
                _add(servers, seed, options, tables)
                if tables.cases % _PROGRESS == 0:
                    each = (time.process_time() - cpu) / max(1, tables.cases)
                    print(f"{tables.cases} cases, {each:.2f} s of CPU each", flush=True)
    print(tables.text())
    seconds, used = time.monotonic() - began, time.process_time() - cpu
    print(
        f"{tables.cases} cases in {seconds:.0f} s, {used:.0f} s of CPU, "
        f"{tables.kinds.total()} differences"
    )
    return 1 if tables.kinds else 0


def _add(servers: Servers, seed: int, options: argparse.Namespace, tables: Tables) -> None:
    """Run the case of a seed, and print it if it differs."""
    started = time.monotonic()
    try:
        case, reference = drawn(seed, options.faults, options.small)
        with _limited(seed, case):
            result = checked(servers, case, reference)
    except DoesNotFit:
        return
    if time.monotonic() - started > _SLOW_SECONDS:
        print(f"seed {seed}: {time.monotonic() - started:.0f} s\n  {case.text}", flush=True)
    tables.add(case, result)
    for one in result.differences:
        print(f"seed {seed}: {one.kind}: {one.detail}\n  {case.text}", flush=True)
        if tables.kinds[one.kind] <= _SMALLEST and options.shrink_seconds:
            _write(servers, seed, case, one.kind, options)


def _write(servers: Servers, seed: int, case: Case, kind: str, options: argparse.Namespace) -> None:
    """Make a case smaller, print it, and write it to a file that `python` runs."""

    def fails(candidate: Case) -> bool:
        try:
            return any(one.kind == kind for one in checked(servers, candidate).differences)
        except DoesNotFit:
            return False

    small = shrink(case, fails, options.shrink_seconds)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"same_meaning_{seed}_{re.sub('[^a-z]+', '_', kind)}.py"
    path.write_text(runnable(small, kind))
    print(f"  smaller: {small.to_json()}\n  {small.text}\n  python {path}", flush=True)


def runnable(case: Case, kind: str) -> str:
    """Return a Python program that runs a case."""
    return f'''"""{kind}. The pipeline:

{case.text}
"""

import sys

from testing.same_meaning.quiet import quiet

quiet()

from testing.same_meaning import runs  # noqa: E402
from testing.same_meaning.cases import Case  # noqa: E402
from testing.same_meaning.reference import Reference
from testing.same_meaning.servers import Servers  # noqa: E402

with Servers() as servers:
    sys.exit(runs.show(servers, Case.from_json({case.to_json()!r})))
'''
