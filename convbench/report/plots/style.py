"""One look for all plots: palette, markers, line styles, sizes, and the way to a file."""

from __future__ import annotations

import io
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency
from convbench.install import with_extra
from convbench.report.document import Picture
from convbench.report.policies import NAMES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0
"""Inches: a text column of a page."""
DPI = 160
"""Of the PNG."""
GREY = "#6b6b6b"

# Okabe and Ito's palette, told apart with every common colour blindness; markers and line
# styles say the same without colour.
LOOKS = (
    ("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#E69F00", "^", "-."), ("#009E73", "D", ":"),
    ("#000000", "X", "-"), ("#CC79A7", "v", "--"), ("#56B4E9", "P", "-."),
    ("#7a5c00", "<", ":"), ("#5e3c99", ">", "-"), ("#8c8c8c", "*", "--"), ("#332288", "p", "-."),
    ("#882255", "h", ":"), ("#117733", "d", "--"), ("#4d4d4d", "8", "-"),
)  # fmt: skip

RC: dict[str, Any] = {
    "font.size": 9, "axes.titlesize": 9.5, "axes.titleweight": "bold", "axes.labelsize": 9,
    "xtick.labelsize": 8, "ytick.labelsize": 8, "legend.fontsize": 8, "legend.frameon": False,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
    "grid.color": "#d9d9d9", "grid.linewidth": 0.6, "axes.axisbelow": True,
    "lines.linewidth": 1.4, "lines.markersize": 5, "errorbar.capsize": 2.5,
    "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
    "svg.hashsalt": "convbench", "svg.fonttype": "path", "axes.titlelocation": "left",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Look:
    """How one policy is drawn everywhere."""

    color: str
    marker: str
    line: str


_SHARED: ContextVar[Mapping[str, Look]] = ContextVar("_SHARED")
"""The looks of all policies of a document, inside `drawing`."""


def looks(names: Iterable[str]) -> dict[str, Look]:
    """Return each policy's look: the one that it has in all pictures of the document. The papers'
    methods have the same one everywhere; others one by their name, as far as looks suffice."""
    found, wanted = dict(_SHARED.get({})), list(dict.fromkeys(names))
    _assign(found, [name for name in wanted if name not in found])
    return {name: found[name] for name in wanted}


def _assign(found: dict[str, Look], names: Iterable[str]) -> None:
    """Give looks to names, in whatever order they come."""
    fixed = {name: Look(*look) for name, look in zip(NAMES.values(), LOOKS, strict=False)}
    others = []
    for name in sorted(names):
        own = fixed.get(name.partition(" (")[0])
        if own is not None and own not in found.values():
            found[name] = own
        else:
            others.append(name)
    for name in others:
        found[name] = _by_name(name, {look.color for look in found.values()}, fixed.values())


def _by_name(name: str, taken: set[str], fixed: Collection[Look]) -> Look:
    """Return the look at the name's own place, or the next that is free: of those that no method
    has, then of all."""
    listed = [Look(*look) for look in LOOKS]
    start = zlib.crc32(name.encode())
    for choice in ([look for look in listed if look not in fixed], listed):
        turned = [choice[(start + step) % len(choice)] for step in range(len(choice))]
        free = next((look for look in turned if look.color not in taken), None)
        if free is not None:
            return free
    return listed[start % len(listed)]


@contextmanager
def drawing(names: Iterable[str] = ()) -> Iterator[None]:
    """Set the look for what is drawn inside, with one for each of the document's policies;
    MissingDependency without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency(
            "matplotlib", needed_for="--plots", install=with_extra("analysis")
        ) from None
    settings: Any = RC
    shared = _SHARED.set(looks(names))
    try:
        with matplotlib.rc_context(settings):
            yield
    finally:
        _SHARED.reset(shared)


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """Return an empty figure, inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def picture(figure: Figure, name: str, caption: str) -> Picture:
    """Save a figure as SVG and PNG, the same bytes for the same numbers."""
    svg, png = io.StringIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Title": caption})
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None, "Title": caption})
    return Picture(name, caption, svg.getvalue(), png.getvalue())


def headed(figure: Figure, title: str) -> None:
    """Say above a picture what it shows, so that it stands without its caption."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=9.5, fontweight="bold")


def legend_below(figure: Figure, axes: Axes, columns: int = 4) -> None:
    """Put the legend of `axes` below all panels."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)))
