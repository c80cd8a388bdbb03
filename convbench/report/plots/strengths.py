"""Strengths of policies from duels, as they are and at equal length."""

from __future__ import annotations

from typing import Any

from convbench.report.document import Picture, slug
from convbench.report.pairwise import Tournament
from convbench.report.plots.style import GREY, LOOKS, headed, new_figure, picture
from convbench.stats.bradley_terry import Bound, Ranking

APART = 0.16
"""Distance of the two marks of a policy from its line."""


def strengths(title: str, found: Tournament) -> Picture | None:
    """Return the strengths of a tournament's policies; None where they are not finite."""
    plain, level = found.ranking(), found.ranking(length=True)
    if plain is None:
        return None
    names = [policy.name for policy in found.policies]
    figure = new_figure(0.9 + 0.32 * len(names), width=5.2)
    axes: Any = figure.subplots()
    _marks(axes, plain, -APART, 0, "as judged")
    if level is not None:
        _marks(axes, level, APART, 1, "at equal length")
    axes.axvline(0, color=GREY, linestyle=":", linewidth=1, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(f"log odds of winning against {names[0]}")
    axes.legend(fontsize=7, frameon=False, loc="best")
    headed(figure, f"{title}, judge {found.judge}")
    caption = (
        f"{title}: Bradley-Terry strengths by judge {found.judge} against {names[0]}, with 95% "
        "intervals that hold together; each couple was judged in both orders."
    )
    return picture(figure, slug(f"pairwise {title} {found.judge}"), caption)


def _marks(axes: Any, found: Ranking, shift: float, look: int, label: str) -> None:
    color, marker = LOOKS[look][:2]
    for place, bound in enumerate(found.strengths):
        axes.errorbar(
            bound.value, place + shift, xerr=_bars(bound), color=color, marker=marker,
            linestyle="none", elinewidth=1.3, markersize=4.5, label=label if place == 1 else None,
        )  # fmt: skip


def _bars(bound: Bound) -> list[list[float]] | None:
    if bound.low is None or bound.high is None:
        return None
    return [[bound.value - bound.low], [bound.high - bound.value]]
