"""The report of the measurements as JSON and Markdown."""

from __future__ import annotations

import json
import os
import platform
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

from testing.bench.case import OURS, Case

MIB = 1 << 20
Measurement = Mapping[str, Any]
"""The measurements of one trainer."""

METHOD = """\
Every number is the median of the rounds, with the lowest and highest in parentheses. In a round the
systems run one after another on the same cores, and the order changes from round to round. Servers
keep running between rounds. The trainer (and its sidecar) is a new process each time. A trainer
iterates over an endless dataset and reads one byte of every 4 KiB. It warms up, and then measures
for the given time.

- *ours / this*: DistributedInput divided by this system in the same round. A rate above 1 means
  that DistributedInput was faster. A CPU value below 1 means that its trainer process needed less.
- *CPU*: seconds of user and system time, by role, per GB (1e9 bytes) or per 1,000 rows.
- *peak*: maximum resident memory during the measurement, with shared memory and TensorFlow's code.
- *worker*: the mean of all workers, with their child processes.
- *sidecar*: its resident memory without the shared memory that the trainer also maps.
"""


def machine() -> dict[str, Any]:
    """Return a description of this machine and its load."""
    models = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    names = ("tensorflow", "tensorflow-cpu", "grpcio", "numpy", "protobuf")
    installed = {one.metadata["Name"]: one.version for one in distributions()}
    return {
        "cpu": models[0] if models else "",
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: installed[name] for name in names if name in installed},
        "load_before": os.getloadavg()[0],
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
        f"{settings['rounds']} rounds of {settings['seconds']:g} s each; "
        f"load before the start: {host['load_before']:.2f}.",
    ]
    if settings["rounds"] < 5:
        lines += ["", "**Fewer than five rounds: this only shows that the benchmark runs.**"]
    lines += ["", METHOD]
    for case in results["cases"]:
        lines += [*_table(case), ""]
    return "\n".join(lines)


def _table(result: Mapping[str, Any]) -> list[str]:
    case, rounds = result["case"], result["rounds"]
    per = "GB" if case["unit"] == "GB" else "1,000 rows"
    columns: dict[str, Callable[[Measurement], float | None]] = {
        **({"GB/s": gigabytes_per_second} if case["unit"] == "GB" else {}),
        "rows/s": rows_per_second,
        f"CPU s/{per}: trainer": lambda found: cpu(found, case["unit"], "trainer"),
        "sidecar": lambda found: cpu(found, case["unit"], "sidecar"),
        "workers": lambda found: cpu(found, case["unit"], "worker"),
        "dispatcher": lambda found: cpu(found, case["unit"], "dispatcher"),
        "all": lambda found: cpu(found, case["unit"]),
        "MiB: trainer peak": lambda found: _memory(found, "trainer", "peak"),
        "sidecar without slots": lambda found: _memory(found, "sidecar", "beyond_slots"),
        "worker peak": lambda found: _memory(found, "worker", "peak", case["workers"] * MIB),
        "threads: sidecar": lambda found: _memory(found, "sidecar", "threads", 1),
        "workers ": lambda found: _memory(found, "worker", "threads", 1),
    }
    trainer_cpu = columns[f"CPU s/{per}: trainer"]
    pairs = {"ours / this: rate": rows_per_second, "trainer CPU": trainer_cpu}
    heads = ["system", *columns, *pairs]
    lines = [f"### {Case(**case).title}", ""]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for system in case["systems"]:
        found = [one[system] for one in rounds]
        cells = [spread([column(one) for one in found]) for column in columns.values()]
        cells += [spread(ratios(rounds, system, pair)) for pair in pairs.values()]
        lines.append("| " + " | ".join([system, *cells]) + " |")
    return lines


def gigabytes_per_second(found: Measurement) -> float:
    """Return the throughput in 1e9 bytes per second."""
    return float(found["bytes"]) / 1e9 / float(found["seconds"])


def rows_per_second(found: Measurement) -> float:
    """Return the throughput in rows per second."""
    return float(found["rows"]) / float(found["seconds"])


def cpu(found: Measurement, unit: str, role: str = "") -> float | None:
    """Return CPU seconds of a role, or of all, per unit; None if there is no such role."""
    amount = found["bytes"] / 1e9 if unit == "GB" else found["rows"] / 1e3
    if role:
        return found["cpu"][role] / amount if role in found["cpu"] else None
    return float(sum(found["cpu"].values())) / amount


def ratios(
    rounds: Sequence[Mapping[str, Measurement]],
    system: str,
    column: Callable[[Measurement], float | None],
) -> list[float | None]:
    """Return, for each round, `column` of DistributedInput divided by that of `system`, or None."""
    found: list[float | None] = []
    for one in rounds:
        ours, theirs = (column(one[name]) if name in one else None for name in (OURS, system))
        found.append(ours / theirs if ours is not None and theirs else None)
    return found


def spread(values: Sequence[float | None]) -> str:
    """Return the median (lowest to highest), or a dash if there are no values."""
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    return f"{_short(median(known))} ({_short(min(known))} to {_short(max(known))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _memory(found: Measurement, role: str, name: str, unit: float = MIB) -> float | None:
    memory = found["memory"].get(role)
    return memory[name] / unit if memory else None
