"""Accuracy with its interval, a panel a task and mode."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.measures import Measure
from convbench.report.plots.style import GREY, looks, new_figure, page, picture
from convbench.report.sections import Section
from convbench.stats.means import ErrorKind, Estimate

COLUMNS = 3


def dots(sections: Sequence[Section], measure: Measure, kind: ErrorKind | None) -> Picture | None:
    """Return a measure of all methods in all sections; None where nobody has it."""
    shown = [s for s in sections if any(measure.of(policy) for policy in s.policies)]
    if not shown:
        return None
    columns = page().across(len(shown), COLUMNS)
    rows = math.ceil(len(shown) / columns)
    most = max(len(section.policies) for section in shown)
    figure = new_figure((0.5 + 0.2 * most) * rows + 0.5, panels=columns)
    grid: Any = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for place, section in enumerate(shown):
        axes = grid[place // columns][place % columns]
        _panel(axes, section, measure, section.errors(kind))
        if len(shown) > 1:
            axes.set_title(
                f"{section.task} · {section.mode}\n{section.protocol}, n = {section.turns}"
            )
    for place in range(len(shown), rows * columns):
        grid[place // columns][place % columns].set_visible(False)
    for place in range(max(0, len(shown) - columns), len(shown)):  # the lowest of each column
        axes = grid[place // columns][place % columns]
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(f"{measure.head} ({measure.unit})")
    kinds = " or ".join(sorted({section.errors(kind) for section in shown}))
    caption = (
        f"{measure.head} by method, with 95% intervals ({kinds} errors); the dotted line is Base."
    )
    return picture(
        figure, slug(measure.head + " by task"), caption, title=measure.head,
        legend=f"bars: {interval(kinds)}; dotted line: Base",
    )  # fmt: skip


def interval(errors: str) -> str:
    """Return what an interval is, as pictures say it."""
    return f"95% intervals, {errors} errors"


def _means(section: Section, measure: Measure, kind: ErrorKind) -> dict[str, Estimate | None]:
    return {policy.name: measure.of(policy, kind) for policy in section.policies}


def _panel(axes: Any, section: Section, measure: Measure, kind: ErrorKind) -> None:
    found = _means(section, measure, kind)
    styles = looks(list(found))
    names = [name for name, e in found.items() if e is not None]
    for place, name in enumerate(names):
        estimate = found[name]
        assert estimate is not None
        low, high = clipped(estimate, measure)
        look = styles[name]
        axes.errorbar(
            estimate.mean, place, xerr=[[estimate.mean - low], [high - estimate.mean]],
            color=look.color, marker=look.marker, linestyle="none", elinewidth=1.4,
        )  # fmt: skip
    base = found.get(section.base.name) if section.base else None
    if base is not None:
        axes.axvline(base.mean, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def clipped(estimate: Estimate, measure: Measure) -> tuple[float, float]:
    """Return the interval, kept to what the measure can be; the mean alone where there is none."""
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    if measure.limits is not None:
        low = min(max(low, measure.limits[0]), estimate.mean)
        high = max(min(high, measure.limits[1]), estimate.mean)
    return low, high
