"""One look for all plots: palette, markers, line styles, sizes, and the way to a file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from convbench.errors import MissingDependency
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


def looks(names: list[str]) -> dict[str, Look]:
    """Return each policy's look: the papers' methods always have the same one."""
    fixed = dict(zip(NAMES.values(), LOOKS, strict=False))
    plain = {name: name.partition(" (")[0] for name in names}
    free = [look for look in LOOKS if look not in {fixed.get(one) for one in plain.values()}]
    found: dict[str, tuple[str, str, str]] = {}
    for name in names:
        own = fixed.get(plain[name])
        found[name] = own if own and own not in found.values() else free.pop()
        free = free or list(LOOKS)
    return {name: Look(*look) for name, look in found.items()}


@contextmanager
def drawing() -> Iterator[None]:
    """Set the look for what is drawn inside; MissingDependency without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency(
            "matplotlib", needed_for="--plots", install="pip install 'convbench[analysis]'"
        ) from None
    settings: Any = RC
    with matplotlib.rc_context(settings):
        yield


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
