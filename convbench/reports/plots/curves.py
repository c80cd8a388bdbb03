"""Curves of accuracy and reward by temperature, turns, rows or rounds, and training curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from statistics import fmean
from typing import Any

from convbench.reports.document import Picture, slug
from convbench.reports.measures import ACCURACY, Measure, judge_measures
from convbench.reports.plots.points import clip_interval, interval_text
from convbench.reports.plots.style import (
    GREY,
    Look,
    current_page,
    legend_below,
    new_figure,
    policy_looks,
    save_picture,
)
from convbench.reports.policies import NAMES, Policy, at_temperature
from convbench.reports.sections import Section
from convbench.reports.tables import headline_measure, rounds_of
from convbench.stats.means import ErrorKind, Estimate

Points = dict[str, list[tuple[float, Estimate]]]
"""Method → (x, estimate), by x."""


@dataclass(frozen=True)
class Axis:
    """An x axis: its label, and the name of its values in a caption."""

    label: str
    name: str


TEMPERATURE = Axis("sampling temperature", "temperature")
TURNS = Axis("policy turns n", "number of turns")
ROUNDS = Axis("round", "round (0 is Base)")
LEVELS = ("-.", "--", ":")
"""Styles of the lines of models that are not trained."""


def temperature_curves(section: Section, judge: str | None, kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and of the judge's headline by sent temperature.

    None for fewer than two temperatures, or if nothing was measured. Without `judge` it is accuracy
    alone.
    """
    sent = {row.temperature for p in section.policies for row in p.observations}
    temperatures = sorted(t for t in sent if t is not None)
    if len(temperatures) < 2:
        return None

    def measure_points(measure: Measure) -> Points:
        return {
            policy.name: _known_estimates(
                (t, measure.mean_over(at_temperature(policy.observations, t), kind))
                for t in temperatures
            )
            for policy in section.policies
        }

    return draw_curves(
        section.title, _curve_measures([section], judge), measure_points, TEMPERATURE, judge, kind
    )


def turn_curves(sections: Sequence[Section], judge: str | None, kind: ErrorKind) -> list[Picture]:
    """Return curves of accuracy and of the judge's headline by number of turns, a picture for each
    setting with several numbers.

    A setting is a task, mode and protocol. Empty if there is none. Without `judge` it is
    accuracy alone.
    """
    pictures = []
    for key, group in _sections_by_setting(sections).items():
        if len({section.turns for section in group}) < 2:
            continue

        def measure_points(measure: Measure, group: Sequence[Section] = group) -> Points:
            names = dict.fromkeys(policy.name for section in group for policy in section.policies)
            return {
                name: _known_estimates(
                    (section.turns, measure.mean_of(policy, kind))
                    for section in sorted(group, key=lambda section: section.turns)
                    for policy in section.policies
                    if policy.name == name
                )
                for name in names
            }

        title = " · ".join(part for part in key if part != "clean")
        errors = kind
        pictures.append(
            draw_curves(title, _curve_measures(group, judge), measure_points, TURNS, judge, errors)
        )
    return [item for item in pictures if item is not None]


def size_curves(section: Section, judge: str | None, kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and of the judge's headline by number of training rows, a line for
    each method with several sizes.

    Base is a dotted line. None if no method was trained on several numbers of rows, or nothing was
    measured.
    """
    methods: dict[str, list[tuple[float, Policy]]] = {}
    for policy in section.policies:
        size = trained_rows(policy)
        if size:
            methods.setdefault(_method_name(policy), []).append((float(size), policy))
    several = {
        m: policies for m, policies in methods.items() if len({size for size, _ in policies}) > 1
    }
    if not several:
        return None

    def measure_points(measure: Measure) -> Points:
        return {
            method: _known_estimates(
                (size, measure.mean_of(policy, kind))
                for size, policy in sorted(policies, key=lambda item: item[0])
            )
            for method, policies in several.items()
        }

    measures = _curve_measures([section], judge)
    axis = _rows_axis(policy for policies in several.values() for _, policy in policies)
    return draw_curves(
        section.title, measures, measure_points, axis, judge, kind, base=section.base
    )


def round_curves(section: Section, judge: str | None, kind: ErrorKind) -> Picture | None:
    """Return curves of accuracy and reward by round, for learners trained in rounds; Base is round
    0, and models that are not trained are level lines. None if no learner has two rounds."""
    rounds = rounds_of(section)
    if not rounds:
        return None

    def measure_points(measure: Measure) -> Points:
        return {
            name: _known_estimates(
                (float(n), measure.mean_of(policy, kind)) for n, policy in policies.items()
            )
            for name, policies in rounds.items()
        }

    measures = _curve_measures([section], judge)
    others = [policy for policy in section.policies if policy.is_other_model]
    return draw_curves(section.title, measures, measure_points, ROUNDS, judge, kind, others=others)


def trained_rows(policy: Policy) -> int | None:
    """Return the number of rows that a checkpoint was trained on: pairs if its unit is a pair, else
    conversations or turns.

    For old checkpoints without a unit it is the number of conversations. None if unknown.
    """
    counts = policy.training.get("counts") or {}
    unit = policy.training.get("unit")
    return (
        counts.get("pairs" if unit == "pair" else "rows")
        if unit
        else (policy.training.get("conversations"))
    )


def _rows_axis(policies: Iterable[Policy]) -> Axis:
    units = {str(policy.training.get("unit") or "conversation") for policy in policies}
    per_unit = f" (one per {units.pop()})" if len(units) == 1 else ""
    return Axis(f"training rows{per_unit}", "size of the training set")


def _method_name(policy: Policy) -> str:
    trainer = str(policy.recipe.get("trainer") or policy.recipe.get("name") or policy.name)
    return NAMES.get(trainer.replace("_", "-"), trainer)


def _sections_by_setting(
    sections: Sequence[Section],
) -> dict[tuple[str, str, str], list[Section]]:
    by_setting: dict[tuple[str, str, str], list[Section]] = {}
    for section in sections:
        key = (section.task, section.mode, section.protocol)
        by_setting.setdefault(key, []).append(section)
    return by_setting


def _curve_measures(sections: Sequence[Section], judge: str | None) -> list[Measure]:
    policies = [policy for section in sections for policy in section.policies]
    top = headline_measure(judge_measures(policies, judge)) if judge else None
    return [ACCURACY, top] if top else [ACCURACY]


def _known_estimates(
    points: Iterable[tuple[float, Estimate | None]],
) -> list[tuple[float, Estimate]]:
    return [(x, estimate) for x, estimate in points if estimate is not None]


def draw_curves(
    title: str,
    measures: Sequence[Measure],
    points: Callable[[Measure], Points],
    axis: Axis,
    judge: str | None,
    kind: ErrorKind,
    *,
    base: Policy | None = None,
    others: Sequence[Policy] = (),
    printed: Callable[[Measure], Points] | None = None,
) -> Picture | None:
    """Return a picture with a panel for each measure that has points, and a line with 95% intervals
    for each method; None without points.

    Points of several methods are shifted slightly so that they do not overlap. The mean of `base`
    is a dotted line, those of `others` are level black ones; `printed` points are hollow on dashed
    lines. `judge` and `kind` are named in the caption.
    """
    panels = [(m, lines) for m in measures if any((lines := points(m)).values())]
    if not panels:
        return None
    columns = current_page().panels_across(len(panels), 2)
    rows = len(panels) // columns  # of at most two panels
    figure = new_figure(2.1 * rows + 0.6, panels=columns)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    for axes, (measure, lines) in zip(grid.flat, panels, strict=True):
        _draw_lines(axes, measure, lines, printed(measure) if printed else {})
        flat = measure.mean_of(base, kind) if base else None
        if flat is not None:
            axes.axhline(flat.mean, color=GREY, linestyle=":", linewidth=1.2, label="Base")
        for policy, style in zip(others, cycle(LEVELS), strict=False):
            level = measure.mean_of(policy, kind)
            if level is not None:
                axes.axhline(level.mean, color="black", linestyle=style, label=policy.name)
        axes.set_xlabel(axis.label)
        axes.set_ylabel(f"{measure.head}\n({measure.unit})")
    bars = f"bars: {interval_text(kind)}" + ("; hollow: printed" if printed else "")
    handles, labels = grid[0][0].get_legend_handles_labels()
    legend_below(figure, handles, labels, bars)
    heads = " and ".join(measure.head for measure, _ in panels)
    scored = f", judge {judge}" if judge and len(panels) > 1 else ""
    caption = f"{title}: {heads} by {axis.name}{scored}, with 95% intervals."
    caption += " The dotted line is Base." if base else ""
    caption += (
        f" Level black lines, not trained: {', '.join(p.name for p in others)}." if others else ""
    )
    caption += " Hollow points on dashed lines are printed." if printed else ""
    return save_picture(
        figure, slug(f"{axis.name} {title} {judge or ''}"), caption, title=title + scored
    )


def _draw_lines(axes: Any, measure: Measure, lines: Points, printed: Points) -> None:
    drawn = [(name, name, points, False) for name, points in lines.items()]
    drawn += [(name, f"{name}, printed", points, True) for name, points in printed.items()]
    places = sorted({x for _, _, points, _ in drawn for x, _ in points})
    gap = min((b - a for a, b in pairwise(places)), default=1.0)
    styles = policy_looks([*lines, *printed])
    for number, (name, label, points, hollow) in enumerate(drawn):
        # Shifted by less than a sixth of the distance between two values of x.
        shift = gap * 0.3 * ((number + 0.5) / len(drawn) - 0.5)
        low, high = (
            zip(*(clip_interval(e, measure) for _, e in points), strict=True)
            if points
            else ((), ())
        )
        means = [e.mean for _, e in points]
        look = styles[name]
        axes.errorbar(
            [x + shift for x, _ in points],
            means,
            yerr=[
                [m - a for m, a in zip(means, low, strict=True)],
                [b - m for m, b in zip(means, high, strict=True)],
            ],
            label=label,
            color=look.color,
            marker=look.marker,
            linestyle=(0, (4, 3)) if hollow else look.line,
            elinewidth=0.9,
            markersize=4.5,
            markerfacecolor="white" if hollow else look.color,
            alpha=0.75 if hollow else 1.0,
        )
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.grid(axis="x", visible=False)


PANELS = (
    ("loss", {"loss": ""}),
    (
        "log-probability log π\n(nats per conversation)",
        {"log_pi_positive": "weight > 0", "log_pi_negative": "weight < 0"},
    ),
    ("log π/π₀, the bound's slack\n(nats per conversation)", {"log_ratio": ""}),
    ("accuracy of preferences", {"rewards/accuracies": ""}),
)
"""(label of the y axis, {key of the log: suffix of the curve's name})."""
FEW = 20
"""Most points of a curve that is drawn as it was logged."""
SHARE = 0.05
"""Share of a longer curve's points in the running mean."""


def training_curves(section: Section) -> Picture | None:
    """Return the training curves of all methods of a section: loss, log-probabilities and accuracy
    of preferences, where logged.

    None if no policy has a log with one of these.
    """
    logs = {policy.name: _training_log(policy) for policy in section.policies}
    logs = {name: log for name, log in logs.items() if log}
    panels = [
        panel
        for panel in PANELS
        if any(key in entry for log in logs.values() for entry in log for key in panel[1])
    ]
    if not panels:
        return None
    columns = current_page().panels_across(len(panels), 3 if len(panels) == 3 else 2)
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(2.1 * rows + 0.6, panels=columns)
    grid: Any = figure.subplots(rows, columns, squeeze=False)
    styles = policy_looks([policy.name for policy in section.policies])
    for axes, (label, keys) in zip(grid.flat, panels, strict=False):
        for name, log in logs.items():
            for index, (key, what) in enumerate(keys.items()):
                _draw_curve(
                    axes, log, key, styles[name], name + (f", {what}" if what else ""), index
                )
        axes.set_xlabel("optimiser step")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_xlim(left=0)
        axes.set_ylabel(label)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    long = any(len(log) > FEW for log in logs.values())
    marks = f"bold: running mean of {SHARE:.0%} of the steps; faint: as logged" if long else ""
    _draw_legends(figure, list(grid.flat), panels, marks)
    caption = f"{section.title}: training curves; losses of different learners are not comparable."
    caption += f" {marks[:1].upper()}{marks[1:]}." if marks else ""
    name = slug(f"training {section.title}")
    return save_picture(figure, name, caption, title=section.title)


def smooth_values(values: Sequence[float]) -> list[float]:
    """Return the centred running mean, as many values as given.

    Its window is about 5% of the values, an odd number of at least three; at the ends it is cut.
    """
    reach = round(len(values) * SHARE) // 2 or 1
    return [fmean(values[max(0, i - reach) : i + reach + 1]) for i in range(len(values))]


def _draw_legends(figure: Any, grid: Sequence[Any], panels: Sequence[Any], marks: str) -> None:
    """Add a legend of the methods below all panels, and legends inside panels with two curves a
    method."""
    from matplotlib.lines import Line2D

    handles, labels = grid[0].get_legend_handles_labels()
    legend_below(figure, handles, labels, marks)
    for axes, (_, keys) in zip(grid, panels, strict=False):
        texts = [what for what in keys.values() if what]
        if texts:
            lines = [
                Line2D(
                    [],
                    [],
                    color="black",
                    marker="o",
                    markersize=3.5,
                    markerfacecolor="black" if index == 0 else "white",
                    label=what,
                )
                for index, what in enumerate(texts)
            ]
            axes.legend(handles=lines, loc="best")


def _training_log(policy: Policy) -> list[dict[str, Any]]:
    entries = policy.training.get("log")
    if not isinstance(entries, list):
        return []
    return [e for e in entries if isinstance(e, dict) and "step" in e]


def _draw_curve(
    axes: Any, log: Sequence[dict[str, Any]], key: str, look: Look, label: str, index: int
) -> None:
    points = [(e["step"], e[key]) for e in log if isinstance(e.get(key), int | float)]
    points = [(x, y) for x, y in points if math.isfinite(y)]
    if points:
        steps, values = [x for x, _ in points], [y for _, y in points]
        if len(points) > FEW:
            axes.plot(steps, values, color=look.color, alpha=0.2, linewidth=0.6, zorder=1.5)
            values = smooth_values(values)
        axes.plot(
            steps,
            values,
            label=label,
            color=look.color,
            linestyle=look.line,
            marker=look.marker,
            markersize=3.5,
            markevery=max(1, len(points) // 8),
            markerfacecolor=look.color if index == 0 else "white",
        )
