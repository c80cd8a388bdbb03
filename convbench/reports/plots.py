"""Pictures of a report: dots with intervals, a judge's radar, curves, training, forgetting."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency
from convbench.reports.document import Column, Picture, mean_of, slug
from convbench.reports.frame import Setting
from convbench.reports.metrics import Metric, headlines, metrics_of
from convbench.reports.over import TURNS, Point, over_points, turn_points, varies
from convbench.reports.selfedits import forgetting_sequences, mean_matrix
from convbench.stats.estimates import Estimate
from convbench.util.install import with_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which all common colour blindnesses tell apart.
COLORS = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7a5c00",
)  # fmt: skip
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
GREY = "#6b6b6b"
WIDTH = 7.0
"""Inches of a page of two columns."""
RC: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titlelocation": "left",
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.0,
    "figure.facecolor": "white",
    "svg.fonttype": "path",
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
    settings: Any = RC
    with matplotlib.rc_context(settings):
        yield


def new_figure(height: float) -> Figure:
    """Return an empty figure as wide as a page, of this height in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH, height), layout="constrained")


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
        for points, key, _ in over_points(setting):
            yield from _curves(setting, points, key)
        yield from _training(setting)
        yield from _forgetting(setting)


def turns_picture(settings: Sequence[Setting]) -> Iterator[Picture]:
    """Yield curves over the number of turns of settings that differ in it alone."""
    with drawing():
        yield from _curves(settings[0], turn_points(settings), TURNS)


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return a colour and a marker for each policy, in order."""
    return {
        name: (COLORS[number % len(COLORS)], MARKERS[number % len(MARKERS)])
        for number, name in enumerate(dict.fromkeys(names))
    }


def _span(number: Estimate, metric: Metric) -> tuple[float, float]:
    """Return how far the 95% interval reaches below and above the mean, within the limits."""
    low, high = number.interval or (number.mean, number.mean)
    bottom, top = metric.limits or (-math.inf, math.inf)
    return max(0.0, number.mean - max(low, bottom)), max(0.0, min(high, top) - number.mean)


def _grid(figure: Figure, panels: int, across: int = 3) -> list[Any]:
    """Return the axes of this many panels, a row at most `across` long."""
    columns = min(panels, across)
    grid: Any = figure.subplots(math.ceil(panels / columns), columns, squeeze=False)
    for axes in grid.flat[panels:]:
        axes.set_visible(False)
    return list(grid.flat[:panels])


def _dots(setting: Setting) -> Iterator[Picture]:
    """Yield means with 95% intervals, a panel a metric; the first base is a dotted line."""
    metrics = [m for m in headlines(setting) if m.best]
    if not metrics:
        return
    names = [policy.name for policy in setting.policies]
    bases = [base.name for p in setting.policies if (base := setting.base_of(p)) is not None]
    figure = new_figure((0.5 + 0.2 * len(names)) * math.ceil(len(metrics) / 3) + 0.4)
    for axes, metric in zip(_grid(figure, len(metrics)), metrics, strict=True):
        for place, policy in enumerate(setting.policies):
            number = setting.mean(policy, metric.key)
            if number is None:
                continue
            color, marker = looks(names)[policy.name]
            below, above = _span(number, metric)
            axes.errorbar(number.mean, place, xerr=[[below], [above]], color=color, marker=marker)
            if policy.name in bases[:1]:
                axes.axvline(number.mean, color=GREY, linestyle=":", linewidth=1, zorder=0)
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlabel(metric.head)
        axes.grid(axis="y", visible=False)
    dotted = f"; dotted: {bases[0]}" if bases else ""
    caption = f"{setting.title}: means with 95% intervals ({setting.kind} errors){dotted}."
    yield picture(figure, f"means {setting.title}", caption)


def _radars(setting: Setting) -> Iterator[Picture]:
    """Yield a radar of each judge with three metrics on one scale, a polygon a policy."""
    for judge in setting.judges:
        metrics = [m for m in metrics_of(setting) if m.judge == judge and m.limits]
        metrics = [m for m in metrics if m.limits == metrics[0].limits]
        if len(metrics) < 3:
            continue
        angles = [2 * math.pi * number / len(metrics) for number in range(len(metrics))]
        figure = new_figure(3.6)
        axes: Any = figure.add_subplot(projection="polar")
        colors = looks([policy.name for policy in setting.policies])
        for policy in setting.policies:
            means = [mean_of(setting.mean(policy, metric.key)) for metric in metrics]
            if None not in means:
                color, marker = colors[policy.name]
                around = ([*angles, angles[0]], [*means, means[0]])
                axes.plot(*around, color=color, marker=marker, label=policy.name)
        axes.set_xticks(angles, [metric.head for metric in metrics])
        axes.tick_params(axis="x", pad=24)
        axes.set_ylim(*(metrics[0].limits or (0, 1)))
        axes.legend(loc="center left", bbox_to_anchor=(1.2, 0.5))
        caption = f"{setting.title}: mean scores of judge {judge}."
        yield picture(figure, f"radar {judge} {setting.title}", caption)


def _curves(setting: Setting, points: Sequence[Point], key: Column) -> Iterator[Picture]:
    """Yield a line a policy over what is varied, a panel a metric; a policy of the setting that has
    no x is a level line."""
    metrics = [metric for metric in headlines(setting) if metric.best]
    if not metrics or not varies(points):
        return
    colors = looks([point.name for point in points])
    drawn = {point.policy.name for point in points}
    level = [p for p in setting.policies if not p.recipe and p.name not in drawn]
    figure = new_figure(2.6)
    for axes, metric in zip(_grid(figure, len(metrics)), metrics, strict=True):
        for name, (color, marker) in colors.items():
            known = [
                (point.x, number, _span(number, metric))
                for point in points
                if point.name == name
                if (number := point.setting.mean(point.policy, metric.key)) is not None
            ]
            axes.errorbar(
                [x for x, *_ in known],
                [number.mean for _, number, _ in known],
                yerr=[[span[side] for *_, span in known] for side in (0, 1)],
                label=name,
                color=color,
                marker=marker,
            )
        for place, policy in enumerate(level):
            mean = setting.mean(policy, metric.key)
            if mean is not None:
                style = (":", "--", "-.")[place % 3]
                axes.axhline(mean.mean, color=GREY, linestyle=style, label=policy.name)
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
    """Yield the training curves of a setting as logged."""
    logs: dict[str, list[Mapping[str, Any]]] = {
        policy.name: [entry for entry in training["log"] if isinstance(entry, Mapping)]
        for policy in setting.policies
        for training in policy.trainings[:1]
        if isinstance(training.get("log"), list)
    }
    keys = [key for key in LOGGED if any(key in e for log in logs.values() for e in log)]
    if not keys:
        return
    figure = new_figure(2.1 * math.ceil(len(keys) / 2) + 0.4)
    for axes, key in zip(_grid(figure, len(keys), 2), keys, strict=True):
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
    """Yield heat maps of the accuracy on each passage after each edit."""
    measured = {n: mean_matrix(some) for n, some in forgetting_sequences(setting).items()}
    if not measured:
        return
    figure = new_figure(2.8 * math.ceil(len(measured) / 2))
    image: Any = None
    panels = _grid(figure, len(measured), 2)
    for axes, (name, matrix) in zip(panels, measured.items(), strict=True):
        size = len(matrix)
        filled = [[*line, *[math.nan] * (size - len(line))] for line in matrix]
        image = axes.imshow(filled, vmin=0, vmax=1, cmap="viridis")
        for i, line in enumerate(matrix):
            for j, value in enumerate(line):
                color = "white" if value < 0.6 else "black"
                axes.text(j, i, f"{value:.2f}", ha="center", va="center", color=color, fontsize=5)
        axes.grid(visible=False)
        axes.set_title(name)
        axes.set_xlabel("passage, in the order of the edits")
        axes.set_ylabel("after edit")
    figure.colorbar(image, ax=panels, label="accuracy, closed book")
    caption = f"{setting.title}: accuracy on each passage after each edit."
    yield picture(figure, f"forgetting {setting.title}", caption)
