"""Pictures of a report: dots with intervals, a judge's radar, curves, training, forgetting."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency
from convbench.reports.document import Picture, Row, Table, mean_of, slug
from convbench.reports.frame import Setting
from convbench.reports.metrics import Metric, headlines, metrics_of
from convbench.reports.over import by_key, round_points, row_points, turn_points
from convbench.reports.selfedits import forgetting_sequences, mean_matrix
from convbench.reports.tables import by_temperature
from convbench.stats.estimates import ErrorKind, Estimate
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
    """Return a figure as SVG, PNG and PDF; nothing is written to disk."""
    drawn = {}
    for kind in ("svg", "png", "pdf"):
        out = io.BytesIO()
        figure.savefig(out, format=kind, dpi=300, metadata={"Title": caption})
        drawn[kind] = out.getvalue()
    return Picture(slug(name), caption, drawn["svg"].decode(), drawn["png"], drawn["pdf"])


def setting_pictures(setting: Setting, kind: ErrorKind) -> list[Picture]:
    """Return the pictures of one setting."""
    with drawing():
        curves = (
            (by_temperature(setting, kind), "temperature"),
            (by_key(round_points(setting), "rounds", "Round", kind), "rounds"),
            (by_key(row_points(setting), "rows", "Rows", kind), "rows"),
        )
        drawn = [
            _dots(setting, kind),
            *_radars(setting, kind),
            *(_curves(setting, table, x) for table, x in curves if table is not None),
            _training(setting),
            _forgetting(setting),
        ]
    return [one for one in drawn if one is not None]


def turn_pictures(settings: Sequence[Setting], kind: ErrorKind) -> list[Picture]:
    """Return curves over the number of turns of settings that differ in it alone."""
    table = by_key(turn_points(settings), "turns", "Turns", kind)
    with drawing():
        found = None if table is None else _curves(settings[0], table, "turns")
    return [] if found is None else [found]


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


def _dots(setting: Setting, kind: ErrorKind) -> Picture | None:
    """Return means with 95% intervals, a panel a metric; the first base is a dotted line."""
    metrics = [m for m in headlines(setting) if m.best]
    if not metrics:
        return None
    names = [policy.name for policy in setting.policies]
    bases = [base.name for p in setting.policies if (base := setting.base_of(p)) is not None]
    figure = new_figure((0.5 + 0.2 * len(names)) * math.ceil(len(metrics) / 3) + 0.4)
    for axes, metric in zip(_grid(figure, len(metrics)), metrics, strict=True):
        for place, policy in enumerate(setting.policies):
            number = setting.mean(policy, metric.column, kind, metric.scale)
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
    caption = f"{setting.title}: means with 95% intervals ({kind} errors); dotted: {bases[0]}." if (
        bases
    ) else f"{setting.title}: means with 95% intervals ({kind} errors)."  # fmt: skip
    return picture(figure, f"means {setting.title}", caption)


def _radars(setting: Setting, kind: ErrorKind) -> Iterator[Picture]:
    """Yield a radar of each judge with three metrics on one scale, a polygon a policy."""
    for judge in setting.judges:
        metrics = [m for m in metrics_of(setting) if m.judge == judge and m.limits]
        metrics = [m for m in metrics if m.limits == metrics[0].limits]
        if len(metrics) < 3:
            continue
        angles = [2 * math.pi * number / len(metrics) for number in range(len(metrics))]
        figure = new_figure(3.6)
        axes: Any = figure.add_subplot(projection="polar")
        for name, (color, marker) in looks([p.name for p in setting.policies]).items():
            policy = next(p for p in setting.policies if p.name == name)
            means = [mean_of(setting.mean(policy, m.column, kind)) for m in metrics]
            if None not in means:
                axes.plot([*angles, angles[0]], [*means, means[0]], color=color, marker=marker,
                          label=name)  # fmt: skip
        axes.set_xticks(angles, [metric.head for metric in metrics])
        axes.tick_params(axis="x", pad=14)
        axes.set_ylim(*(metrics[0].limits or (0, 1)))
        axes.legend(loc="center left", bbox_to_anchor=(1.2, 0.5))
        caption = f"{setting.title}: mean scores of judge {judge}."
        yield picture(figure, f"radar {judge} {setting.title}", caption)


def _curves(setting: Setting, table: Table, x: str) -> Picture | None:
    """Return a line a policy over the x of a table, a panel a metric; a policy of the setting that
    has no x is a level line."""
    place = next(i for i, column in enumerate(table.columns) if column.key == x)
    metrics = [m for m in headlines(setting) if m.best]
    columns = {column.key: i for i, column in enumerate(table.columns)}
    shown = [m for m in metrics if m.column in columns]
    if not shown:
        return None
    lines: dict[str, list[Row]] = {}
    for row in table.rows:
        lines.setdefault(str(row.cells[0]), []).append(row)
    drawn = [n.partition(" (")[0] for n in lines]
    others = [p for p in setting.policies if p.recipe is None and p.name not in drawn]
    figure = new_figure(2.6)
    for axes, metric in zip(_grid(figure, len(shown)), shown, strict=True):
        for name, (color, marker) in looks(list(lines)).items():
            points = [
                (mean_of(row.cells[place]), row.cells[columns[metric.column]])
                for row in lines[name]
            ]
            known = [(a, b) for a, b in points if a is not None and isinstance(b, Estimate)]
            spans = [_span(number, metric) for _, number in known]
            axes.errorbar(
                [a for a, _ in known],
                [number.mean for _, number in known],
                yerr=[[low for low, _ in spans], [high for _, high in spans]],
                label=name,
                color=color,
                marker=marker,
            )
        for number, policy in enumerate(others if x != "temperature" else ()):
            level = setting.mean(policy, metric.column, scale=metric.scale)
            if level is not None:
                style = (":", "--", "-.")[number % 3]
                axes.axhline(level.mean, color=GREY, linestyle=style, label=policy.name)
        axes.set_xlabel(table.columns[place].head)
        axes.set_ylabel(metric.head)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    head = table.caption[:1].lower() + table.caption[1:]
    caption = f"{setting.title}: {head}, with 95% intervals."
    return picture(figure, f"{x} {setting.title}", caption)


LOGGED = {
    "loss": "loss",
    "log_pi_positive": "log π, weight > 0",
    "log_pi_negative": "log π, weight < 0",
    "rewards/accuracies": "accuracy of preferences",
}
"""Logged values that are drawn, with their names."""


def _training(setting: Setting) -> Picture | None:
    """Return the training curves of a setting as logged; None if nothing was."""
    logs: dict[str, list[Mapping[str, Any]]] = {
        policy.name: [entry for entry in training["log"] if isinstance(entry, Mapping)]
        for policy in setting.policies
        for training in policy.trainings[:1]
        if isinstance(training.get("log"), list)
    }
    keys = [key for key in LOGGED if any(key in e for log in logs.values() for e in log)]
    if not keys:
        return None
    figure = new_figure(2.1 * math.ceil(len(keys) / 2) + 0.4)
    for axes, key in zip(_grid(figure, len(keys), 2), keys, strict=True):
        for name, (color, _) in looks(list(logs)).items():
            points = [(e["step"], e[key]) for e in logs[name] if "step" in e and key in e]
            if points:
                axes.plot(*zip(*points, strict=True), color=color, label=name)
        axes.set_xlabel("optimiser step")
        axes.set_ylabel(LOGGED[key])
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4)
    caption = f"{setting.title}: training; losses of different learners are not comparable."
    return picture(figure, f"training {setting.title}", caption)


def _forgetting(setting: Setting) -> Picture | None:
    """Return heat maps of the accuracy on each passage after each edit; None if none was
    measured."""
    measured = {n: mean_matrix(some) for n, some in forgetting_sequences(setting).items()}
    if not measured:
        return None
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
    return picture(figure, f"forgetting {setting.title}", caption)
