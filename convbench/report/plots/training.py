"""Training curves, from the logs that lie with the checkpoints: smoothed, what was logged faint
behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.plots.style import Look, legend_below, looks, new_figure, page, picture
from convbench.report.policies import Policy
from convbench.report.sections import Section

PANELS = (
    ("loss", {"loss": ""}),
    (
        "log-probability log π\n(nats per conversation)",
        {"log_pi_positive": "weight > 0", "log_pi_negative": "weight < 0"},
    ),
    ("log π/π₀, the bound's slack\n(nats per conversation)", {"log_ratio": ""}),
    ("accuracy of preferences", {"rewards/accuracies": ""}),
)
"""(label of the y axis, keys of the log with what they are told apart by)."""
FEW = 20
"""Points of a curve up to which it is drawn as it was logged."""
SHARE = 0.05
"""Of a longer curve's points that one of the smoothed curve is the mean of."""


def training(section: Section) -> Picture | None:
    """Return the curves of all methods of a section; None where there is no log."""
    logs = {policy.name: _log(policy) for policy in section.policies}
    logs = {name: log for name, log in logs.items() if log}
    panels = [
        panel
        for panel in PANELS
        if any(key in entry for log in logs.values() for entry in log for key in panel[1])
    ]
    if not panels:
        return None
    columns = page().across(len(panels), 3 if len(panels) == 3 else 2)
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(2.1 * rows + 0.6, panels=columns)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    styles = looks([policy.name for policy in section.policies])
    for axes, (label, keys) in zip(grid.flat, panels, strict=False):
        for name, log in logs.items():
            for place, (key, what) in enumerate(keys.items()):
                _curve(axes, log, key, styles[name], name + (f", {what}" if what else ""), place)
        axes.set_xlabel("optimiser step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlim(left=0)
        axes.set_ylabel(label)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    long = any(len(log) > FEW for log in logs.values())
    marks = f"bold: running mean of {SHARE:.0%} of the steps; faint: as logged" if long else ""
    _legends(figure, list(grid.flat), panels, marks)
    caption = f"{section.title}: training curves; losses of different learners are not comparable."
    caption += f" {marks[:1].upper()}{marks[1:]}." if marks else ""
    name = slug(f"training {section.title}")
    return picture(figure, name, caption, title=section.title)


def smoothed(values: Sequence[float]) -> list[float]:
    """Return the centred running mean over a share of the values, an odd number of them; at the
    ends over those that there are."""
    reach = round(len(values) * SHARE) // 2 or 1
    return [fmean(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))]


def _legends(figure: Any, grid: Sequence[Any], panels: Sequence[Any], marks: str) -> None:
    """Name the methods below all, and what tells two curves of one method apart inside."""
    from matplotlib.lines import Line2D

    handles, labels = grid[0].get_legend_handles_labels()
    legend_below(figure, handles, labels, marks)
    for axes, (_, keys) in zip(grid, panels, strict=False):
        said = [what for what in keys.values() if what]
        if said:
            lines = [
                Line2D([], [], color="black", marker="o", markersize=3.5,
                       markerfacecolor="black" if place == 0 else "white", label=what)
                for place, what in enumerate(said)
            ]  # fmt: skip
            axes.legend(handles=lines, loc="best")


def _log(policy: Policy) -> list[dict[str, Any]]:
    entries = policy.training.get("log")
    if not isinstance(entries, list):
        return []
    return [e for e in entries if isinstance(e, dict) and "step" in e]


def _curve(
    axes: Any, log: Sequence[dict[str, Any]], key: str, look: Look, label: str, place: int
) -> None:
    points = [(e["step"], e[key]) for e in log if isinstance(e.get(key), int | float)]
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if points:
        steps, values = [x for x, _ in points], [y for _, y in points]
        if len(points) > FEW:
            axes.plot(steps, values, color=look.color, alpha=0.2, linewidth=0.6, zorder=1.5)
            values = smoothed(values)
        axes.plot(
            steps, values, label=label, color=look.color, linestyle=look.line,
            marker=look.marker, markersize=3.5,
            markevery=max(1, len(points) // 8),
            markerfacecolor=look.color if place == 0 else "white",
        )  # fmt: skip
