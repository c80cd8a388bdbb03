"""Pictures of a report: dots with intervals, a judge's radar, curves, training, forgetting."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency
from convbench.reports.document import Column, Picture, mean_of, slug
from convbench.reports.frame import Setting
from convbench.reports.metrics import Metric, headlines, metrics_of
from convbench.reports.selfedits import forgetting_sequences, mean_matrix
from convbench.reports.tables import Point, within
from convbench.stats.estimates import Estimate
from convbench.util.install import with_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which all common colour blindnesses tell apart.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7a5c00"]
MARKERS = "os^DvPX<"
GREY = "#6b6b6b"
RC: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.0,
    "pdf.fonttype": 42,  # text that can be searched; publishers refuse fonts of type 3
}


@contextmanager
def drawing() -> Iterator[None]:
    """Set matplotlib's style within the context. Raise MissingDependency without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency(
            "matplotlib", needed_for="--plots", install=with_extra("analysis")
        ) from None
    with matplotlib.rc_context(RC):
        yield


def panels(count: int, height: float, across: int = 3, **more: Any) -> tuple[Figure, list[Any]]:
    """Return a figure as wide as a page and its panels, rows of `across` this many inches high."""
    from matplotlib.figure import Figure

    columns = min(count, across)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(7.0, height * rows), layout="constrained")
    grid: Any = figure.subplots(rows, columns, squeeze=False, subplot_kw=more)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, list(grid.flat[:count])


def picture(figure: Figure, name: str, caption: str) -> Picture:
    """Return a figure as SVG, PDF and PNG; nothing is written to disk."""
    drawn = {}
    for kind in ("svg", "pdf", "png"):
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=300, metadata={"Title": caption})
        drawn[kind] = out.getvalue()
    return Picture(slug(name), caption, drawn)


def setting_pictures(setting: Setting) -> Iterator[Picture]:
    """Yield the pictures of one setting."""
    with drawing():
        yield from _dots(setting)
        yield from _radars(setting)
        for varied in within(setting):
            yield from curves(setting, *varied)
        yield from _training(setting)
        yield from _forgetting(setting)


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each policy, in order."""
    return dict(zip(dict.fromkeys(names), zip(cycle(COLORS), cycle(MARKERS)), strict=False))


def _spans(numbers: Sequence[Estimate], metric: Metric) -> list[list[float]]:
    """Return how far 95% intervals reach below and above their means, within the limits."""
    bottom, top = metric.limits or (-math.inf, math.inf)
    ends = [(number.mean, *(number.interval or (number.mean,) * 2)) for number in numbers]
    below = [max(0.0, mean - max(low, bottom)) for mean, low, _ in ends]
    return [below, [max(0.0, min(high, top) - mean) for mean, _, high in ends]]


def _dots(setting: Setting) -> Iterator[Picture]:
    metrics = [metric for metric in headlines(setting) if metric.best]
    if not metrics:
        return
    styles = looks([policy.name for policy in setting.policies])
    bases = [base.name for p in setting.policies if (base := setting.base_of(p)) is not None]
    figure, grid = panels(len(metrics), 0.7 + 0.2 * len(styles))
    for axes, metric in zip(grid, metrics, strict=True):
        for place, policy in enumerate(setting.policies):
            number = setting.mean(policy, metric.key)
            if number is None:
                continue
            color, marker = styles[policy.name]
            spans = _spans([number], metric)
            axes.errorbar(number.mean, place, xerr=spans, color=color, marker=marker)
            if policy.name in bases[:1]:
                axes.axvline(number.mean, color=GREY, linestyle=":", linewidth=1, zorder=0)
        axes.set_yticks(range(len(styles)), styles)
        axes.set_ylim(len(styles) - 0.5, -0.5)
        axes.set_xlabel(metric.head)
        axes.grid(axis="y", visible=False)
    dotted = f"; dotted: {bases[0]}" if bases else ""
    caption = f"{setting.title}: means with 95% intervals ({setting.kind} errors){dotted}."
    yield picture(figure, f"means {setting.title}", caption)


def _radars(setting: Setting) -> Iterator[Picture]:
    """Yield a radar of each judge with three metrics on one scale, a polygon a policy."""
    styles = looks([policy.name for policy in setting.policies])
    for judge in setting.judges:
        metrics = [m for m in metrics_of(setting) if m.judge == judge and m.limits]
        metrics = [m for m in metrics if m.limits == metrics[0].limits]
        if len(metrics) < 3:
            continue
        angles = [2 * math.pi * number / len(metrics) for number in range(len(metrics))]
        figure, (axes,) = panels(1, 3.6, projection="polar")
        for policy in setting.policies:
            means = [mean_of(setting.mean(policy, metric.key)) for metric in metrics]
            if None not in means:
                color, marker = styles[policy.name]
                around = ([*angles, angles[0]], [*means, means[0]])
                axes.plot(*around, color=color, marker=marker, label=policy.name)
        axes.set_xticks(angles, [metric.head for metric in metrics])
        axes.tick_params(axis="x", pad=34)
        axes.set_ylim(*(metrics[0].limits or (0, 1)))
        _legend(figure)
        caption = f"{setting.title}: mean scores of judge {judge}."
        yield picture(figure, f"radar {judge} {setting.title}", caption)


def curves(setting: Setting, key: Column, points: Sequence[Point]) -> Iterator[Picture]:
    """Yield a line a policy, a panel a metric; an untrained policy without an x is level."""
    metrics = [metric for metric in headlines(setting) if metric.best]
    if not metrics:
        return
    drawn = {point.policy.name for point in points}
    level = [p for p in setting.policies if not p.recipe and p.name not in drawn]
    figure, grid = panels(len(metrics), 2.6)
    for axes, metric in zip(grid, metrics, strict=True):
        for name, (color, marker) in looks([point.name for point in points]).items():
            own = [point for point in points if point.name == name]
            found = {point.x: point.setting.mean(point.policy, metric.key) for point in own}
            known = {x: number for x, number in found.items() if number is not None}
            numbers = list(known.values())
            means, spans = [number.mean for number in numbers], _spans(numbers, metric)
            style = {"color": color, "marker": marker, "label": name}
            axes.errorbar(list(known), means, yerr=spans, **style)
        for place, policy in enumerate(level):
            mean = setting.mean(policy, metric.key)
            if mean is not None:
                line = (":", "--", "-.")[place % 3]
                axes.axhline(mean.mean, color=GREY, linestyle=line, label=policy.name)
        axes.set_xlabel(key.head)
        axes.set_ylabel(metric.head)
    _legend(figure)
    caption = f"{setting.title}: by {key.head.lower()}, with 95% intervals."
    yield picture(figure, f"{key.key} {setting.title}", caption)


def _legend(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)


LOGGED = {
    "loss": "loss",
    "log_pi_positive": "log π, weight > 0",
    "log_pi_negative": "log π, weight < 0",
    "rewards/accuracies": "accuracy of preferences",
}
"""Logged values that are drawn, with their names."""


def _training(setting: Setting) -> Iterator[Picture]:
    trained = {p.name: p.trainings[0].get("log") for p in setting.policies if p.trainings}
    logs = {name: log for name, log in trained.items() if log}
    keys = [key for key in LOGGED if any(key in e for log in logs.values() for e in log)]
    if not keys:
        return
    figure, grid = panels(len(keys), 2.3, 2)
    for axes, key in zip(grid, keys, strict=True):
        for name, (color, _) in looks(list(logs)).items():
            points = [(e["step"], e[key]) for e in logs[name] if "step" in e and key in e]
            if points:
                axes.plot(*zip(*points, strict=True), color=color, label=name)
        axes.set_xlabel("optimiser step")
        axes.set_ylabel(LOGGED[key])
    _legend(figure)
    caption = f"{setting.title}: training; losses of different learners are not comparable."
    yield picture(figure, f"training {setting.title}", caption)


def _forgetting(setting: Setting) -> Iterator[Picture]:
    measured = {n: mean_matrix(some) for n, some in forgetting_sequences(setting).items()}
    if not measured:
        return
    figure, grid = panels(len(measured), 2.8, 2)
    image: Any = None
    for axes, (name, matrix) in zip(grid, measured.items(), strict=True):
        filled = [[*line, *[math.nan] * (len(matrix) - len(line))] for line in matrix]
        image = axes.imshow(filled, vmin=0, vmax=1, cmap="viridis")
        for i, line in enumerate(matrix):
            for j, value in enumerate(line):
                color = "white" if value < 0.6 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=color, fontsize=5)
        axes.grid(visible=False)
        axes.set_title(name)
        axes.set_xlabel("passage, in the order of the edits")
        axes.set_ylabel("after edit")
    figure.colorbar(image, ax=grid, label="accuracy, closed book")
    caption = f"{setting.title}: accuracy on each passage after each edit."
    yield picture(figure, f"forgetting {setting.title}", caption)
