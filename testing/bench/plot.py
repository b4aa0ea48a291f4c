"""A picture of the results: one column per workload, throughput above and CPU below.

Run `python -m testing.bench.plot RESULTS.json PICTURE.svg` in an environment with matplotlib.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from testing.bench.case import (
    LOCAL,
    OURS,
    OURS_GRPC,
    OURS_GRPC_TLS,
    OURS_TCP,
    OURS_TLS,
    SERVICE,
    SERVICE_AUTO,
)

COLOURS = {
    LOCAL: "#9aa0a6",
    SERVICE_AUTO: "#e8a87c",
    SERVICE: "#d1495b",
    OURS: "#1f6feb",
    OURS_GRPC: "#8ab4f8",
    OURS_GRPC_TLS: "#7a4fb5",
    OURS_TCP: "#2b9f5c",
    OURS_TLS: "#b5862b",
}
Result = Mapping[str, Any]
Value = Callable[[Mapping[str, Any]], float]


def write(path: Path, results: Sequence[Result]) -> None:
    """Draw all results: medians, with a line from the lowest to the highest round."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    columns: dict[str, list[Result]] = {}
    for result in results:
        columns.setdefault(f"{result['case']['family']}: {result['case']['name']}", []).append(
            result
        )
    figure, grid = pyplot.subplots(
        2, len(columns), figsize=(1.5 + 3.2 * len(columns), 6.5), squeeze=False
    )
    for (title, some), (above, below) in zip(columns.items(), grid.T, strict=True):
        _column(title, some, above, below)
    handles = dict(
        pair
        for axes in grid[0]
        for pair in zip(*reversed(axes.get_legend_handles_labels()), strict=True)
    )
    figure.legend(handles.values(), handles, loc="upper center", ncols=len(handles), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 0.94))
    figure.savefig(path)
    pyplot.close(figure)


def _column(title: str, results: Sequence[Result], above: Any, below: Any) -> None:
    """Draw one workload over its numbers of workers."""
    if results[0]["case"]["unit"] == "GB":
        unit, rate, size, draw = "GB", "GB/s", lambda found: found["bytes"] / 1e9, _bars
    else:
        unit, rate, size, draw = "1,000 rows", "rows/s", lambda found: found["rows"] / 1e3, _lines
    scale = 1 if unit == "GB" else 1000
    draw(above, results, lambda found: scale * size(found) / found["seconds"])
    draw(below, results, lambda found: found["cpu"]["trainer"] / size(found))
    above.set_title(title, fontsize=10)
    above.set_ylabel(rate)
    below.set_ylabel(f"trainer CPU s / {unit}")
    below.set_xlabel("workers")
    for axes in (above, below):
        axes.margins(y=0.1)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)


def _bars(axes: Any, results: Sequence[Result], value: Value) -> None:
    width = 0.2
    for group, result in enumerate(results):
        systems = result["case"]["systems"]
        for i, system in enumerate(systems):
            middle, error = _spread([value(one[system]) for one in result["rounds"]])
            x = group + (i - (len(systems) - 1) / 2) * width
            axes.bar(x, middle, width, yerr=error, color=COLOURS[system], label=system)
    axes.set_xticks(range(len(results)), [result["case"]["workers"] for result in results])


def _lines(axes: Any, results: Sequence[Result], value: Value) -> None:
    for system, colour in COLOURS.items():
        measured = [result for result in results if system in result["case"]["systems"]]
        points = [_spread([value(one[system]) for one in result["rounds"]]) for result in measured]
        if points:
            errors = [[error[side][0] for _, error in points] for side in (0, 1)]
            workers = [result["case"]["workers"] for result in measured]
            middles = [middle for middle, _ in points]
            axes.errorbar(workers, middles, errors, fmt="o-", color=colour, label=system)
    axes.set_xticks([result["case"]["workers"] for result in results])


def _spread(values: Sequence[float]) -> tuple[float, list[list[float]]]:
    """Return the median and its distances to the minimum and maximum, as matplotlib expects."""
    middle = median(values)
    return middle, [[middle - min(values)], [max(values) - middle]]


if __name__ == "__main__":
    write(Path(sys.argv[2]), json.loads(Path(sys.argv[1]).read_text())["cases"])
