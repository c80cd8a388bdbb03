"""Strengths of policies from duels, as they are and at equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.pairwise import Tournament
from convbench.report.plots.style import GREY, looks, new_figure, picture
from convbench.stats.bradley_terry import Bound, Ranking

APART = 0.16
"""Distance of the two marks of a policy from its line."""


def strengths(title: str, found: Tournament, no_wins: Sequence[str] = ()) -> Picture | None:
    """Return the strengths of a tournament's policies; None where they are not finite. Its caption
    ends with `no_wins`: who has not won, and why."""
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
        figure, slug(f"pairwise {title} {found.judge}"), caption,
        title=f"{title}, judge {found.judge}", legend=said,
    )  # fmt: skip


def _marks(axes: Any, names: Sequence[str], found: Ranking, shift: float, *, hollow: bool) -> None:
    styles = looks(names)
    for place, (name, bound) in enumerate(zip(names, found.strengths, strict=True)):
        look = styles[name]
        axes.errorbar(
            bound.value, place + shift, xerr=_bars(bound), color=look.color, marker=look.marker,
            linestyle="none", elinewidth=1.2, markersize=4.5,
            markerfacecolor="white" if hollow else look.color,
        )  # fmt: skip


def _bars(bound: Bound) -> list[list[float]] | None:
    if bound.low is None or bound.high is None:
        return None
    return [[bound.value - bound.low], [bound.high - bound.value]]
