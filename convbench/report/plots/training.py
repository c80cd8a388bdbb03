"""Training curves, from the logs that lie with the checkpoints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.plots.style import Look, headed, legend_below, looks, new_figure, picture
from convbench.report.policies import Policy
from convbench.report.sections import Section

PANELS = (
    ("loss", "loss", {"loss": ""}),
    (
        "log π (nats a conversation)", "mean log-probability",
        {"log_pi_positive": "weight > 0", "log_pi_negative": "weight < 0"},
    ),
    ("log π/π₀ (nats a conversation)", "looseness of the bound", {"log_ratio": ""}),
    ("accuracy of preferences", "preferences", {"rewards/accuracies": ""}),
)  # fmt: skip
"""(label of the y axis, title, keys of the log with what they are told apart by)."""


def training(section: Section) -> Picture | None:
    """Return the curves of all methods of a section; None where there is no log."""
    logs = {policy.name: _log(policy) for policy in section.policies}
    logs = {name: log for name, log in logs.items() if log}
    panels = [
        panel
        for panel in PANELS
        if any(key in entry for log in logs.values() for entry in log for key in panel[2])
    ]
    if not panels:
        return None
    figure = new_figure(3.4, width=3.4 * len(panels) + 0.2)
    grid: Any = figure.subplots(1, len(panels), squeeze=False)
    styles = looks([policy.name for policy in section.policies])
    for axes, (label, title, keys) in zip(grid[0], panels, strict=True):
        for name, log in logs.items():
            for place, (key, what) in enumerate(keys.items()):
                _curve(axes, log, key, styles[name], name + (f", {what}" if what else ""), place)
        axes.set_xlabel("optimiser step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlim(left=0)
        axes.set_ylabel(label)
        axes.set_title(title)
    _legends(figure, grid[0], panels)
    headed(figure, section.title)
    caption = f"{section.title}: training curves; losses of different learners are not comparable."
    return picture(figure, slug(f"training {section.title}"), caption)


def _legends(figure: Any, grid: Sequence[Any], panels: Sequence[Any]) -> None:
    """Name the methods below all, and what tells two curves of one method apart inside."""
    from matplotlib.lines import Line2D

    legend_below(figure, grid[0])
    for axes, (_, _, keys) in zip(grid, panels, strict=True):
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
        axes.plot(
            [x for x, _ in points], [y for _, y in points], label=label, color=look.color,
            linestyle=look.line, marker=look.marker, markersize=3.5,
            markevery=max(1, len(points) // 8),
            markerfacecolor=look.color if place == 0 else "white",
        )  # fmt: skip
