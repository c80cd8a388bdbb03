"""Pictures of points: accuracy with intervals, judge against judge, strengths from duels, and radar
charts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from convbench.judge.kinds import kind_of
from convbench.report.document import Picture, slug
from convbench.report.judges import panel_of
from convbench.report.measures import HEADS, Measure, judge_measures
from convbench.report.pairwise import Tournament
from convbench.report.plots.style import GREY, Look, legend_below, looks, new_figure, page, picture
from convbench.report.policies import Policy, judge_spec
from convbench.report.published import Number, paper_key
from convbench.report.sections import Section
from convbench.schema.judge import OVERALL
from convbench.stats.bradley_terry import Bound, Ranking
from convbench.stats.means import ErrorKind, Estimate

COLUMNS = 3


def dots(sections: Sequence[Section], measure: Measure, kind: ErrorKind | None) -> Picture | None:
    """Return a picture of a measure's means with intervals, a panel for each section; None if no
    policy has it."""
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
        figure,
        slug(measure.head + " by task"),
        caption,
        title=measure.head,
        legend=f"bars: {interval(kinds)}; dotted line: Base",
    )


def interval(errors: str) -> str:
    """Return the legend's words for intervals with this kind of errors."""
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
            estimate.mean,
            place,
            xerr=[[estimate.mean - low], [high - estimate.mean]],
            color=look.color,
            marker=look.marker,
            linestyle="none",
            elinewidth=1.4,
        )
    base = found.get(section.base.name) if section.base else None
    if base is not None:
        axes.axvline(base.mean, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def clipped(estimate: Estimate, measure: Measure) -> tuple[float, float]:
    """Return the interval clipped to the measure's limits; (mean, mean) without an interval."""
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    if measure.limits is not None:
        low = min(max(low, measure.limits[0]), estimate.mean)
        high = max(min(high, measure.limits[1]), estimate.mean)
    return low, high


AREA = 220.0
"""Area of the largest bubble, in square points."""


def both_scored(section: Section, first: str, second: str) -> list[tuple[float, float]]:
    """Return (first judge's, second judge's) headline scores of each conversation that both scored;
    a judge without a headline gives its reward."""
    found = []
    tops = _headline(section, first), _headline(section, second)
    for policy in section.policies:
        for row in policy.rows:
            one, two = row.verdicts.get(first), row.verdicts.get(second)
            if one and two and not one.failed and not two.failed:
                a = one.scores.get(tops[0], one.reward)
                b = two.scores.get(tops[1], two.reward)
                if a is not None and b is not None:
                    found.append((a, b))
    return found


def agreement(section: Section) -> dict[tuple[str, str], str]:
    """Return a sentence on the agreement of each two judges, by (judge, judge), with the figures of
    the report's table."""
    found = panel_of(section)
    return {
        (one.first, one.second): (
            f"Spearman {one.correlation:.2f}, quadratically weighted kappa {one.kappa:.2f}."
        )
        for one in (found.agreed if found is not None else ())
        if one.correlation is not None and one.kappa is not None
    }


def judge_pairs(section: Section) -> list[Picture]:
    """Return a bubble chart for each two judges with common conversations, with their agreement in
    its caption."""
    out, said = [], agreement(section)
    specs = {name: judge_spec(section.policies, name) for name in section.judges}
    names = [name for name, spec in specs.items() if spec is None or not spec.relative]
    for first, second in combinations(names, 2):
        scores = both_scored(section, first, second)
        if scores:
            words = said.get((first, second), "")
            out.append(_bubbles(section, first, second, scores, words))
    return out


def _scale(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    if spec is None:
        return "overall score"
    low, high = spec.limits(spec.headline)
    label = spec.labels.get(spec.headline, spec.headline)
    return f"{label[:1].lower()}{label[1:]} score ({low:g} to {high:g})"


def _limits(
    section: Section, judge: str, side: int, scores: list[tuple[float, float]]
) -> tuple[float, float]:
    """Return the ends of a judge's scale, or of its scores if its spec is unknown."""
    spec = judge_spec(section.policies, judge)
    found = [pair[side] for pair in scores]
    low, high = (min(found), max(found)) if spec is None else spec.limits(spec.headline)
    return (low, high) if high > low else (low, low + 1)


def _bin(score: float, low: float, high: float) -> float:
    step = (high - low) / 20
    return low + round((score - low) / step) * step


def _headline(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    return OVERALL if spec is None else spec.headline


def _bubbles(
    section: Section, first: str, second: str, scores: list[tuple[float, float]], words: str
) -> Picture:
    # Binned to twentieths of each scale: of 0 to 10 every whole and half score is a bin.
    one, two = _limits(section, first, 0, scores), _limits(section, second, 1, scores)
    counts = Counter((_bin(a, *one), _bin(b, *two)) for a, b in scores)
    most = max(counts.values())
    figure = new_figure(3.35)
    axes: Any = figure.subplots()
    axes.plot(one, two, color=GREY, linestyle=":", linewidth=1)
    axes.scatter(
        [a for a, _ in counts],
        [b for _, b in counts],
        s=[AREA * n / most for n in counts.values()],
        color="#9a9a9a",
        alpha=0.6,
        edgecolors="black",
        linewidths=0.4,
    )
    axes.text(
        0.02,
        0.98,
        words.rstrip(".").replace(", ", "\n"),
        transform=axes.transAxes,
        va="top",
        fontsize=6.5,
    )
    axes.set_xlabel(f"{first}: {_scale(section, first)}")
    axes.set_ylabel(f"{second}: {_scale(section, second)}")
    axes.set_box_aspect(1)
    axes.margins(0.06)
    caption = (
        f"{section.title}: {second} against {first} on {len(scores)} conversations of all "
        f"methods; area is the number of conversations (largest {most}), the dotted line is the "
        "same share of each scale."
    )
    name = slug(f"judges {section.title} {first} {second}")
    marks = f"area: conversations (largest {most}); dotted line: agreement"
    return picture(figure, name, f"{caption} {words}".strip(), title=section.title, legend=marks)


APART = 0.16
"""Distance of the two marks of a policy from its line."""


def strengths(title: str, found: Tournament, no_wins: Sequence[str] = ()) -> Picture | None:
    """Return a picture of the strengths of a tournament's policies; None if they are not finite.
    `no_wins`, the reasons why policies have not won, end its caption."""
    plain, level = found.ranking(), found.ranking(length=True)
    if plain is None:
        return None
    names = [policy.name for policy in found.policies]
    figure = new_figure(0.9 + 0.3 * len(names))
    axes: Any = figure.subplots()
    apart = 0.0 if level is None else APART
    _marks(axes, names, plain, -apart, hollow=False)
    if level is not None:
        _marks(axes, names, level, apart, hollow=True)
    axes.axvline(0, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"log odds of winning against {names[0]}")
    caption = (
        f"{title}: Bradley-Terry strengths by judge {found.judge} against {names[0]}, "
        f"{'asked until decided' if found.decided else 'with simultaneous 95% intervals'}; "
        "each couple was judged in both orders."
    )
    caption += "".join(f" {why}." for why in no_wins)
    bars = "bars: simultaneous 95% intervals"
    said = "asked until decided: no intervals" if found.decided else bars
    said += "" if level is None else "\nfilled: as judged; hollow: at equal length"
    return picture(
        figure,
        slug(f"pairwise {title} {found.judge}"),
        caption,
        title=f"{title}, judge {found.judge}",
        legend=said,
    )


def _marks(axes: Any, names: Sequence[str], found: Ranking, shift: float, *, hollow: bool) -> None:
    styles = looks(names)
    for place, (name, bound) in enumerate(zip(names, found.strengths, strict=True)):
        look = styles[name]
        axes.errorbar(
            bound.value,
            place + shift,
            xerr=_bars(bound),
            color=look.color,
            marker=look.marker,
            linestyle="none",
            elinewidth=1.2,
            markersize=4.5,
            markerfacecolor="white" if hollow else look.color,
        )


def _bars(bound: Bound) -> list[list[float]] | None:
    if bound.low is None or bound.high is None:
        return None
    return [[bound.value - bound.low], [bound.high - bound.value]]


WIDE, NARROW = 3, 2
"""Most charts in a row on a page, and in a column of it."""


def radar(
    section: Section,
    judge: str,
    kind: ErrorKind,
    printed: Mapping[str, Mapping[str, Number]] | None = None,
) -> Picture | None:
    """Return radar charts of a judge's metrics, one a policy, with the printed scores of the method
    of that name if given; None if the judge has fewer than three metrics on its headline's scale.
    """
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
        figure,
        slug(f"radar {section.title} {judge}"),
        f"{caption} {names}.",
        title=f"{section.title}, judge {judge}",
    )


def _short(measure: Measure) -> str:
    return measure.short.removeprefix("R ")


def _legend(figure: Any, *, outlined: bool, printed: bool, errors: str) -> None:
    """Add a legend of lines and bands below all charts; their titles name the policies."""
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
    """Return the judge's metrics on the scale of its headline; only the paper's if its spec is
    unknown; none if it measures tests or pages."""
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
    """Return the ends of the judge's scale; 0 and the largest mean if it is unknown."""
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
    axes.plot(
        angles,
        _round([e.mean for e in estimates]),
        color=look.color,
        marker=look.marker,
        markersize=3.5,
    )


def _outline(axes: Any, found: Sequence[Estimate | None]) -> None:
    means = _round([e.mean for e in found if e is not None])
    axes.plot(_angles(len(means) - 1), means, color=GREY, linestyle="--", linewidth=1)


def _side(angle: float) -> str:
    """Return the horizontal alignment of a label at this angle, clockwise from the top."""
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
        [f"{value:g}" for value in at],
        fontsize=6,
        color="#333333",
        ha="center",
        va="center",
        bbox={
            "boxstyle": "square,pad=0.08",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.75,
        },
    )
    axes.yaxis.grid(color="#bdbdbd", linewidth=0.6)
    axes.set_rlabel_position(180 / len(measures))  # between two spokes
    axes.set_xticks(_angles(len(measures))[:-1])
    axes.set_xticklabels([_short(m) for m in measures], fontsize=7)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment(_side(label.get_position()[0]))
    axes.tick_params(axis="x", pad=-4)
    axes.spines["polar"].set_color("#bbbbbb")
    axes.set_title(title, loc="center", pad=9)
