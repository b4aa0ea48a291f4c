"""Draw outcomes as SVG charts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from testing.simulator.results import Outcome

COLOURS = {
    "DistributedInput": "#1f6feb",
    "HPA, CPU at 80 %": "#d1495b",
    "HPA, CPU at 50 %": "#e8a87c",
    "tf.data service formula": "#8d6a9f",
    "static, at the mean": "#9aa0a6",
    "static, at the peak": "#5f6368",
    "oracle": "#2e7d32",
}
_SHOWN = ("oracle", "HPA, CPU at 80 %", "tf.data service formula", "DistributedInput")


def over_time(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Draw ready workers (above) and stall (below) of the first input of one trace."""
    from matplotlib import pyplot

    name = outcomes[0].trace.jobs[0].name
    figure, axes = pyplot.subplots(
        2, 1, figsize=(9, 5), sharex=True, gridspec_kw={"height_ratios": [3, 1.4]}
    )
    for one in outcomes:
        if one.label not in _SHOWN:
            continue
        minutes = [time / 60 for time, _, _ in one.history]
        style: dict[str, Any] = {"color": COLOURS[one.label], "label": one.label, "lw": 1.3}
        if one.label == "oracle":
            style |= {"lw": 4, "alpha": 0.35}
        axes[0].plot(minutes, [serving[name] for _, serving, _ in one.history], **style)
        stall = _smooth([100 * stall[name] for _, _, stall in one.history])
        axes[1].plot(minutes, stall, **style)
    axes[0].set_ylabel("workers that serve")
    axes[0].set_ylim(bottom=0)
    axes[1].set_ylabel("stall, %, over 30 s")
    axes[1].set_xlabel("minutes")
    axes[0].legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    _save(figure, path)


def shares(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Draw how teams shared a budget over time, by policy, every 30 s."""
    from matplotlib import pyplot

    shown = [one for one in outcomes if one.label in ("DistributedInput", "HPA, CPU at 80 %")]
    shown += [one for one in outcomes if one.label == "oracle"]
    figure, axes = pyplot.subplots(len(shown), 1, figsize=(9, 6), sharex=True, sharey=True)
    teams = {"vision": "64 accelerators a job", "speech": "16", "notebooks": "1"}
    for one, axis in zip(shown, axes, strict=True):
        minutes = [time / 60 for time, _, _ in one.history[::6]]
        layers = [
            [
                sum(n for name, n in serving.items() if name.startswith(team))
                for _, serving, _ in one.history[::6]
            ]
            for team in teams
        ]
        labels = [f"{team}: {text}" for team, text in teams.items()]
        axis.stackplot(minutes, layers, labels=labels, colors=["#1f6feb", "#58a6ff", "#c9d1d9"])
        for limit in one.trace.limits.values():
            axis.axhline(limit, color="#d1495b", lw=1, ls="--")
        lost = one.stall_seconds / 3600
        axis.set_title(
            f"{one.label}: {lost:.0f} accelerator-hours of stall", fontsize=10, loc="left"
        )
        axis.set_ylabel("workers")
    axes[0].legend(frameon=False, ncols=3, fontsize=8, loc="upper left")
    axes[-1].set_xlabel("minutes")
    _save(figure, path)


def costs(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Draw the cost of each policy on each trace, as a multiple of the oracle's."""
    from matplotlib import pyplot

    traces = list(dict.fromkeys(one.trace.name for one in outcomes))
    labels = [label for label in COLOURS if label != "oracle"]
    figure, axes = pyplot.subplots(1, len(traces), figsize=(11, 3.6))
    for trace, axis in zip(traces, axes, strict=True):
        found = {one.label: one for one in outcomes if one.trace.name == trace}
        best = found["oracle"].cost
        values = [found[label].cost / best for label in labels]
        bars = axis.barh(labels, values, color=[COLOURS[label] for label in labels])
        axis.bar_label(bars, fmt="%.2f", fontsize=8, padding=2)
        axis.axvline(1, color=COLOURS["oracle"], lw=1)
        axis.set_xlim(0, 1.25 * max(values))
        axis.set_title(trace, fontsize=10)
        axis.invert_yaxis()
        axis.tick_params(labelsize=8)
        if axis is not axes[0]:
            axis.set_yticks([])
    figure.supxlabel("cost of stall and workers, the oracle's is 1", fontsize=9)
    _save(figure, path)


def _smooth(values: list[float], count: int = 6) -> list[float]:
    return [
        sum(part) / len(part)
        for n in range(len(values))
        if (part := values[max(0, n - count + 1) : n + 1])
    ]


def _save(figure: Any, path: Path) -> None:
    """Save a figure. The same numbers give the same bytes."""
    import matplotlib
    from matplotlib import pyplot

    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    with matplotlib.rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
