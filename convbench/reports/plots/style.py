"""The common style of all plots: palette, markers, line styles, sizes, and saving to bytes."""

from __future__ import annotations

import io
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from convbench.errors import MissingDependency
from convbench.reports.document import Picture
from convbench.reports.policies import NAMES
from convbench.util.install import with_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Columns = Literal["one", "two"]
ONE_COLUMN, TWO_COLUMNS = 3.35, 7.0
"""Inches of one column of a page of two (8.5 cm), and of both."""
DPI = 300
"""Resolution of the PNG: what journals require of line art."""
GREY = "#6b6b6b"

# Okabe and Ito's palette, distinguishable with every common colour blindness; markers and line
# styles distinguish policies without colour.
LOOKS = (
    ("#0072B2", "o", "-"),
    ("#D55E00", "s", "--"),
    ("#E69F00", "^", "-."),
    ("#009E73", "D", ":"),
    ("#000000", "X", "-"),
    ("#CC79A7", "v", "--"),
    ("#56B4E9", "P", "-."),
    ("#7a5c00", "<", ":"),
    ("#5e3c99", ">", "-"),
    ("#8c8c8c", "*", "--"),
    ("#332288", "p", "-."),
    ("#882255", "h", ":"),
    ("#117733", "d", "--"),
    ("#4d4d4d", "8", "-"),
)

RC: dict[str, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.titleweight": "bold",
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#d9d9d9",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "errorbar.capsize": 2.0,
    "figure.facecolor": "white",
    "axes.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "convbench",
    "svg.fonttype": "path",
    "axes.titlelocation": "left",
    "pdf.fonttype": 42,  # text that can be searched; publishers refuse fonts of type 3
}


@dataclass(frozen=True, slots=True)
class Look:
    """The colour, marker and line style of a policy in all pictures."""

    color: str
    marker: str
    line: str


@dataclass(frozen=True, slots=True)
class Page:
    """The page that pictures are drawn for."""

    columns: Columns = "two"
    """Width of a picture with several panels, in columns of a two-column page; a picture with one
    panel is always one column wide."""
    titled: bool = False
    """Whether titles are drawn into the pictures; on a page the caption has them."""

    def panels_across(self, panels: int, wide: int, narrow: int = 1) -> int:
        """Return how many panels a picture has in a row: at most `wide` on a page of two columns,
        at most `narrow` on one column, never more than `panels`."""
        return min(panels, wide if self.columns == "two" else narrow)


_SHARED: ContextVar[Mapping[str, Look]] = ContextVar("_SHARED")
"""The looks of all policies of the document that is being drawn."""
_PAGE: ContextVar[Page] = ContextVar("_PAGE")
"""The page of the document that is being drawn."""


def current_page() -> Page:
    """Return the page of the enclosing `drawing_style`; the default page (two columns, no titles)
    outside of one."""
    return _PAGE.get(Page())


def policy_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return each policy's look by name, in the order of the names without duplicates.

    Within `drawing_style` a name has the same look in all pictures. The papers' methods have fixed
    looks; others get one by a hash of their name, distinct as far as looks suffice.
    """
    assigned, distinct_names = dict(_SHARED.get({})), list(dict.fromkeys(names))
    _assign_looks(assigned, [name for name in distinct_names if name not in assigned])
    return {name: assigned[name] for name in distinct_names}


def _assign_looks(assigned: dict[str, Look], names: Iterable[str]) -> None:
    """Add a look for each name; the order of names does not matter."""
    fixed = {name: Look(*look) for name, look in zip(NAMES.values(), LOOKS, strict=False)}
    others = []
    for name in sorted(names):
        own = fixed.get(name.partition(" (")[0])
        if own is not None and own not in assigned.values():
            assigned[name] = own
        else:
            others.append(name)
    for name in others:
        assigned[name] = _by_name(name, {look.color for look in assigned.values()}, fixed.values())


def _by_name(name: str, taken: set[str], fixed: Collection[Look]) -> Look:
    """Return the look at the name's hash, or the next one whose colour is free: first of those that
    no published method has, then of all."""
    listed = [Look(*look) for look in LOOKS]
    start = zlib.crc32(name.encode())
    for choice in ([look for look in listed if look not in fixed], listed):
        turned = [choice[(start + step) % len(choice)] for step in range(len(choice))]
        free = next((look for look in turned if look.color not in taken), None)
        if free is not None:
            return free
    return listed[start % len(listed)]


@contextmanager
def drawing_style(names: Iterable[str] = (), on: Page | None = None) -> Iterator[None]:
    """Set matplotlib's settings, the looks of these policies and the page within the context, and
    restore them after it.

    By default the page is the enclosing one. Raise MissingDependency without matplotlib, on entry.
    """
    try:
        import matplotlib
    except ImportError:
        raise MissingDependency(
            "matplotlib", needed_for="--plots", install=with_extra("analysis")
        ) from None
    settings: Any = RC
    shared, paper = _SHARED.set(policy_looks(names)), _PAGE.set(on or current_page())
    try:
        with matplotlib.rc_context(settings):
            yield
    finally:
        _SHARED.reset(shared)
        _PAGE.reset(paper)


def new_figure(height: float, *, panels: int = 1) -> Figure:
    """Return an empty figure of this height in inches: one column wide, or two for several panels
    on a two-column page."""
    from matplotlib.figure import Figure

    width = ONE_COLUMN if panels == 1 or current_page().columns == "one" else TWO_COLUMNS
    return Figure(figsize=(width, height), layout="constrained")


def save_picture(
    figure: Figure, name: str, caption: str, *, title: str = "", legend: str = ""
) -> Picture:
    """Return a figure as SVG, PNG and PDF, the same bytes for the same numbers; nothing is written
    to disk.

    The title is drawn if the page has titles; `legend` is a line below the figure that explains the
    marks. The figure is changed.
    """
    if title and current_page().titled:
        figure.suptitle(title, x=0.01, ha="left", fontsize=8.5, fontweight="bold")
    if legend:
        figure.supxlabel(legend, x=0.99, ha="right", fontsize=6.5, color=GREY)
    figure.draw_without_rendering()  # lays it out once for the three formats
    figure.set_layout_engine("none")
    svg, pdf, png = io.StringIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", metadata={"Date": None, "Title": caption})
    pdf_metadata = {"CreationDate": None, "Producer": None, "Creator": None, "Title": caption}
    figure.savefig(pdf, format="pdf", metadata=pdf_metadata)
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None, "Title": caption})
    width, height = figure.get_size_inches()
    return Picture(
        name, caption, svg.getvalue(), png.getvalue(), pdf.getvalue(), (float(width), float(height))
    )


def legend_below(figure: Figure, handles: Any, labels: Sequence[str], words: str = "") -> None:
    """Add a legend below all panels of the figure, with `words` as its heading if given."""
    columns = 4 if figure.get_figwidth() > ONE_COLUMN else 2
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=min(columns, len(labels)),
        title=words or None,
        title_fontproperties={"size": 6.5},
        labelcolor="black",
    )
