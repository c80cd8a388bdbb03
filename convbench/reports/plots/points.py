"""Pictures of points: accuracy with intervals, judge against judge, strengths from duels, and radar
charts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from convbench.judges.kinds import kind_of
from convbench.reports.document import Picture, slug
from convbench.reports.judges import panel_of
from convbench.reports.measures import HEADS, Measure, judge_measures
from convbench.reports.pairwise import Tournament
from convbench.reports.plots.style import (
    GREY,
    Look,
    current_page,
    legend_below,
    new_figure,
    policy_looks,
    save_picture,
)
from convbench.reports.policies import Policy, judge_spec
from convbench.reports.published import PrintedNumber, paper_key
from convbench.reports.sections import Section
from convbench.schema.judge import OVERALL
from convbench.stats.duels import IntervalEstimate, Ranking
from convbench.stats.means import ErrorKind, Estimate

COLUMNS = 3


def draw_dots(sections: Sequence[Section], measure: Measure, kind: ErrorKind) -> Picture | None:
    """Return a picture of a measure's means with 95% intervals, a panel for each section in which a
    policy has the measure.

    None if no policy has it. Base's mean is a dotted line. `kind` None takes each section's own.
    """
    shown = [s for s in sections if any(measure.mean_of(policy) for policy in s.policies)]
    if not shown:
        return None
    columns = current_page().panels_across(len(shown), COLUMNS)
    rows = math.ceil(len(shown) / columns)
    most = max(len(section.policies) for section in shown)
    figure = new_figure((0.5 + 0.2 * most) * rows + 0.5, panels=columns)
    grid: Any = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for index, section in enumerate(shown):
        axes = grid[index // columns][index % columns]
        _draw_panel(axes, section, measure, kind)
        if len(shown) > 1:
            axes.set_title(
                f"{section.task} · {section.mode}\n{section.protocol}, n = {section.turns}"
            )
    for index in range(len(shown), rows * columns):
        grid[index // columns][index % columns].set_visible(False)
    for index in range(max(0, len(shown) - columns), len(shown)):  # the lowest of each column
        axes = grid[index // columns][index % columns]
        axes.tick_params(labelbottom=True)
        axes.set_xlabel(f"{measure.head} ({measure.unit})")
    kinds = " or ".join(sorted({kind for section in shown}))
    caption = (
        f"{measure.head} by method, with 95% intervals ({kinds} errors); the dotted line is Base."
    )
    return save_picture(
        figure,
        slug(measure.head + " by task"),
        caption,
        title=measure.head,
        legend=f"bars: {interval_text(kinds)}; dotted line: Base",
    )


def interval_text(errors: str) -> str:
    """Return the text `95% intervals, ERRORS errors` for a legend."""
    return f"95% intervals, {errors} errors"


def _section_means(
    section: Section, measure: Measure, kind: ErrorKind
) -> dict[str, Estimate | None]:
    return {policy.name: measure.mean_of(policy, kind) for policy in section.policies}


def _draw_panel(axes: Any, section: Section, measure: Measure, kind: ErrorKind) -> None:
    means = _section_means(section, measure, kind)
    styles = policy_looks(list(means))
    names = [name for name, e in means.items() if e is not None]
    for index, name in enumerate(names):
        estimate = means[name]
        assert estimate is not None
        low, high = clip_interval(estimate, measure)
        look = styles[name]
        axes.errorbar(
            estimate.mean,
            index,
            xerr=[[estimate.mean - low], [high - estimate.mean]],
            color=look.color,
            marker=look.marker,
            linestyle="none",
            elinewidth=1.4,
        )
    base = means.get(section.base.name) if section.base else None
    if base is not None:
        axes.axvline(base.mean, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def clip_interval(estimate: Estimate, measure: Measure) -> tuple[float, float]:
    """Return (low, high) of the 95% interval, cut to the measure's limits but always including the
    mean; (mean, mean) without an interval."""
    low, high = estimate.interval or (estimate.mean, estimate.mean)
    if measure.limits is not None:
        low = min(max(low, measure.limits[0]), estimate.mean)
        high = max(min(high, measure.limits[1]), estimate.mean)
    return low, high


AREA = 220.0
"""Area of the largest bubble, in square points."""


def paired_scores(section: Section, first: str, second: str) -> list[tuple[float, float]]:
    """Return (first judge's score, second judge's score) for each conversation of any policy that
    both scored.

    The score is the headline metric on the judge's own scale, else the reward. Failed verdicts are
    left out.
    """
    pairs = []
    tops = _headline_metric(section, first), _headline_metric(section, second)
    for policy in section.policies:
        for row in policy.observations:
            first_verdict, second_verdict = row.verdicts.get(first), row.verdicts.get(second)
            if (
                first_verdict
                and second_verdict
                and not first_verdict.failed
                and not second_verdict.failed
            ):
                a = first_verdict.scores.get(tops[0], first_verdict.reward)
                b = second_verdict.scores.get(tops[1], second_verdict.reward)
                if a is not None and b is not None:
                    pairs.append((a, b))
    return pairs


def agreement_texts(section: Section) -> dict[tuple[str, str], str]:
    """Return a sentence with Spearman correlation and weighted kappa by (first judge, second
    judge).

    Pairs without both figures are left out; empty if the judges cannot be compared.
    """
    panel = panel_of(section)
    return {
        (pair.first, pair.second): (
            f"Spearman {pair.correlation:.2f}, quadratically weighted kappa {pair.kappa:.2f}."
        )
        for pair in (panel.agreed if panel is not None else ())
        if pair.correlation is not None and pair.kappa is not None
    }


def draw_judge_pairs(section: Section) -> list[Picture]:
    """Return a bubble chart of the scores of each two judges that scored common conversations;
    their agreement is in the caption.

    Judges whose scores are relative to a question are left out. Empty if there is no pair.
    """
    out, texts = [], agreement_texts(section)
    specs = {name: judge_spec(section.policies, name) for name in section.judges}
    names = [name for name, spec in specs.items() if spec is None or not spec.is_relative]
    for first, second in combinations(names, 2):
        scores = paired_scores(section, first, second)
        if scores:
            words = texts.get((first, second), "")
            out.append(_draw_bubbles(section, first, second, scores, words))
    return out


def _scale_label(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    if spec is None:
        return "overall score"
    low, high = spec.score_limits(spec.headline_metric)
    label = spec.score_labels.get(spec.headline_metric, spec.headline_metric)
    return f"{label[:1].lower()}{label[1:]} score ({low:g} to {high:g})"


def _score_limits(
    section: Section, judge: str, side: int, scores: list[tuple[float, float]]
) -> tuple[float, float]:
    """Return the ends of a judge's scale, or of its scores if its spec is unknown."""
    spec = judge_spec(section.policies, judge)
    own_scores = [pair[side] for pair in scores]
    low, high = (
        (min(own_scores), max(own_scores))
        if spec is None
        else spec.score_limits(spec.headline_metric)
    )
    return (low, high) if high > low else (low, low + 1)


def _bin_score(score: float, low: float, high: float) -> float:
    step = (high - low) / 20
    return low + round((score - low) / step) * step


def _headline_metric(section: Section, judge: str) -> str:
    spec = judge_spec(section.policies, judge)
    return OVERALL if spec is None else spec.headline_metric


def _draw_bubbles(
    section: Section, first: str, second: str, scores: list[tuple[float, float]], words: str
) -> Picture:
    # Binned to twentieths of each scale: of 0 to 10 every whole and half score is a bin.
    x_limits, y_limits = (
        _score_limits(section, first, 0, scores),
        _score_limits(section, second, 1, scores),
    )
    counts = Counter((_bin_score(a, *x_limits), _bin_score(b, *y_limits)) for a, b in scores)
    most = max(counts.values())
    figure = new_figure(3.35)
    axes: Any = figure.subplots()
    axes.plot(x_limits, y_limits, color=GREY, linestyle=":", linewidth=1)
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
    axes.set_xlabel(f"{first}: {_scale_label(section, first)}")
    axes.set_ylabel(f"{second}: {_scale_label(section, second)}")
    axes.set_box_aspect(1)
    axes.margins(0.06)
    caption = (
        f"{section.title}: {second} against {first} on {len(scores)} conversations of all "
        f"methods; area is the number of conversations (largest {most}), the dotted line is the "
        "same share of each scale."
    )
    name = slug(f"judges {section.title} {first} {second}")
    marks = f"area: conversations (largest {most}); dotted line: agreement"
    return save_picture(
        figure, name, f"{caption} {words}".strip(), title=section.title, legend=marks
    )


APART = 0.16
"""Distance of the two marks of a policy from its line."""


def draw_strengths(
    title: str, tournament: Tournament, no_wins: Sequence[str] = ()
) -> Picture | None:
    """Return a picture of the policies' Bradley-Terry strengths with simultaneous 95% intervals;
    None if they are not finite.

    Hollow marks are the strengths at equal length, if there are any. The sentences in `no_wins` end
    the caption.
    """
    unadjusted, level = tournament.strength_ranking(), tournament.strength_ranking(length=True)
    if unadjusted is None:
        return None
    names = [policy.name for policy in tournament.policies]
    figure = new_figure(0.9 + 0.3 * len(names))
    axes: Any = figure.subplots()
    offset = 0.0 if level is None else APART
    _draw_bounds(axes, names, unadjusted, -offset, hollow=False)
    if level is not None:
        _draw_bounds(axes, names, level, offset, hollow=True)
    axes.axvline(0, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"log odds of winning against {names[0]}")
    caption = (
        f"{title}: Bradley-Terry strengths by judge {tournament.judge} against {names[0]}, "
        "with simultaneous 95% intervals; each pair was judged in both orders."
    )
    caption += "".join(f" {why}." for why in no_wins)
    legend = "bars: simultaneous 95% intervals"
    legend += "" if level is None else "\nfilled: as judged; hollow: at equal length"
    return save_picture(
        figure,
        slug(f"pairwise {title} {tournament.judge}"),
        caption,
        title=f"{title}, judge {tournament.judge}",
        legend=legend,
    )


def _draw_bounds(
    axes: Any, names: Sequence[str], ranking: Ranking, shift: float, *, hollow: bool
) -> None:
    styles = policy_looks(names)
    for index, (name, bound) in enumerate(zip(names, ranking.strengths, strict=True)):
        look = styles[name]
        axes.errorbar(
            bound.value,
            index + shift,
            xerr=_error_bars(bound),
            color=look.color,
            marker=look.marker,
            linestyle="none",
            elinewidth=1.2,
            markersize=4.5,
            markerfacecolor="white" if hollow else look.color,
        )


def _error_bars(bound: IntervalEstimate) -> list[list[float]] | None:
    if bound.low is None or bound.high is None:
        return None
    return [[bound.value - bound.low], [bound.high - bound.value]]


WIDE, NARROW = 3, 2
"""Most charts in a row on a page, and in a column of it."""


def draw_radar(
    section: Section,
    judge: str,
    kind: ErrorKind,
    printed: Mapping[str, Mapping[str, PrintedNumber]] | None = None,
) -> Picture | None:
    """Return radar charts of a judge's metrics with 95% bands, one for each policy that has all of
    them; Base is a dashed outline.

    `printed` has scores by policy name and metric; a policy with all of them gets a dotted outline.
    None if the judge has fewer than three metrics on its headline's scale, or no policy has all of
    them.
    """
    measures = _profile_measures(section, judge)
    shown = [p for p in section.policies if all(m.mean_of(p) for m in measures)]
    if len(measures) < 3 or not shown:
        return None
    columns = current_page().panels_across(len(shown), WIDE, NARROW)
    rows = math.ceil(len(shown) / columns)
    figure = new_figure(
        (2.0 if current_page().columns == "two" else 1.6) * rows + 0.4, panels=columns
    )
    styles = policy_looks([policy.name for policy in shown])
    low, top = _scale_ends(shown, measures)
    for index, policy in enumerate(shown):
        axes: Any = figure.add_subplot(rows, columns, index + 1, projection="polar")
        if section.base in shown and policy is not section.base:
            assert section.base is not None
            _draw_outline(axes, [m.mean_of(section.base, kind) for m in measures])
        theirs = (printed or {}).get(policy.name, {})
        numbers = [theirs.get(paper_key(m.key)) for m in measures]
        means = [number.mean for number in numbers if number is not None]
        if len(means) == len(measures):
            angles = _spoke_angles(len(means))
            axes.plot(angles, _close_outline(means), color="black", linestyle=":", linewidth=1.1)
        _draw_band(axes, [m.mean_of(policy, kind) for m in measures], styles[policy.name])
        _draw_frame(axes, measures, (low, top), policy.name)
    outlined = section.base in shown and len(shown) > 1
    _draw_legend(figure, outlined=outlined, printed=bool(printed), errors=kind)
    caption = (
        f"{section.title}: judge {judge}'s scores by method, {low:g} to {top:g}, with 95% "
        "intervals as bands; the dashed outline is Base."
    ) + (" The dotted outline is printed." if printed else "")
    names = "; ".join(f"{_short_head(m)} {m.head.removeprefix('R ')}" for m in measures)
    return save_picture(
        figure,
        slug(f"radar {section.title} {judge}"),
        f"{caption} {names}.",
        title=f"{section.title}, judge {judge}",
    )


def _short_head(measure: Measure) -> str:
    return measure.short.removeprefix("R ")


def _draw_legend(figure: Any, *, outlined: bool, printed: bool, errors: str) -> None:
    """Add a legend of lines and bands below all charts; their titles name the policies."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    lines = [
        Line2D([], [], color="black", marker="o", markersize=3.5, label="mean"),
        Patch(color="black", alpha=0.25, linewidth=0, label=interval_text(errors)),
    ]
    if outlined:
        lines.append(Line2D([], [], color=GREY, linestyle="--", linewidth=1, label="Base"))
    if printed:
        lines.append(Line2D([], [], color="black", linestyle=":", linewidth=1.1, label="printed"))
    legend_below(figure, lines, [str(line.get_label()) for line in lines])


def _profile_measures(section: Section, judge: str) -> list[Measure]:
    """Return the judge's metrics on the scale of its headline; only the paper's if its spec is
    unknown; none if it measures tests or pages."""
    spec = judge_spec(section.policies, judge)
    measures = judge_measures(section.policies, judge)
    if spec is None:
        keys = {f"r_{name}" for name in HEADS}
        return [m for m in measures if m.key in keys]
    if kind_of(spec).measures != "talk":
        return []
    scale = spec.score_limits(spec.headline_metric)
    return [m for m in measures if m.key.startswith("r_") and m.limits == scale]


def _scale_ends(policies: Sequence[Policy], measures: Sequence[Measure]) -> tuple[float, float]:
    """Return the ends of the judge's scale; 0 and the largest mean if it is unknown."""
    best = max(e.mean for p in policies for m in measures if (e := m.mean_of(p)) is not None)
    return measures[0].limits or (0.0, best)


def _spoke_angles(count: int) -> list[float]:
    return [2 * math.pi * i / count for i in range(count + 1)]


def _close_outline(values: Sequence[float]) -> list[float]:
    return [*values, values[0]]


def _draw_band(axes: Any, all_estimates: Sequence[Estimate | None], look: Look) -> None:
    estimates = [e for e in all_estimates if e is not None]
    angles = _spoke_angles(len(estimates))
    margins = [e.margin or 0.0 for e in estimates]
    low = _close_outline([e.mean - m for e, m in zip(estimates, margins, strict=True)])
    high = _close_outline([e.mean + m for e, m in zip(estimates, margins, strict=True)])
    axes.fill_between(angles, low, high, color=look.color, alpha=0.25, linewidth=0)
    axes.plot(
        angles,
        _close_outline([e.mean for e in estimates]),
        color=look.color,
        marker=look.marker,
        markersize=3.5,
    )


def _draw_outline(axes: Any, all_estimates: Sequence[Estimate | None]) -> None:
    means = _close_outline([e.mean for e in all_estimates if e is not None])
    axes.plot(_spoke_angles(len(means) - 1), means, color=GREY, linestyle="--", linewidth=1)


def _label_side(angle: float) -> str:
    """Return the horizontal alignment of a label at this angle, clockwise from the top."""
    across = math.sin(angle)
    return "center" if abs(across) < 0.1 else "left" if across > 0 else "right"


def _draw_frame(
    axes: Any, measures: Sequence[Measure], ends: tuple[float, float], title: str
) -> None:
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
    axes.set_xticks(_spoke_angles(len(measures))[:-1])
    axes.set_xticklabels([_short_head(m) for m in measures], fontsize=7)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment(_label_side(label.get_position()[0]))
    axes.tick_params(axis="x", pad=-4)
    axes.spines["polar"].set_color("#bbbbbb")
    axes.set_title(title, loc="center", pad=9)
