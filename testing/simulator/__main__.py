"""The command line of the simulator. See the package's docstring."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from testing.simulator import plots
from testing.simulator.baselines import Hpa, HpaHalf, Mean, Peak, TfData
from testing.simulator.oracle import Oracle, Present
from testing.simulator.policies import Ours, OursBrief, Policy
from testing.simulator.results import Outcome, run
from testing.simulator.traces import Trace, all_traces

POLICIES: tuple[type[Policy], ...] = (
    *(Ours, OursBrief, Hpa, HpaHalf, TfData, Mean, Peak),
    *(Present, Oracle),
)
DOCS = Path(__file__).parents[2] / "docs"
_BEGIN, _END = "<!-- simulator: begin -->", "<!-- simulator: end -->"


def main() -> None:
    """Simulate all policies on all traces, and write the table and the charts."""
    parser = argparse.ArgumentParser(prog="python -m testing.simulator")
    parser.add_argument(
        "--docs", type=Path, default=DOCS, help="folder of scaling.md (default: %(default)s)"
    )
    docs = parser.parse_args().docs
    outcomes = {trace.name: [run(trace, policy) for policy in POLICIES] for trace in all_traces()}
    page = docs / "scaling.md"
    text = page.read_text()
    head, rest = text.split(_BEGIN)
    tail = rest.split(_END)[1]
    page.write_text(f"{head}{_BEGIN}\n{table(list(outcomes.values()))}{_END}{tail}")
    charts = docs / "scaling"
    charts.mkdir(exist_ok=True)
    for name in ("steps", "waves"):
        plots.over_time(charts / f"{name}.svg", outcomes[name])
    plots.shares(charts / "shared.svg", outcomes["shared"])
    plots.costs(charts / "costs.svg", [one for some in outcomes.values() for one in some])
    print(f"wrote {page} and {charts}")


def table(outcomes: list[list[Outcome]]) -> str:
    """Return a Markdown table: a block for each trace, and one for all together."""
    lines = [
        "| trace | policy | stall, accelerator-s | worker-hours | cost, oracle = 1 | "
        "oscillations | settled after a step up, s | after a step down, s |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    for some in outcomes:
        best = some[-1].cost
        for place, one in enumerate(some):
            name = f"**{one.trace.name}**: {one.trace.about}" if not place else ""
            lines.append(
                f"| {name} | {one.label} | {one.stall_seconds:,.0f} | {one.worker_hours:.1f} | "
                f"{one.cost / best:.2f} | {one.oscillations} | {_times(one.settled, one.trace)} | "
                f"{_times(one.settled_down, one.trace)} |"
            )
    best = sum(some[-1].cost for some in outcomes)
    for place, each in enumerate(zip(*outcomes, strict=True)):
        lines.append(
            f"| {'**all together**' if not place else ''} | {each[0].label} | "
            f"{sum(one.stall_seconds for one in each):,.0f} | "
            f"{sum(one.worker_hours for one in each):.1f} | "
            f"{sum(one.cost for one in each) / best:.2f} | "
            f"{sum(one.oscillations for one in each)} | | |"
        )
    return "\n".join(lines) + "\n"


def _times(seconds: list[float], trace: Trace) -> str:
    """Return the median and the worst. Under a budget, the need is not the right number."""
    if not seconds or trace.limits:
        return "-"
    ordered = sorted(seconds)
    return f"{_time(ordered[len(ordered) // 2])}, {_time(ordered[-1])}"


def _time(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.0f}"


if __name__ == "__main__":
    main()
