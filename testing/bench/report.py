"""Measurements -> JSON, a Markdown table; the plot is in `plot`."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import distributions
from pathlib import Path
from statistics import median
from typing import Any

from testing import examples
from testing.bench.case import OURS, Case

MIB = 1 << 20
Found = Mapping[str, Any]
"""What one trainer measured."""

METHOD = """\
Every number is the median of the rounds, with the lowest and highest in parentheses. Within a
round the systems run one after the other on the same cores, in an order that turns from round to
round; servers stay up between rounds, the trainer (and its sidecar) is a new process each time. A
trainer iterates over an endless dataset, reads one byte of every 4 KiB that it gets, warms up, and
then measures for the given time.

- *ours / this*: DistributedInput over this system in the same round; of the rate, above 1 means
  that DistributedInput was faster; of the CPU, below 1 that its trainer process needed less.
- *CPU*: seconds of user and system time, by role, for each GB (1e9 bytes) or each 1,000 rows.
- *peak*: resident memory at most while measured, with what is shared: TensorFlow's code, the ring.
- *sidecar*: its resident memory without the ring, which it shares with the trainer.
"""


def machine() -> dict[str, Any]:
    """Where this runs, and what else is running there."""
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    names = ("tensorflow", "tensorflow-cpu", "grpcio", "numpy", "protobuf")
    there = {one.metadata["Name"]: one.version for one in distributions()}
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {name: there[name] for name in names if name in there},
        "load_before": os.getloadavg()[0],
    }


def write(folder: Path, results: dict[str, Any]) -> None:
    """Write results.json, results.md and results.svg; may be called again with more cases."""
    (folder / "results.json").write_text(json.dumps(results, indent=1))
    (folder / "results.md").write_text(markdown(results))
    draw = [examples.PYTHON, "-m", "testing.bench.plot"]
    subprocess.run([*draw, folder / "results.json", folder / "results.svg"], check=True)


def markdown(results: Mapping[str, Any]) -> str:
    """The report as text."""
    on, how = results["machine"], results["settings"]
    packages = ", ".join(f"{name} {v}" for name, v in on["packages"].items())
    lines = [
        "# Measured",
        "",
        f"{on['cpu']}, {on['cores']} cores, {on['memory_gib']} GiB; Linux {on['kernel']}, "
        f"Python {on['python']}, {packages}. {how['rounds']} rounds of {how['seconds']:g} s each; "
        f"load before the start: {on['load_before']:.2f}.",
    ]
    if how["rounds"] < 5:
        lines += ["", "**Fewer than five rounds: this shows that the benchmark runs, no more.**"]
    lines += ["", METHOD]
    for case in results["cases"]:
        lines += [*_table(case), ""]
    return "\n".join(lines)


def _table(result: Mapping[str, Any]) -> list[str]:
    case, rounds = result["case"], result["rounds"]
    per = "GB" if case["unit"] == "GB" else "1,000 rows"
    columns: dict[str, Callable[[Found], float | None]] = {
        **({"GB/s": gigabytes_a_second} if case["unit"] == "GB" else {}),
        "rows/s": rows_a_second,
        f"CPU s/{per}: trainer": lambda found: cpu(found, case["unit"], "trainer"),
        "sidecar": lambda found: cpu(found, case["unit"], "sidecar"),
        "workers": lambda found: cpu(found, case["unit"], "worker"),
        "dispatcher": lambda found: cpu(found, case["unit"], "dispatcher"),
        "all": lambda found: cpu(found, case["unit"]),
        "MiB: trainer peak": lambda found: found["memory"]["trainer"]["peak"] / MIB,
        "sidecar without ring": _sidecar_beyond_ring,
    }
    pairs = {"ours / this: rate": rows_a_second, "trainer CPU": _trainer_cpu}
    heads = ["system", *columns, *pairs]
    lines = [f"### {Case(**case).title}", ""]
    lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for system in case["systems"]:
        found = [one[system] for one in rounds]
        cells = [spread([column(one) for one in found]) for column in columns.values()]
        cells += [spread(ratios(rounds, system, pair)) for pair in pairs.values()]
        lines.append("| " + " | ".join([system, *cells]) + " |")
    return lines


def gigabytes_a_second(found: Found) -> float:
    """Throughput in 1e9 bytes a second."""
    return float(found["bytes"]) / 1e9 / float(found["seconds"])


def rows_a_second(found: Found) -> float:
    """Throughput in rows a second."""
    return float(found["rows"]) / float(found["seconds"])


def cpu(found: Found, unit: str, role: str = "") -> float | None:
    """CPU seconds of a role, or of all, for each unit of what came; None where there is no such."""
    amount = found["bytes"] / 1e9 if unit == "GB" else found["rows"] / 1e3
    if role:
        return found["cpu"][role] / amount if role in found["cpu"] else None
    return float(sum(found["cpu"].values())) / amount


def ratios(
    rounds: Sequence[Mapping[str, Found]], system: str, column: Callable[[Found], float | None]
) -> list[float | None]:
    """By round: `column` of ours over that of `system`; None where one of them is not there."""
    found: list[float | None] = []
    for one in rounds:
        ours, theirs = (column(one[name]) if name in one else None for name in (OURS, system))
        found.append(ours / theirs if ours is not None and theirs else None)
    return found


def spread(values: Sequence[float | None]) -> str:
    """Median (lowest to highest), or a dash where there is nothing to say."""
    there = [value for value in values if value is not None]
    if not there:
        return "-"
    return f"{_short(median(there))} ({_short(min(there))} to {_short(max(there))})"


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _trainer_cpu(found: Found) -> float | None:
    return cpu(found, "GB", "trainer")


def _sidecar_beyond_ring(found: Found) -> float | None:
    memory = found["memory"].get("sidecar")
    return memory["beyond_ring"] / MIB if memory else None
