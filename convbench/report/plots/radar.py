"""A judge's metrics of every method, one small radar a method, Base behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from convbench.judge.kinds import kind_of
from convbench.report.document import Picture, slug
from convbench.report.measures import HEADS, Measure, judge_measures
from convbench.report.plots.dots import interval
from convbench.report.plots.style import GREY, Look, legend_below, looks, new_figure, page, picture
from convbench.report.policies import Policy, judge_spec
from convbench.report.published import Number, paper_key
from convbench.report.sections import Section
from convbench.stats.means import ErrorKind, Estimate

WIDE, NARROW = 3, 2
"""Charts side by side on a page, and in a column of it."""


def radar(
    section: Section,
    judge: str,
    kind: ErrorKind,
    printed: Mapping[str, Mapping[str, Number]] | None = None,
) -> Picture | None:
    """Return the radar charts, with the printed scores of a method of the same name where they are
    given; None where the judge has fewer than three metrics on the scale of its headline."""
    measures = _alike(section, judge)
    shown = [p for p in section.policies if all(m.of(p) for m in measures)]
    if len(measures) < 3 or not shown:
        return None
    columns = page().across(len(shown), WIDE, NARROW)
    rows = math.ceil(len(shown) / columns)
    figure = new_figure((2.0 if page().columns == "two" else 1.6) * rows + 0.4, panels=columns)
    found = looks([policy.name for policy in shown])
    low, top = _ends(shown, measures)
    for place, policy in enumerate(shown):
        axes: Any = figure.add_subplot(rows, columns, place + 1, projection="polar")
        if section.base in shown and policy is not section.base:
            assert section.base is not None
            _outline(axes, [m.of(section.base, kind) for m in measures])
        theirs = (printed or {}).get(policy.name, {})
        numbers = [theirs.get(paper_key(m.key)) for m in measures]
        means = [one.mean for one in numbers if one is not None]
        if len(means) == len(measures):
            angles = _angles(len(means))
            axes.plot(angles, _round(means), color="black", linestyle=":", linewidth=1.1)
        _shape(axes, [m.of(policy, kind) for m in measures], found[policy.name])
        _frame(axes, measures, (low, top), policy.name)
    outlined = section.base in shown and len(shown) > 1
    _legend(figure, outlined=outlined, printed=bool(printed), errors=kind)
    caption = (
        f"{section.title}: judge {judge}'s scores by method, {low:g} to {top:g}, with 95% "
        "intervals as bands; the dashed outline is Base."
    ) + (" The dotted outline is printed." if printed else "")
    names = "; ".join(f"{_short(m)} {m.head.removeprefix('R ')}" for m in measures)
    return picture(
        figure, slug(f"radar {section.title} {judge}"), f"{caption} {names}.",
        title=f"{section.title}, judge {judge}",
    )  # fmt: skip


def _short(measure: Measure) -> str:
    return measure.short.removeprefix("R ")


def _legend(figure: Any, *, outlined: bool, printed: bool, errors: str) -> None:
    """Say below all what line and band mean: colours are told by the names above."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines = [
        Line2D([], [], color="black", marker="o", markersize=3.5, label="mean"),
        Patch(color="black", alpha=0.25, linewidth=0, label=interval(errors)),
    ]
    if outlined:
        lines.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="Base"))
    if printed:
        lines.append(Line2D([], [], color="black", linestyle=":", linewidth=1.1, label="printed"))
    legend_below(figure, lines, [str(line.get_label()) for line in lines])


def _alike(section: Section, judge: str) -> list[Measure]:
    """Return the judge's metrics that are on the scale of its headline; the paper's alone where
    its rubric was not kept. A measure of tests or pages is no profile."""
    spec = judge_spec(section.policies, judge)
    found = judge_measures(section.policies, judge)
    if spec is None:
        wanted = {f"r_{name}" for name in HEADS}
        return [m for m in found if m.key in wanted]
    if kind_of(spec).measures != "talk":
        return []
    scale = spec.limits(spec.headline)
    return [m for m in found if m.key.startswith("r_") and m.limits == scale]


def _ends(policies: Sequence[Policy], measures: Sequence[Measure]) -> tuple[float, float]:
    """Return the ends of the scale: the judge's own."""
    best = max(e.mean for p in policies for m in measures if (e := m.of(p)) is not None)
    return measures[0].limits or (0.0, best)


def _angles(count: int) -> list[float]:
    return [2 * math.pi * i / count for i in range(count + 1)]


def _round(values: Sequence[float]) -> list[float]:
    return [*values, values[0]]


def _shape(axes: Any, found: Sequence[Estimate | None], look: Look) -> None:
    estimates = [e for e in found if e is not None]
    angles = _angles(len(estimates))
    margins = [e.margin or 0.0 for e in estimates]
    low = _round([e.mean - m for e, m in zip(estimates, margins, strict=True)])
    high = _round([e.mean + m for e, m in zip(estimates, margins, strict=True)])
    axes.fill_between(angles, low, high, color=look.color, alpha=0.25, linewidth=0)
    axes.plot(angles, _round([e.mean for e in estimates]), color=look.color, marker=look.marker,
              markersize=3.5)  # fmt: skip


def _outline(axes: Any, found: Sequence[Estimate | None]) -> None:
    means = _round([e.mean for e in found if e is not None])
    axes.plot(_angles(len(means) - 1), means, color=GREY, linestyle="--", linewidth=1)


def _side(angle: float) -> str:
    """Return how a label at this angle, clockwise from the top, lies outside the circle."""
    across = math.sin(angle)
    return "center" if abs(across) < 0.1 else "left" if across > 0 else "right"


def _frame(axes: Any, measures: Sequence[Measure], ends: tuple[float, float], title: str) -> None:
    low, top = ends
    at = [low + (top - low) * i / 5 for i in range(1, 6)]
    axes.set_theta_offset(math.pi / 2)
    axes.set_theta_direction(-1)
    axes.set_ylim(low, top)
    axes.set_yticks(at)
    axes.set_yticklabels(
        [f"{value:g}" for value in at], fontsize=6, color="#333333", ha="center", va="center",
        bbox={"boxstyle": "square,pad=0.08", "facecolor": "white", "edgecolor": "none",
              "alpha": 0.75},
    )  # fmt: skip
    axes.yaxis.grid(color="#bdbdbd", linewidth=0.6)
    axes.set_rlabel_position(180 / len(measures))  # between two spokes
    axes.set_xticks(_angles(len(measures))[:-1])
    axes.set_xticklabels([_short(m) for m in measures], fontsize=7)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment(_side(label.get_position()[0]))
    axes.tick_params(axis="x", pad=-4)
    axes.spines["polar"].set_color("#bbbbbb")
    axes.set_title(title, loc="center", pad=9)
