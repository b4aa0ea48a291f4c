"""`distributed-input explain`: why do the trainers of an input wait, and what to do."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, output, seconds
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.diagnosis import Cause, Diagnosis, diagnose
from distributed_input.runner.display.format import plural, wrapped
from distributed_input.runner.display.stats import SourceWindow, source_windows

_SHORT_WAITS = 0.1  # seconds
_EXAMPLES = """\
examples:
  distributed-input explain                 # the runs on this machine
  distributed-input explain digits -n team  # an input in the cluster of the kubeconfig
  distributed-input explain -o json | jq '.trainers[] | {trainer, cause}'
  distributed-input explain --dispatcher train-dispatcher:7070 --token-file /var/run/token

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""


@command(_EXAMPLES)
@dispatchers.flags
@output("one JSON object for each input")
@seconds(10, "Time to watch; processes report once a second.")
def explain(selection: Selection, output: str, seconds: float) -> int:
    """Watch inputs for some seconds, then print for each trainer how much of its time it waits, the
    cause with figures, and the next step. The causes: trainer, sidecar, network, workers, dataset,
    storage, and host if a run on this machine has too few CPUs. For an input in a cluster, also
    print what the operator reports: budgets, quotas, failing pods.
    """
    with dispatchers.opened(selection, os.environ) as found:
        _, samples = next(dispatchers.intervals(found, selection.timeout, seconds))
    for one, earlier, later in samples:
        diagnoses, sources = diagnose(earlier, later), source_windows(earlier, later)
        # Each warning once, although several jobs may have it.
        warnings = list(dict.fromkeys(text for job in later.jobs for text in job.warnings))
        if output == "json":
            skipped = {"skipped_records": later.skipped_records}
            notes = {"problems": one.problems, "warnings": warnings, **skipped}
            trainers = list(map(as_json, diagnoses))
            of_jobs = {job: [each._asdict() for each in of] for job, of in sources.items()}
            print(one.json_line({"trainers": trainers, "sources": of_jobs, **notes}), end="")
        else:
            has_title = len(found) > 1 or not diagnoses[0].trainer
            lines = f"{one.title}:\n" * has_title + "".join(map(as_text, diagnoses))
            for job, of in sources.items():
                lines += wrapped("  sources: ", _sources(job, of))
            lines += "".join(wrapped("  cluster: ", problem) for problem in one.problems)
            lines += "".join(wrapped("  warning: ", text) for text in warnings)
            if later.skipped_records:
                lines += wrapped("  skipped: ", _skipped(later.skipped_records))
            print(lines, end="")
    return 0


def _sources(job: str, sources: Sequence[SourceWindow]) -> str:
    """Return the shares of the sources of a mixture, and for which ones its steps waited."""
    rows = sum(one.rows for one in sources)
    if not rows:
        return f"{job} read no rows."
    shares = ", ".join(f"{one.rows / rows:.0%} {one.source}" for one in sources)
    waits = sum(one.wait_seconds for one in sources)
    text = f"The rows that {job} read were {shares}."
    if waits < _SHORT_WAITS:
        return text
    slow = sorted(sources, key=lambda one: -one.wait_seconds)
    parts = (f"{one.wait_seconds / waits:.0%} {one.source}" for one in slow if one.wait_seconds)
    return f"{text} Its steps waited {waits:.1f} s for rows: {', '.join(parts)}."


def _skipped(count: int) -> str:
    return (
        f"{plural(count, 'record')} (spec.badRecords): `distributed-input rows --skipped` lists "
        "them."
    )


def as_text(one: Diagnosis) -> str:
    """Return a diagnosis as some lines."""
    facts = []
    if one.waits is not None:
        facts.append(f"waits for input {one.waits:.0%} of the time")
    if one.rows_per_second is not None:
        facts.append(f"reads {formatting.rate(one.rows_per_second)} rows/s")
    head = ": ".join(part for part in (one.trainer, ", ".join(facts)) if part)
    cause = "" if one.cause is Cause.NONE else f"{one.cause.value}. "
    lines = wrapped("  cause: ", f"{cause}{one.text}") + wrapped("  next:  ", one.next_step)
    return f"{head}\n" * bool(head) + lines


def as_json(one: Diagnosis) -> dict[str, Any]:
    """Return a diagnosis as JSON values. `waits` is a share from 0 to 1."""
    return {
        "trainer": one.trainer or None,
        "cause": one.cause.value,
        "waits": one.waits,
        "rows_per_second": one.rows_per_second,
        "text": one.text,
        "next": one.next_step,
    }
