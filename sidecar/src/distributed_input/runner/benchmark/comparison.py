"""What workers would change for a trainer: pure functions of measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.format import plural

_GAIN = 1.1
"""Ratio of rows per second from which workers are faster."""
_LESS_CPU = 0.8
"""Share of the CPU time from which the trainer's host is spared."""
_AS_GOOD = 0.95
"""Share of the best rate from which fewer workers are preferred."""
_SPREAD = 0.2
"""Difference of two measurements in process, as a share of the greater, from which to warn."""
_RISE = 1.2
"""Rate of the second half of a measurement, as a ratio to the first, from which to warn."""
_SHORT_SECONDS = 1.0
_BUSY = 0.5
"""Share of the CPUs that other programs may use without a warning."""


@dataclass(frozen=True)
class Measured:
    """One measurement."""

    workers: int
    """0: tf.data in the process that reads."""
    rows: int
    seconds: float
    reader_cpu: float
    """CPU seconds of the process that reads."""
    parts: Mapping[str, float]
    """CPU seconds of the parts: worker, sidecar, dispatcher. Empty: in process, or unknown."""
    epochs: int = 0
    """Number of epochs that ended."""
    early_rows: int | None = None
    """Rows of the first half of the time. None: unknown."""
    start: float = 0.0
    """Seconds from the start of the processes to the first rows."""

    @property
    def rate(self) -> float:
        """Rows per second."""
        return self.rows / self.seconds

    @property
    def rises(self) -> bool:
        """Whether the second half was faster than the first, so that the rate is not final."""
        early = self.early_rows
        return early is not None and self.rows - early > _RISE * early

    @property
    def host_cpu(self) -> float:
        """CPU seconds that the trainer's host spends on 1,000 rows, sidecar included."""
        return (self.reader_cpu + self.parts.get("sidecar", 0.0)) / self.rows * 1000

    @property
    def workers_cpu(self) -> float | None:
        """CPU seconds that workers and dispatcher spend on 1,000 rows. None: unknown."""
        spent = [self.parts[part] for part in ("worker", "dispatcher") if part in self.parts]
        return sum(spent) / self.rows * 1000 if spent else None


@dataclass(frozen=True)
class Comparison:
    """The measurements of one input: several in process, and one for each number of workers."""

    name: str
    file: str
    cpus: int
    busy: float
    """Share of the CPUs that other programs used before the first measurement, 0 to 1."""
    in_process: Sequence[Measured]
    through_workers: Sequence[Measured]
    missing: Sequence[str] = ()
    """The numbers of workers that were not measured, with the cause."""

    @property
    def base(self) -> Measured:
        """All measurements in process as one."""
        return Measured(
            workers=0,
            rows=sum(one.rows for one in self.in_process),
            seconds=sum(one.seconds for one in self.in_process),
            reader_cpu=sum(one.reader_cpu for one in self.in_process),
            parts={},
            epochs=sum(one.epochs for one in self.in_process),
            start=self.in_process[0].start,
        )

    @property
    def epoch_seconds(self) -> float | None:
        """Mean time of an epoch in process. None: none ended."""
        return self.base.seconds / self.base.epochs if self.base.epochs else None

    @property
    def is_short(self) -> bool:
        """Whether the starts of epochs are much of what was measured."""
        return self.epoch_seconds is not None and self.epoch_seconds < _SHORT_SECONDS

    @property
    def best(self) -> Measured:
        """The fewest workers that are about as fast as the fastest."""
        most = max(one.rate for one in self.through_workers)
        good = [one for one in self.through_workers if one.rate >= _AS_GOOD * most]
        return min(good, key=lambda one: one.workers)

    def ratio(self, one: Measured) -> float:
        """Return the rows per second, divided by those in process."""
        return one.rate / self.base.rate


def gain(found: Comparison) -> tuple[str, str]:
    """Return one sentence with what the user would gain, and the next step."""
    base, best = found.base, found.best
    ratio, workers = found.ratio(best), plural(best.workers, "worker")
    in_process = formatting.rate(base.rate)
    if ratio >= _GAIN:
        return (
            f"With {workers} on this machine, a trainer gets {ratio:.1f} times the rows of tf.data "
            f"in its process: up to {formatting.rate(best.rate)} instead of {in_process} rows/s.",
            f"distributed-input run {found.file} --workers {best.workers} -- python train.py",
        )
    if found.is_short:
        return (
            f"Workers bring no gain: an epoch takes {found.epoch_seconds:.1g} s in the process. "
            f"Workers need longer to begin one ({ratio:.2f} times the rows).",
            "Keep tf.data in the process, or measure with a larger dataset.",
        )
    if best.workers_cpu is not None and best.host_cpu < _LESS_CPU * base.host_cpu:
        each = formatting.rate(1000 / best.workers_cpu) if best.workers_cpu else "many"
        return (
            f"Workers on this machine bring no more rows ({ratio:.2f} times). They share its "
            f"{found.cpus} CPUs with the trainer. On other machines they would relieve the "
            f"trainer's host, which would spend {_cpu(best.host_cpu)} instead of "
            f"{_cpu(base.host_cpu)} CPU seconds on 1,000 rows.",
            "Measure how many rows/s your training step reads without waiting. Up to "
            f"{in_process}, keep tf.data in the process. Above, use workers in a cluster: one CPU "
            f"of a worker makes about {each} rows/s.",
        )
    return (
        f"Workers bring no gain: {ratio:.2f} times the rows of tf.data in the process "
        f"({in_process} rows/s), for {_cpu(best.host_cpu)} instead of {_cpu(base.host_cpu)} CPU "
        "seconds on 1,000 rows on the trainer's host.",
        "Keep tf.data in the process. Rows that cost more to decode or to read gain more.",
    )


def warnings(found: Comparison) -> list[str]:
    """Return what makes the figures less reliable."""
    rates = [one.rate for one in found.in_process]
    texts = list(found.missing)
    if min(rates) < (1 - _SPREAD) * max(rates):
        texts.append(
            f"tf.data in the process made {formatting.rate(min(rates))} to "
            f"{formatting.rate(max(rates))} rows/s: other programs use this machine, or the "
            "dataset varies. Repeat with a higher --seconds."
        )
    texts += [
        f"With {plural(one.workers, 'worker')}, the rate still rose, so it is too low: "
        "repeat with a higher --seconds."
        for one in found.through_workers
        if one.rises
    ]
    if found.busy > _BUSY:
        texts.append(
            f"Other programs used {found.busy:.0%} of the {found.cpus} CPUs before the first "
            "measurement. Workers have the lowest priority: their rates are too low."
        )
    return texts


def as_text(found: Comparison) -> str:
    """Return a table of the measurements."""
    head = ("", "rows/s", "ratio", "CPU trainer", "sidecar", "workers", "start")
    rows: list[tuple[str, ...]] = [head]
    for one in (found.base, *found.through_workers):
        parts = one.parts
        sidecar = _cpu(parts["sidecar"] / one.rows * 1000) if "sidecar" in parts else "-"
        rows.append(
            (
                plural(one.workers, "worker") if one.workers else "tf.data in process",
                formatting.rate(one.rate),
                f"{found.ratio(one):.2f}",
                _cpu(one.reader_cpu / one.rows * 1000),
                sidecar,
                "-" if one.workers_cpu is None else _cpu(one.workers_cpu),
                f"{one.start:.1f} s",
            )
        )
    return formatting.table(rows, indent="")


def as_json(found: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values. CPU times in seconds for 1,000 rows."""
    text, next_step = gain(found)
    return {
        "input": found.name,
        "cpus": found.cpus,
        "runs": [
            {
                "workers": one.workers,
                "rows": one.rows,
                "seconds": one.seconds,
                "rows_per_second": one.rate,
                "ratio": found.ratio(one),
                "trainer_cpu": one.reader_cpu / one.rows * 1000,
                "host_cpu": one.host_cpu,
                "workers_cpu": one.workers_cpu,
                "epochs": one.epochs,
                "start_seconds": one.start,
            }
            for one in (found.base, *found.through_workers)
        ],
        "text": text,
        "next": next_step,
        "warnings": warnings(found),
    }


def _cpu(seconds: float) -> str:
    return f"{seconds:.3g}"
