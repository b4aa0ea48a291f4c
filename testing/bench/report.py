"""The report of the measurements as JSON and Markdown."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

from testing.bench.case import DATA_PLANES, LOCAL, REPO, SERVICE, Case

MIB = 1 << 20
Measurement = Mapping[str, Any]
"""The measurements of one trainer."""

METHOD = """\
Every number is the median of the rounds, with the lowest and highest in parentheses. In a round the
systems run one after another, and the order changes from round to round. All processes of a
measurement are new, and no others run. The trainer iterates over an endless dataset and reads one
byte of every 4 KiB. TensorFlow is imported before the start.

- *first batch*: time from the creation of the dataset, or `connect()`, to the first batch.
- *first*: rows/s of the first seconds after the first batch.
- All other values are of the *steady state*, which follows.
- *CPU*: seconds of user and system time, per GB (1e9 bytes) or per 1,000 rows. The trainer's host
  has the trainer and, with DistributedInput, its sidecar.
- *switches*: context switches of all processes for each batch, without those of threads that ended.
- *rate / service*, *rate / in process*: the rate divided by that of tf.data service without
  compression, and of tf.data in the trainer, in the same round. Above 1 is faster.
- *CPU / service*: the same for CPU per byte or row. Below 1 is less.
- *peak*: maximum resident memory during the measurement, with shared memory and TensorFlow's code.
- *worker*: the mean of all workers, with their child processes.
- *sidecar*: its resident memory without the shared memory that the trainer also maps.
"""
TWO_HOSTS = """\
Trainer and sidecar are on one host, dispatcher and workers on another. Each host is a network
namespace with half of the cores. "Shared memory" runs all on one host, with the same cores for each
process. tf.data in the trainer has the cores of the trainer's host only. tf.data service does not
encrypt. DistributedInput does by default."""
ONE_HOST = """\
All processes are on one host and share its cores. The workers' address is not a loopback address,
except for "shared memory"."""


def machine() -> dict[str, Any]:
    """Return a description of this machine and its load."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    names = ("tensorflow", "tensorflow-cpu", "grpcio", "numpy", "protobuf")
    installed = {one.metadata["Name"]: one.version for one in distributions()}
    describe = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(describe, cwd=REPO, capture_output=True, text=True)
    return {
        "cpu": models[0] if models else "",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in names if name in installed},
        "load_before": os.getloadavg()[0],
        "commit": commit.stdout.strip() or "unknown",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def write(folder: Path, results: dict[str, Any]) -> None:
    """Write results.json and results.md. May be called again with more cases."""
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    (folder / "results.md").write_text(markdown(results))


def markdown(results: Mapping[str, Any]) -> str:
    """Return the report as Markdown."""
    host, settings = results["machine"], results["settings"]
    packages = ", ".join(f"{name} {v}" for name, v in host["packages"].items())
    lines = [
        "# Results",
        "",
        f"{host['cpu']}, {host['cores']} cores, {host['memory_gib']} GiB; Linux {host['kernel']}, "
        f"Python {host['python']}, {packages}. "
        f"Commit {host['commit']}, {host['date']}. {settings['rounds']} rounds: the first "
        f"{settings['first_seconds']:g} s, then {settings['seconds']:g} s of steady state; "
        f"load before the start: {host['load_before']:.2f}.",
        "",
        ONE_HOST if settings["one_host"] else TWO_HOSTS,
    ]
    if settings["rounds"] < 3:
        lines += ["", "**Fewer than three rounds: this only shows that the benchmark runs.**"]
    lines += ["", METHOD, *_summary(results["cases"]), ""]
    for case in results["cases"]:
        lines += [*_tables(case), ""]
    return "\n".join(lines)


Column = Callable[[Measurement], float | None]


def _summary(results: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a table of the ratios of DistributedInput to its alternatives."""
    lines = ["## Ratios", ""]
    for result in results:
        case, rounds = result["case"], result["rounds"]
        pairs = _pairs(case["unit"])
        if not lines[-1]:
            lines += _head(["case", "system", *(name for name, *_ in pairs)])
        for system in case["systems"]:
            if system in DATA_PLANES:
                found = [spread(ratios(rounds, system, other, one)) for _, other, one in pairs]
                lines.append(_row([Case(**case).title, system, *found]))
    return lines


def _pairs(unit: str) -> list[tuple[str, str, Column]]:
    """Return the ratios of the summary: name, the other system, and the value of both."""
    return [
        ("first: rate / service", SERVICE, first_rows_per_second),
        ("rate / service", SERVICE, rows_per_second),
        ("trainer's host: CPU / service", SERVICE, lambda found: host_cpu(found, unit)),
        ("all: CPU / service", SERVICE, lambda found: cpu(found, unit)),
        ("switches / service", SERVICE, switches_per_batch),
        ("first: rate / in process", LOCAL, first_rows_per_second),
        ("rate / in process", LOCAL, rows_per_second),
    ]


def _tables(result: Mapping[str, Any]) -> list[str]:
    """Return the values of a case in two tables: speed and CPU, and memory and threads."""
    case = result["case"]
    unit = case["unit"]
    per = "GB" if unit == "GB" else "1,000 rows"

    def of(role: str) -> Column:
        return lambda found: cpu(found, unit, role)

    speed: dict[str, Column] = {
        "first batch, s": lambda found: found["start"]["first_batch"],
        "first, rows/s": first_rows_per_second,
        "rows/s": rows_per_second,
        **({"GB/s": gigabytes_per_second} if unit == "GB" else {}),
        f"CPU s/{per}: trainer's host": lambda found: host_cpu(found, unit),
        "all": lambda found: cpu(found, unit),
        "trainer": of("trainer"),
        "sidecar": of("sidecar"),
        "workers": of("worker"),
        "dispatcher": of("dispatcher"),
        "switches/batch": switches_per_batch,
    }
    sizes: dict[str, Column] = {
        "MiB: trainer peak": lambda found: _memory(found, "trainer", "peak"),
        "sidecar without slots": lambda found: _memory(found, "sidecar", "beyond_slots"),
        "worker peak": lambda found: _memory(found, "worker", "peak", case["workers"] * MIB),
        "threads: sidecar": lambda found: _memory(found, "sidecar", "threads", 1),
        "workers": lambda found: _memory(found, "worker", "threads", 1),
    }
    lines = [f"## {Case(**case).title}", ""]
    for columns in (speed, sizes):
        lines += _head(["system", *columns])
        for system in case["systems"]:
            found = [one[system] for one in result["rounds"]]
            cells = [spread([column(one) for one in found]) for column in columns.values()]
            lines.append(_row([system, *cells]))
        lines.append("")
    return lines


def _head(names: Sequence[str]) -> list[str]:
    return [_row(names), "|---" * len(names) + "|"]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def gigabytes_per_second(found: Measurement) -> float:
    """Return the throughput in 1e9 bytes per second."""
    return float(found["bytes"]) / 1e9 / float(found["seconds"])


def rows_per_second(found: Measurement) -> float:
    """Return the throughput in rows per second."""
    return float(found["rows"]) / float(found["seconds"])


def first_rows_per_second(found: Measurement) -> float:
    """Return the rows per second of the first seconds after the first batch."""
    return float(found["start"]["rows"]) / float(found["start"]["seconds"])


def switches_per_batch(found: Measurement) -> float:
    """Return the context switches of all processes for each batch."""
    return float(sum(found["switches"].values())) / float(found["batches"])


def host_cpu(found: Measurement, unit: str) -> float:
    """Return CPU seconds of the trainer's host per unit."""
    return sum(cpu(found, unit, role) or 0.0 for role in ("trainer", "sidecar"))


def cpu(found: Measurement, unit: str, role: str = "") -> float | None:
    """Return CPU seconds of a role, or of all, per unit; None if there is no such role."""
    amount = found["bytes"] / 1e9 if unit == "GB" else found["rows"] / 1e3
    if role:
        return found["cpu"][role] / amount if role in found["cpu"] else None
    return float(sum(found["cpu"].values())) / amount


def ratios(
    rounds: Sequence[Mapping[str, Measurement]], system: str, other: str, column: Column
) -> list[float | None]:
    """Return, for each round, `column` of a system divided by that of another one, or None."""
    found: list[float | None] = []
    for one in rounds:
        ours, theirs = (column(one[name]) if name in one else None for name in (system, other))
        found.append(ours / theirs if ours is not None and theirs else None)
    return found


def spread(values: Sequence[float | None]) -> str:
    """Return the median (lowest to highest), one value alone, or a dash if there are no values."""
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return _short(known[0]) if known else "-"
    return f"{_short(median(known))} ({_short(min(known))} to {_short(max(known))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _memory(found: Measurement, role: str, name: str, unit: float = MIB) -> float | None:
    memory = found["memory"].get(role)
    return memory[name] / unit if memory else None
